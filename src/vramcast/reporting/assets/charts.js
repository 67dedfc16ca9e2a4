"use strict";
// A chart with its tabs and legend, the box that tells what is pointed at, and zoom; by pointer
// and by keys.

const SMALLEST_DRAG = 10; // pixels; a shorter one is a click
const NEAR = 60; // pixels from a point within which it is told
const ZOOM_IN = 0.5;
const ZOOM_OUT = 2;
const WHEEL_ZOOM = 0.8;
const FIND = "find a tensor, module or line";

/** Puts a chart into its place. */
function chart(place, figure) {
  const parts = chartParts(place, figure);
  const state = {
    view: 0,
    hidden: new Set(),
    domain: null,
    at: null,
    stop: -1,
    dragFrom: null,
    chosen: null,
    drawn: null,
  };
  const one = {
    figure,
    state,
    ...parts,
    view: () => figure.views[state.view],
    layers: () => one.view().layers.filter((layer) => !state.hidden.has(layer.name)),
  };
  addTabs(one);
  addTools(one);
  addPointer(one);
  addKeys(one);
  one.find.addEventListener("input", () => findPieces(one));
  chooseView(one, 0);
  const redraw = () => {
    if (Math.abs(state.drawn.width - one.box.clientWidth) > 2) draw(one);
  };
  new ResizeObserver(redraw).observe(one.box);
}

function chartParts(place, figure) {
  const label = `${figure.title}. ${figure.caption}`;
  const parts = {
    tabs: make("div", { class: "tabs", role: "tablist" }),
    tools: make("div", { class: "tools" }),
    legend: make("div", { class: "legend" }),
    find: make("input", { class: "find", type: "search", placeholder: FIND, "aria-label": FIND }),
    box: make("div", { class: "chart", tabindex: "0", role: "group", "aria-label": label }),
    tip: make("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" }),
    below: make("div", { class: "below", role: "status", "aria-live": "polite" }),
  };
  const head = make("div", { class: "bar-row" }, place.parentNode.querySelector("h3"), parts.tools);
  place.append(head, parts.tabs, parts.legend, parts.find, parts.box, parts.below);
  return parts;
}

function addTabs(one) {
  const { views } = one.figure;
  if (views.length < 2) return;
  views.forEach((view, index) => {
    const choose = () => chooseView(one, index);
    one.tabs.append(
      make("button", { type: "button", role: "tab", text: view.name, onclick: choose }),
    );
  });
  one.tabs.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    chooseView(one, (one.state.view + way + views.length) % views.length);
    one.tabs.children[one.state.view].focus();
  });
}

function chooseView(one, index) {
  const fresh = { view: index, hidden: new Set(), domain: null, at: null, stop: -1, chosen: null };
  Object.assign(one.state, fresh);
  one.below.hidden = one.view().pointer !== "piece";
  one.find.hidden = one.below.hidden;
  [...one.tabs.children].forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === index));
    tab.tabIndex = i === index ? 0 : -1;
  });
  showLegend(one);
  draw(one);
}

function addTools(one) {
  const tools = [
    ["−", "zoom out", () => zoom(one, ZOOM_OUT)],
    ["+", "zoom in", () => zoom(one, ZOOM_IN)],
    ["all", "show all", () => showAll(one)],
  ];
  for (const [text, label, onclick] of tools) {
    one.tools.append(make("button", { type: "button", text, "aria-label": label, onclick }));
  }
}

/** A button for every name; it hides and shows all layers of that name. */
function showLegend(one) {
  const byName = new Map(namedLayers(one.view()).map((layer) => [layer.name, layer]));
  one.legend.replaceChildren(...[...byName.values()].map((layer) => legendButton(one, layer)));
  one.legend.hidden = byName.size < 2;
}

/** Over areas the bands have no colour of their own: their names stand in them. */
function namedLayers({ layers }) {
  const isFilled = layers.some(isFilling);
  return layers.filter((layer) => !isFilled || layer.kind !== "band");
}

function legendButton(one, layer) {
  const { hidden } = one.state;
  const thin = ["line", "step", "across", "down", "limit"].includes(layer.kind);
  const form = `swatch${thin ? " thin" : layer.kind === "dot" ? " dot" : ""}`;
  const swatch = make("span", { class: form, style: `background:${colour(layer)}` });
  const button = make("button", { type: "button", "aria-pressed": "true" }, swatch, layer.name);
  button.addEventListener("click", () => {
    if (!hidden.delete(layer.name)) hidden.add(layer.name);
    button.setAttribute("aria-pressed", String(!hidden.has(layer.name)));
    draw(one);
  });
  return button;
}

function draw(one) {
  one.state.drawn = plot(one.view(), one.layers(), one.box.clientWidth || 640, one.state.domain);
  one.box.replaceChildren(one.state.drawn.svg, one.tip);
  one.tools.hidden = isBars(one.view());
  hideTip(one);
  if (one.below.hidden) return;
  choosePiece(one, one.state.chosen);
  if (one.find.value) findPieces(one);
}

