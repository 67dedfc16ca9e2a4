"use strict";
// Draws the figures of a vramcast report from the data in the page. All text goes in as text, never as markup.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);

  // ---------------------------------------------------------------------------------------------------------- numbers as text
  const scales = {
    bytes: [["PiB", 2 ** 50], ["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]],
    seconds: [["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]],
  };
  function scaleFor(unit, largest) {
    const known = scales[unit];
    if (!known) return ["", 1];
    return known.find(([, size]) => Math.abs(largest) >= size * (unit === "bytes" ? 1 : 0.9)) ?? known[known.length - 1];
  }
  function shown(value, unit) {
    if (typeof value !== "number") return String(value);
    if (unit === "percent") return `${value > 0 ? "+" : ""}${value.toFixed(3)} %`;
    if (scales[unit]) {
      const [name, size] = scaleFor(unit, value);
      return `${(value / size).toLocaleString("en", { maximumFractionDigits: 2, minimumFractionDigits: name === "B" ? 0 : 2 })} ${name}`;
    }
    return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1e4 ? 5 : 12 });
  }

  function make(tag, options = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(options)) {
      if (key === "text") node.textContent = value;
      else if (key === "class") node.className = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }
  const colour = (layer) => `var(--${layer.colour})`;

  // ------------------------------------------------------------------------------------------------------------------- charts
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
    function show(found, left) {
      if (!found) return hide();
      state.at = isBars(view()) ? null : found.at;
      tip.replaceChildren(...found.nodes);
      tip.hidden = false;
      drawn.cross(found.cross ?? null);
      const width = tip.offsetWidth, room = box.clientWidth;
      tip.style.left = `${Math.max(0, left + 16 + width < room ? left + 16 : left - width - 16)}px`;
      tip.style.top = "12px";
    }
    const look = (event) => {
      const box_ = drawn.svg.getBoundingClientRect();
      const scale = drawn.width / box_.width;
      const [x, y] = [(event.clientX - box_.left) * scale, (event.clientY - box_.top) * scale];
      show(view().pointer === "x" ? atX(view(), layers(), drawn.invert(x)) : nearest(view(), layers(), drawn, x, y), x);
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
    const offset = (event) => (event.clientX - drawn.svg.getBoundingClientRect().left) * (drawn.width / drawn.svg.getBoundingClientRect().width);
    box.addEventListener("keydown", (event) => {
      const act = { "+": () => zoom(0.5), "-": () => zoom(2), 0: reset, Escape: () => { reset(); }, ArrowRight: () => walk(1), ArrowLeft: () => walk(-1), ArrowDown: () => walk(1), ArrowUp: () => walk(-1) }[event.key];
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
      else show(told(view(), stop.layer, stop.index), drawn.place(stop.layer, stop.layer.points[stop.index])[0]);
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
    const near = (points) => points.reduce((best, p, i) => (Math.abs(p[0] - wanted) < Math.abs(points[best][0] - wanted) ? i : best), 0);
    const lead = pointed.find((layer) => layer.details.length > 1) ?? pointed.reduce((a, b) => (a.points.length >= b.points.length ? a : b));
    const at = lead.points[near(lead.points)][0];
    const rows = [], more = [];
    for (const layer of pointed) {
      let index = layer.points.findIndex((p) => p[0] === at);
      if (index < 0 && layer.kind === "step") index = layer.points.findLastIndex((p) => p[0] <= at);
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

  // -------------------------------------------------------------------------------------------------------- drawing with Plot
  function plot(view, layers, width, domain) {
    const bars = isBars(view);
    const xs = layers.flatMap((l) => (l.kind === "bar" ? l.points.flatMap((p) => [p[1], p[2]]) : l.kind === "across" ? [] : l.points.map((p) => p[0])));
    const inside = (p) => !domain || (p[0] >= domain[0] && p[0] <= domain[1]);
    const tops = stacked(layers);
    const ys = bars ? [] : layers.flatMap((l) => (l.kind === "area" ? tops.get(l).map((p) => p.y2) : l.kind === "across" ? [l.points[0][0]] : l.kind === "down" ? [] : l.points.filter(inside).map((p) => p[1])));
    const [xUnit, xSize] = scaleFor(view.x.unit, Math.max(...xs.map(Math.abs), 0));
    const [yUnit, ySize] = scaleFor(view.y.unit, Math.max(...ys.map(Math.abs), 0));
    const small = width < 520;
    // its label goes to the left of it where there is no room to the right
    const late = (layer) => layer.kind === "down" && layer.points[0][0] > Math.min(...xs) + 0.6 * (Math.max(...xs) - Math.min(...xs));
    const rows = bars ? [...new Map(layers.filter((l) => l.kind === "bar").flatMap((l) => l.points).sort((a, b) => a[3] - b[3]).map((p) => [p[0], p[3]])).keys()] : [];
    const most = small ? 15 : 34;
    const short = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const longest = Math.max(0, ...rows.map((text) => Math.min(text.length, most)));
    const label = (axis, unit) => (unit || axis.unit === "percent" ? `${axis.label} [${unit || "%"}]` : axis.label);
    const log = (axis) => (axis.log ? { type: "log" } : {});
    const options = {
      width,
      height: bars ? 78 + rows.length * 26 : small ? 280 : 380,
      marginLeft: bars ? 14 + longest * 6.6 : 52,
      marginRight: bars ? 80 : 18,
      insetLeft: bars && xs.some((x) => x < 0) ? 70 : 0,
      marginTop: 30,
      marginBottom: 40,
      style: { background: "transparent", color: "var(--quiet)" },
      x: { label: label(view.x, xUnit), labelArrow: "none", labelAnchor: "center", domain: domain ? domain.map((v) => v / xSize) : undefined, ticks: small ? 4 : 8, nice: false, ...log(view.x) },
      y: bars
        ? { label: null, domain: rows, tickFormat: short, tickSize: 0 }
        : { label: label(view.y, yUnit), labelArrow: "none", grid: true, zero: !view.y.log && layers.some((l) => ["area", "across"].includes(l.kind)), ticks: 6, nice: true, ...log(view.y) },
      marks: layers.flatMap((layer) => marks(layer, view, { xSize, ySize, tops, domain, bars, late: late(layer) })),
    };
    const big = (axis, size) => !axis.log && Math.max(...(axis === view.x ? xs : ys).map((v) => Math.abs(v / size)), 0) >= 1e4;
    if (big(view.x, xSize)) options.x.tickFormat = "~s";
    if (!bars && big(view.y, ySize)) options.y.tickFormat = "~s";
    if (view.x.log) Object.assign(options.x, logTicks(xs, xSize));
    if (view.y.log) Object.assign(options.y, logTicks(ys, ySize));
    const svg = Plot.plot(options);
    svg.setAttribute("aria-hidden", "true");
    const [x, y] = [svg.scale("x"), svg.scale("y")];
    const overlay = (tag) => svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    const cross = overlay("line"), band = overlay("rect");
    const height = options.height;
    return {
      svg,
      width,
      invert: (px) => (x.invert ? x.invert(px) * xSize : 0),
      x: (value) => x.apply(value / xSize),
      place: (layer, p) => (layer.kind === "bar" ? [x.apply(p[2] / xSize), y.apply(p[0]) + (y.bandwidth ?? 0) / 2] : [x.apply(p[0] / xSize), y.apply(p[1] / ySize)]),
      cross(value) {
        const at = value === null ? -9 : x.apply(value / xSize);
        for (const [name, text] of Object.entries({ x1: at, x2: at, y1: 26, y2: height - 40, stroke: "var(--quiet)", "stroke-dasharray": "2 3", class: "cross" })) cross.setAttribute(name, text);
        cross.style.display = value === null ? "none" : "";
      },
      band(a, b) {
        const size = a === null ? 0 : Math.abs(b - a);
        for (const [name, text] of Object.entries({ x: Math.min(a ?? 0, b ?? 0), y: 26, width: size, height: height - 66, fill: "var(--focus)", opacity: 0.15 })) band.setAttribute(name, text);
      },
    };
  }

  /** Few enough to be told apart: powers of ten, or of two within a decade or two. */
  function logTicks(values, size) {
    const [low, high] = [Math.min(...values) / size, Math.max(...values) / size];
    const base = high / low > 300 ? 10 : 2;
    const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9), last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
    const ticks = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => base ** (first + i));
    return { ticks, tickFormat: (v) => v.toLocaleString("en", { maximumSignificantDigits: 5, useGrouping: false }) };
  }

  /** Areas on top of each other, in the order they come. */
  function stacked(layers) {
    const below = new Map(), tops = new Map();
    for (const layer of layers.filter((one) => one.kind === "area")) {
      tops.set(layer, layer.points.map(([x, y]) => {
        const y1 = below.get(x) ?? 0;
        below.set(x, y1 + y);
        return { x, y1, y2: y1 + y };
      }));
    }
    return tops;
  }

  function marks(layer, view, { xSize, ySize, tops, domain, bars, late }) {
    const stroke = colour(layer);
    const clip = domain ? "frame" : undefined;
    const data = layer.points.map((p) => ({ x: p[0] / xSize, y: p[1] / ySize }));
    const dash = layer.dashed ? "5 4" : undefined;
    const inFrame = (value) => !domain || (value >= domain[0] && value <= domain[1]);
    switch (layer.kind) {
      case "area":
        return [Plot.areaY(tops.get(layer), { x: (d) => d.x / xSize, y1: (d) => d.y1 / ySize, y2: (d) => d.y2 / ySize, fill: stroke, fillOpacity: 0.85, curve: "step-after", clip })];
      case "line":
      case "step":
        return [Plot.lineY(data, { x: "x", y: "y", stroke, strokeWidth: layer.kind === "step" ? 1.6 : 2, strokeDasharray: dash, curve: layer.kind === "step" ? "step-after" : "linear", clip })];
      case "dot":
        return [
          Plot.dot(data.filter((d) => inFrame(d.x * xSize)), { x: "x", y: "y", r: data.length > 30 ? 3.5 : 5, fill: stroke, stroke: "var(--surface)", strokeWidth: 1 }),
          ...(layer.name === "peak" ? [Plot.text(data.filter((d) => inFrame(d.x * xSize)), { x: "x", y: "y", text: () => `peak ${shown(layer.points[0][1], view.y.unit)}`, dx: 10, textAnchor: "start", fill: stroke, stroke: "var(--surface)", strokeWidth: 4 })] : []),
        ];
      case "across":
        return [
          Plot.ruleY(layer.points, { y: (p) => p[0] / ySize, stroke, strokeWidth: 1.5, strokeDasharray: dash ?? "7 4" }),
          Plot.text(layer.points, { y: (p) => p[0] / ySize, frameAnchor: "right", text: () => `${layer.name} ${shown(layer.points[0][0], view.y.unit)}`, dy: -8, fill: stroke, stroke: "var(--surface)", strokeWidth: 4 }),
        ];
      case "down":
        return [
          Plot.ruleX(layer.points.filter((p) => inFrame(p[0])), { x: (p) => p[0] / xSize, stroke, strokeWidth: 1.5, strokeDasharray: "3 3" }),
          ...(bars ? [] : [Plot.text(layer.points.filter((p) => inFrame(p[0])), { x: (p) => p[0] / xSize, frameAnchor: "bottom", text: () => layer.name, dy: -6 - 15 * (view.layers.filter((l) => l.kind === "down").indexOf(layer)), ...(late ? { dx: -6, textAnchor: "end" } : { dx: 6, textAnchor: "start" }), fill: stroke, stroke: "var(--surface)", strokeWidth: 4 })]),
        ];
      case "bar": {
        const wide = layer.points.map((p) => ({ label: p[0], x1: p[1] / xSize, x2: p[2] / xSize, value: p[2], from: p[1] }));
        return [
          Plot.barX(wide, { x1: "x1", x2: "x2", y: "label", fill: stroke, rx: 3, insetTop: 3, insetBottom: 3 }),
          ...[["start", 6, (d) => d.value >= 0], ["end", -6, (d) => d.value < 0]].map(([textAnchor, dx, side]) =>
            Plot.text(wide.filter((d) => d.from === 0 && side(d)), { x: "x2", y: "label", text: (d) => shown(d.value, view.x.unit), textAnchor, dx, fill: "var(--ink)" })),
          Plot.ruleX([0], { stroke: "var(--line)" }),
        ];
      }
      default:
        return [];
    }
  }

  // ------------------------------------------------------------------------------------------------------------- calculators
  const operators = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "**": (a, b) => a ** b };
  function value(expression, knobs) {
    if (typeof expression === "number") return expression;
    if (typeof expression === "string") return knobs[expression];
    return operators[expression[0]](value(expression[1], knobs), value(expression[2], knobs));
  }

  function calculator(place, figure) {
    const knobs = { ...figure.fixed };
    const answer = make("p", { class: "answer", role: "status", "aria-live": "polite" });
    const sliders = make("div", { class: "sliders" });
    const rows = figure.gpus.map(([name, capacity]) => {
      const fill = make("i"), free = make("span", { class: "free" });
      const node = make("div", { class: "gpu", "data-gpu": name }, make("span", { text: name }), make("div", { class: "meter" }, fill), free);
      return { capacity, fill, free, node };
    });
    for (const one of figure.sliders) {
      const output = make("output", { text: String(one.value) });
      const input = make("input", { type: "range", min: one.smallest, max: one.largest, step: one.step, value: one.value, "aria-label": one.name });
      input.addEventListener("input", () => { knobs[one.name] = Number(input.value); output.textContent = Number(input.value).toLocaleString("en"); update(); });
      knobs[one.name] = one.value;
      sliders.append(make("label", {}, make("span", { text: one.name.replaceAll("_", " ") }), input, output));
    }
    function update() {
      const law = figure.terms.reduce((sum, [coefficient, expression]) => sum + coefficient * value(expression, knobs), 0);
      const bytes = Math.max(law, figure.floor_bytes) + figure.overhead_bytes;
      const [low, high] = figure.known_bytes;
      const beyond = bytes > high * 1.02 || bytes < low * 0.98 ? " · extrapolated: no size like it was simulated or run" : "";
      answer.replaceChildren(`${shown(bytes, "bytes")} reserved`, make("small", { text: beyond }));
      answer.dataset.bytes = String(Math.round(bytes));
      for (const row of rows) {
        const share = bytes / row.capacity;
        row.fill.style.width = `${Math.min(100, 100 * share)}%`;
        row.node.classList.toggle("full", share > 1);
        row.free.textContent = share > 1 ? `${shown(bytes - row.capacity, "bytes")} too much` : `${shown(row.capacity - bytes, "bytes")} free`;
      }
    }
    place.append(place.parentNode.querySelector("h3"), sliders, answer, make("div", { class: "gpus" }, ...rows.map((row) => row.node)));
    update();
  }

  document.querySelectorAll("figure[data-figure]").forEach((node) => {
    const figure = figures[Number(node.dataset.figure)];
    const place = make("div");
    node.insertBefore(place, node.querySelector("figcaption"));
    (figure.kind === "calculator" ? calculator : chart)(place, figure);
  });
})();
