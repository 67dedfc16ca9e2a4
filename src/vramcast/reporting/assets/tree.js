"use strict";
// What is inside what, as rows of boxes that are as wide as their memory. A box is a button: it
// shows its part alone, and the top one goes back.

const NARROWEST = 0.003; // of the width shown; narrower boxes are left out

/** Puts a tree with its tabs into its place. */
function tree(place, figure) {
  const tabs = make("div", { class: "tabs", role: "tablist" });
  const boxes = make("div", { class: "tree", role: "group", "aria-label": figure.title });
  const tip = make("p", { class: "tree-tip", role: "status", "aria-live": "polite" });
  const one = { boxes, tip, path: [] };
  figure.trees.forEach(([name, root], index) => {
    const choose = () => {
      [...tabs.children].forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(i === index));
      });
      one.path = [root];
      drawTree(one);
    };
    tabs.append(make("button", { type: "button", role: "tab", text: name, onclick: choose }));
  });
  const head = make("div", { class: "bar-row" }, place.parentNode.querySelector("h3"));
  place.append(head, tabs, boxes, tip);
  boxes.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && one.path.length > 1) leave(one, one.path.length - 2);
  });
  tabs.firstChild.click();
}

function drawTree(one) {
  const shown = one.path[one.path.length - 1];
  const rows = [];
  addBoxes(one, rows, shown, 0, 1, 0);
  const above = one.path.slice(0, -1).map((node, index) => {
    const box = treeBox(node, 0, 1, () => leave(one, index), one);
    box.classList.add("above");
    return make("div", { class: "tree-row" }, box);
  });
  one.boxes.replaceChildren(
    ...above,
    ...rows.map((row) => make("div", { class: "tree-row" }, ...row)),
  );
  tellNode(one, shown);
}

/** The box of a node at `left` with a `share` of the width, and those of its parts below it. */
function addBoxes(one, rows, node, left, share, depth) {
  (rows[depth] ??= []).push(treeBox(node, left, share, () => enter(one, node), one));
  let at = left;
  for (const part of node.parts) {
    const width = (share * part.num_bytes) / node.num_bytes;
    if (width >= NARROWEST) addBoxes(one, rows, part, at, width, depth + 1);
    at += width;
  }
}

function treeBox(node, left, share, onclick, one) {
  const size = shown(node.num_bytes, "bytes");
  const text = `${node.name} ${size}${node.note}`;
  const background = node.colour ? `background:var(--${node.colour})` : "";
  const style = `left:${100 * left}%;width:${100 * share}%;${background}`;
  const label = [text, ...node.details].join(", ");
  const tell = () => tellNode(one, node);
  const options = { type: "button", style, "aria-label": label, onclick, onmouseenter: tell };
  const box = make("button", { ...options, onfocus: tell }, make("span", { text }));
  box.classList.toggle("leaf", Boolean(node.colour));
  return box;
}

function enter(one, node) {
  const steps = way(one.path[one.path.length - 1], node);
  if (steps.length < 2) {
    if (one.path.length > 1) leave(one, one.path.length - 2);
    return;
  }
  one.path.push(...steps.slice(1));
  drawTree(one);
  one.boxes.querySelector(".tree-row:nth-child(" + one.path.length + ") button").focus();
}

function leave(one, index) {
  one.path.length = index + 1;
  drawTree(one);
  one.boxes.querySelector(".tree-row:nth-child(" + one.path.length + ") button").focus();
}

/** The nodes from one down to another that is inside it. */
function way(from, to) {
  if (from === to) return [from];
  for (const part of from.parts) {
    const found = way(part, to);
    if (found.length) return [from, ...found];
  }
  return [];
}

function tellNode(one, node) {
  one.tip.textContent = [`${node.name}: ${shown(node.num_bytes, "bytes")}`, ...node.details].join(
    " · ",
  );
}