function showAll(one) {
  one.state.domain = null;
  draw(one);
}

function zoom(one, factor) {
  if (isBars(one.view())) return;
  const [least, most] = extent(one.layers());
  if (least === undefined) return;
  const [low, high] = one.state.domain ?? [least, most];
  const middle = one.state.at ?? (low + high) / 2;
  const wanted = [middle - (middle - low) * factor, middle + (high - middle) * factor];
  const isAll = factor > 1 && wanted[0] <= least && wanted[1] >= most;
  one.state.domain = isAll ? null : [Math.max(least, wanted[0]), Math.min(most, wanted[1])];
  draw(one);
}

/** With Ctrl, or two fingers apart, it zooms at the pointer; sideways it moves what is zoomed. */
function turnWheel(one, event) {
  const { state } = one;
  if (isBars(one.view())) return;
  if (event.ctrlKey) {
    event.preventDefault();
    state.at = state.drawn.invert(state.drawn.inside(event)[0]);
    zoom(one, event.deltaY < 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM);
  } else if (state.domain && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    move(one, event.deltaX / one.box.clientWidth);
  }
}

/** By a share of what is shown, no further than there is something. */
function move(one, share) {
  const [least, most] = extent(one.layers());
  const [low, high] = one.state.domain;
  const by = Math.max(least - low, Math.min(most - high, share * (high - low)));
  one.state.domain = [low + by, high + by];
  draw(one);
}

function extent(layers) {
  const drawn = layers.filter((layer) => !["across", "band", "bar", "limit"].includes(layer.kind));
  return d3.extent(drawn.flatMap(xValues));
}

function addPointer(one) {
  const { box, state } = one;
  const offset = (event) => state.drawn.inside(event)[0];
  const endDrag = () => {
    state.dragFrom = null;
    state.drawn.band(null);
  };
  box.addEventListener("pointerdown", (event) => {
    state.dragFrom = isBars(one.view()) ? null : offset(event);
    look(one, event);
  });
  box.addEventListener("pointermove", (event) => {
    look(one, event);
    if (state.dragFrom !== null && event.buttons) state.drawn.band(state.dragFrom, offset(event));
  });
  box.addEventListener("pointerup", (event) => {
    const [from, to] = [state.dragFrom, offset(event)];
    if (from !== null && Math.abs(to - from) > SMALLEST_DRAG) {
      state.domain = [state.drawn.invert(from), state.drawn.invert(to)].sort((a, b) => a - b);
      draw(one);
    } else if (!one.below.hidden) {
      const rank = event.target.closest?.(".piece")?.dataset.rank;
      choosePiece(one, rank === undefined || Number(rank) === state.chosen ? null : Number(rank));
    }
    endDrag();
  });
  box.addEventListener("pointerleave", () => {
    endDrag();
    hideTip(one);
  });
  box.addEventListener("dblclick", () => showAll(one));
  box.addEventListener("wheel", (event) => turnWheel(one, event), { passive: false });
}

