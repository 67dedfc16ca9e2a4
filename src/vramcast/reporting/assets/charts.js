"use strict";
// A chart with its tabs and legend, what is shown when something is pointed at, and zoom; by pointer and by keys.

const isBars = (view) => view.layers.some((layer) => layer.kind === "bar");

function chart(place, figure) {
  const state = { view: 0, hidden: new Set(), domain: null, at: null };
  const tabs = make("div", { class: "tabs", role: "tablist" });
  const tools = make("div", { class: "tools" });
  const legend = make("div", { class: "legend" });
  const box = make("div", { class: "chart", tabindex: "0", role: "group", "aria-label": `${figure.title}. ${figure.caption}` });
  const tip = make("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" });
  place.append(make("div", { class: "bar-row" }, place.parentNode.querySelector("h3"), tools), tabs, legend, box);
  const view = () => figure.views[state.view];
  const layers = () => view().layers.filter((layer) => !state.hidden.has(layer.name));
  let drawn = null;

  function choose(index) {
    Object.assign(state, { view: index, hidden: new Set(), domain: null, at: null });
    [...tabs.children].forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
    });
    showLegend();
    draw();
  }
  if (figure.views.length > 1) {
    figure.views.forEach((one, index) => tabs.append(make("button", { type: "button", role: "tab", text: one.name, onclick: () => choose(index) })));
    tabs.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way) return;
      choose((state.view + way + figure.views.length) % figure.views.length);
      tabs.children[state.view].focus();
    });
  }
  for (const [text, label, act] of [["−", "zoom out", () => zoom(2)], ["+", "zoom in", () => zoom(0.5)], ["all", "show all", reset]]) {
    tools.append(make("button", { type: "button", text, "aria-label": label, onclick: act }));
  }

  function showLegend() {
    const named = view().layers.filter((layer, index, all) => all.findIndex((other) => other.name === layer.name) === index);
    legend.replaceChildren(...named.map((layer) => {
      const form = { line: " thin", step: " thin", across: " thin", down: " thin", dot: " dot" }[layer.kind] ?? "";
      const swatch = make("span", { class: `swatch${form}`, style: `background:${colour(layer)}` });
      const button = make("button", { type: "button", "aria-pressed": "true" }, swatch, layer.name);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(layer.name)) state.hidden.add(layer.name);
        button.setAttribute("aria-pressed", String(!state.hidden.has(layer.name)));
        draw();
      });
      return button;
    }));
    legend.hidden = named.length < 2;
  }

  function draw() {
    drawn = plot(view(), layers(), box.clientWidth || 640, state.domain);
    box.replaceChildren(drawn.svg, tip);
    tools.hidden = isBars(view());
    hide();
  }
  function reset() { state.domain = null; draw(); }

  function extent() {
    const all = layers().filter((layer) => layer.points.length && !["across", "bar"].includes(layer.kind)).flatMap((layer) => layer.points.map((p) => p[0]));
    return [Math.min(...all), Math.max(...all)];
  }
  function zoom(factor) {
    if (isBars(view())) return;
    const [least, most] = extent();
    const [low, high] = state.domain ?? [least, most];
    const middle = state.at ?? (low + high) / 2;
    const wanted = [middle - (middle - low) * factor, middle + (high - middle) * factor];
    state.domain = factor > 1 && wanted[0] <= least && wanted[1] >= most ? null : [Math.max(least, wanted[0]), Math.min(most, wanted[1])];
    draw();
  }

  // what is pointed at
  function hide() { tip.hidden = true; drawn.cross(null); }
  function show(found, left, top = 0) {
    if (!found) return hide();
    state.at = isBars(view()) ? null : found.at;
    tip.replaceChildren(...found.nodes);
    tip.hidden = false;
    drawn.cross(found.cross ?? null);
    const width = tip.offsetWidth, room = box.clientWidth;
    tip.style.left = `${Math.max(0, left + 16 + width < room ? left + 16 : left - width - 16)}px`;
    tip.style.top = `${isBars(view()) ? top + 16 : 12}px`;
  }
  const look = (event) => {
    const [x, y] = drawn.inside(event);
    show(view().pointer === "x" ? atX(view(), layers(), drawn.invert(x)) : nearest(view(), layers(), drawn, x, y), x, y);
  };
  let from = null;
  box.addEventListener("pointermove", (event) => { look(event); if (from !== null && event.buttons) drawn.band(from, offset(event)); });
  box.addEventListener("pointerleave", () => { from = null; drawn.band(null); hide(); });
  box.addEventListener("pointerdown", (event) => { from = isBars(view()) ? null : offset(event); look(event); });
  box.addEventListener("pointerup", (event) => {
    if (from !== null && Math.abs(offset(event) - from) > 10) {
      state.domain = [drawn.invert(from), drawn.invert(offset(event))].sort((a, b) => a - b);
      draw();
    }
    from = null;
    drawn.band(null);
  });
  box.addEventListener("dblclick", reset);
  const offset = (event) => drawn.inside(event)[0];
  box.addEventListener("keydown", (event) => {
    const on = () => walk(1), back = () => walk(-1);
    const keys = { "+": () => zoom(0.5), "-": () => zoom(2), 0: reset, Escape: reset, ArrowRight: on, ArrowDown: on, ArrowLeft: back, ArrowUp: back };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  let spot = -1;
  function walk(way) {
    const stops = stopsOf(view(), layers(), state.domain);
    if (!stops.length) return;
    spot = Math.max(0, Math.min(stops.length - 1, spot + way));
    const stop = stops[spot];
    if (view().pointer === "x") show(atX(view(), layers(), stop), drawn.x(stop));
    else show(told(view(), stop.layer, stop.index), ...drawn.place(stop.layer, stop.layer.points[stop.index]));
  }
  choose(0);
  new ResizeObserver(() => { if (drawn && Math.abs(drawn.width - box.clientWidth) > 2) draw(); }).observe(box);
}

/** Where arrow keys stop: every x, or every point. */
function stopsOf(view, layers, domain) {
  const pointed = layers.filter((layer) => !["across", "down"].includes(layer.kind));
  if (view.pointer !== "x") {
    const all = pointed.flatMap((layer) => layer.points.map((_, index) => ({ layer, index })));
    return isBars(view) ? all.sort((a, b) => a.layer.points[a.index][3] - b.layer.points[b.index][3]) : all;
  }
  const inside = (x) => !domain || (x >= domain[0] && x <= domain[1]);
  return [...new Set(pointed.flatMap((layer) => layer.points.map((p) => p[0])))].filter(inside).sort((a, b) => a - b);
}

/** Everything at the nearest x. */
function atX(view, layers, wanted) {
  const pointed = layers.filter((layer) => ["area", "line", "step", "dot"].includes(layer.kind) && layer.points.length);
  if (!pointed.length) return null;
  const near = (points, x) => points.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best), 0);
  const lead = pointed.find((layer) => layer.details.length > 1) ?? pointed.reduce((a, b) => (a.points.length >= b.points.length ? a : b));
  const at = lead.points[near(lead.points, wanted)][0];
  const rows = [], more = [];
  for (const layer of pointed) {
    let index = layer.points.findIndex((p) => p[0] === at);
    if (index < 0 && layer.kind === "step") index = layer.points.findLastIndex((p) => p[0] <= at);
    if (index < 0 && layer.kind === "line" && at >= layer.points[0][0] && at <= layer.points[layer.points.length - 1][0]) index = near(layer.points, at);
    if (index < 0) continue;
    rows.push(row(layer, shown(layer.points[index][1], view.y.unit)));
    const lines = layer.details[index] ?? [];
    if (lines.length) more.push(make("div", { class: "what" }, ...lines.map((text) => make("div", { text }))));
  }
  const head = make("b", { text: `${view.x.label.replace(/ through .*/, "")} ${shown(at, view.x.unit)}` });
  return { at, cross: at, nodes: [head, ...rows.reverse(), ...more.slice(0, 2)] };
}
function row(layer, text) {
  const swatch = make("span", { class: "swatch", style: `background:${colour(layer)}` });
  return make("div", { class: "row" }, make("span", {}, swatch, layer.name), make("span", { text }));
}

/** The nearest point in the plane. */
function nearest(view, layers, drawn, x, y) {
  let best = null;
  for (const layer of layers) {
    if (["across", "down", "line", "step", "area"].includes(layer.kind)) continue;
    layer.points.forEach((point, index) => {
      const [px, py] = drawn.place(layer, point);
      const distance = layer.kind === "bar" ? Math.abs(py - y) : Math.hypot(px - x, py - y);
      if (!best || distance < best.distance) best = { layer, index, distance };
    });
  }
  return best && best.distance < 60 ? told(view, best.layer, best.index) : null;
}
function told(view, layer, index) {
  const point = layer.points[index];
  const lines = (layer.details[index] ?? []).map((text) => make("div", { text }));
  if (layer.kind === "bar") return { nodes: [make("b", { text: point[0] }), ...lines] };
  const rows = lines.length ? lines : [make("div", { text: `${view.x.label} ${shown(point[0], view.x.unit)}` }), make("div", { text: `${view.y.label} ${shown(point[1], view.y.unit)}` })];
  return { at: point[0], nodes: [make("b", { text: layer.name }), ...rows] };
}
