"use strict";
// One view of a chart as SVG, with Observable Plot. Nothing here knows of the pointer or of keys.

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
  const written = bars && layers.some((l) => l.kind === "bar" && l.points.some((p) => p[1] === 0)); // numbers beside bars
  const most = small ? 15 : 34;
  const short = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const longest = Math.max(0, ...rows.map((text) => Math.min(text.length, most)));
  const label = (axis, unit) => (unit || axis.unit === "percent" ? `${axis.label} [${unit || "%"}]` : axis.label);
  const log = (axis) => (axis.log ? { type: "log", base: 2 } : {});
  const options = {
    width,
    height: bars ? 78 + rows.length * 26 : small ? 280 : 380,
    marginLeft: bars ? 14 + longest * 6.6 : 52,
    marginRight: written ? (small ? 66 : 80) : 18,
    insetLeft: written && xs.some((x) => x < 0) ? (small ? 48 : 70) : 0,
    marginTop: 30,
    marginBottom: 40,
    style: { background: "transparent", color: "var(--quiet)" },
    x: { label: label(view.x, xUnit), labelArrow: "none", labelAnchor: "center", domain: domain ? domain.map((v) => v / xSize) : undefined, ticks: small ? (bars ? 3 : 4) : 8, nice: false, ...log(view.x) },
    y: bars
      ? { label: null, domain: rows, tickFormat: short, tickSize: 0 }
      : { label: label(view.y, yUnit), labelArrow: "none", grid: true, zero: !view.y.log && layers.some((l) => ["area", "across"].includes(l.kind)), ticks: 6, nice: !view.y.log, ...log(view.y) },
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
    inside(event) {
      const at = svg.getBoundingClientRect();
      return [(event.clientX - at.left) * (width / at.width), (event.clientY - at.top) * (width / at.width)];
    },
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