function addKeys(one) {
  const actions = {
    "+": () => zoom(one, ZOOM_IN),
    "-": () => zoom(one, ZOOM_OUT),
    0: () => showAll(one),
    Escape: () => showAll(one),
    Enter: () => one.below.hidden || choosePiece(one, one.state.stop),
    ArrowRight: () => walk(one, 1, "ArrowRight"),
    ArrowDown: () => walk(one, 1, "ArrowDown"),
    ArrowLeft: () => walk(one, -1, "ArrowLeft"),
    ArrowUp: () => walk(one, -1, "ArrowUp"),
  };
  one.box.addEventListener("keydown", (event) => {
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** Tells what the pointer is at. */
function look(one, event) {
  const { drawn } = one.state;
  const [x, y] = drawn.inside(event);
  if (one.view().pointer === "piece") return lookAtPiece(one, x, y);
  const byX = one.view().pointer === "x";
  const found = byX
    ? atX(one.view(), one.layers(), drawn.invert(x))
    : nearest(one.view(), one.layers(), drawn, x, y);
  showTip(one, found, x, y);
}

/** Goes to the next stop, or to the one before, and tells what is there. */
function walk(one, way, key) {
  const { state } = one;
  if (one.view().pointer === "piece") return walkPieces(one, key);
  const stops = stopsOf(one.view(), one.layers(), state.domain);
  if (!stops.length) return;
  state.stop = Math.max(0, Math.min(stops.length - 1, state.stop + way));
  const stop = stops[state.stop];
  if (one.view().pointer === "x") {
    showTip(one, atX(one.view(), one.layers(), stop), state.drawn.x(stop));
  } else {
    const place = state.drawn.place(stop.layer, stop.layer.points[stop.index]);
    showTip(one, told(one.view(), stop.layer, stop.index), ...place);
  }
}

function showTip(one, found, left, top = 0) {
  if (!found) return hideTip(one);
  const { box, tip, state } = one;
  const bars = isBars(one.view());
  state.at = bars ? null : found.at;
  tip.replaceChildren(...found.nodes);
  tip.hidden = false;
  state.drawn.cross(found.cross ?? null);
  // Left of the pointer where there is no room to its right.
  const fits = left + 16 + tip.offsetWidth < box.clientWidth;
  tip.style.left = `${Math.max(0, fits ? left + 16 : left - tip.offsetWidth - 16)}px`;
  const isBeside = bars || found.beside;
  // Above the pointer where there is no room below it.
  const isHigh = found.beside && top + 16 + tip.offsetHeight > box.clientHeight;
  const place = isHigh ? Math.max(0, top - tip.offsetHeight - 16) : top + 16;
  tip.style.top = `${isBeside ? place : 12}px`;
}

function hideTip(one) {
  one.tip.hidden = true;
  outlinePiece(one, "pointed");
  one.state.drawn.cross(null);
}

/** Where arrow keys stop: every x, or every point. */
function stopsOf(view, layers, domain) {
  const pointed = layers.filter(
    (layer) => !["across", "band", "down", "limit"].includes(layer.kind),
  );
  if (view.pointer === "x") {
    const xs = new Set(pointed.flatMap((layer) => layer.points.map((point) => point[0])));
    const inside = (x) => !domain || (x >= domain[0] && x <= domain[1]);
    return [...xs].filter(inside).sort((a, b) => a - b);
  }
  const all = pointed.flatMap((layer) => layer.points.map((_, index) => ({ layer, index })));
  const rank = ({ layer, index }) => layer.points[index][3];
  return isBars(view) ? all.sort((a, b) => rank(a) - rank(b)) : all;
}

/** Everything at the nearest x. */
function atX(view, layers, wanted) {
  const kinds = ["area", "line", "step", "dot"];
  const pointed = layers.filter((layer) => kinds.includes(layer.kind) && layer.points.length);
  if (!pointed.length) return null;
  // The layer that says most about its points decides which x the pointer can be at.
  const longest = pointed.reduce((a, b) => (a.points.length >= b.points.length ? a : b));
  const lead = pointed.find((layer) => layer.details.length > 1) ?? longest;
  const at = lead.points[nearestIndex(lead.points, wanted)][0];
  const rows = [];
  const more = [];
  for (const layer of pointed) {
    const index = indexAt(layer, at);
    if (index < 0) continue;
    rows.push(tipRow(layer, shown(layer.points[index][1], view.y.unit)));
    const lines = layer.details[index] ?? [];
    if (lines.length) more.push(make("div", { class: "what" }, ...lines.map(textLine)));
  }
  const name = view.x.label.replace(/ through .*/, "");
  const head = make("b", { text: `${name} ${shown(at, view.x.unit)}` });
  // In the order in which areas lie on top of each other.
  return { at, cross: at, nodes: [head, ...rows.reverse(), ...more.slice(0, 2)] };
}

function nearestIndex(points, x) {
  return d3.leastIndex(points, (a, b) => Math.abs(a[0] - x) - Math.abs(b[0] - x));
}

/** The point that holds at x: of a step the one before, of a line the nearest; else one there. */
function indexAt(layer, x) {
  const { points } = layer;
  const exact = points.findIndex((point) => point[0] === x);
  if (exact >= 0) return exact;
  if (layer.kind === "step") return points.findLastIndex((point) => point[0] <= x);
  const inside = x >= points[0][0] && x <= points[points.length - 1][0];
  return layer.kind === "line" && inside ? nearestIndex(points, x) : -1;
}

const textLine = (text) => make("div", { text });

function tipRow(layer, text) {
  const swatch = make("span", { class: "swatch", style: `background:${colour(layer)}` });
  return make(
    "div",
    { class: "row" },
    make("span", {}, swatch, layer.name),
    make("span", { text }),
  );
}

/** The nearest point or bar. */
function nearest(view, layers, drawn, x, y) {
  let best = null;
  for (const layer of layers.filter((one) => ["dot", "bar"].includes(one.kind))) {
    layer.points.forEach((point, index) => {
      const [px, py] = drawn.place(layer, point);
      const distance = layer.kind === "bar" ? Math.abs(py - y) : Math.hypot(px - x, py - y);
      if (!best || distance < best.distance) best = { layer, index, distance };
    });
  }
  return best && best.distance < NEAR ? told(view, best.layer, best.index) : null;
}

function told(view, layer, index) {
  const point = layer.points[index];
  const lines = layer.details[index] ?? [];
  if (layer.kind === "bar")
    return { nodes: [make("b", { text: point[0] }), ...lines.map(textLine)] };
  const values = [
    `${view.x.label} ${shown(point[0], view.x.unit)}`,
    `${view.y.label} ${shown(point[1], view.y.unit)}`,
  ];
  const shownLines = (lines.length ? lines : values).map(textLine);
  return { at: point[0], nodes: [make("b", { text: layer.name }), ...shownLines] };
}
