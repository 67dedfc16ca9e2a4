"use strict";
// One view of a chart as SVG, drawn with Observable Plot. Pointer and keys are in charts.js.

const MARGIN_TOP = 48;
const BARS_TOP = 10;
const MARGIN_BOTTOM = 40;
const ROW_HEIGHT = 26;
const NARROW_WIDTH = 520; // below this there is room for fewer ticks and shorter labels
const isFilling = (layer) => ["area", "piece"].includes(layer.kind);
const isBars = (view) => view.layers.some((layer) => layer.kind === "bar");

/** Draws the layers and returns the SVG with functions that turn pixels into values and back. */
function plot(view, layers, width, domain) {
  const scene = measured(view, layers, width, domain);
  const options = plotOptions(scene);
  const svg = Plot.plot(options);
  svg.setAttribute("aria-hidden", "true");
  // Without a layer there is no scale.
  const [x, y] = ["x", "y"].map((name) => svg.scale(name) ?? { apply: () => 0, invert: () => 0 });
  const { xSize, ySize } = scene;
  const cross = svg.appendChild(svgNode("line"));
  const band = svg.appendChild(svgNode("rect"));
  const [top, bottom] = [options.marginTop - 4, options.height - MARGIN_BOTTOM];
  return {
    svg,
    width,
    scene,
    inside(event) {
      const at = svg.getBoundingClientRect();
      const ratio = width / at.width;
      return [(event.clientX - at.left) * ratio, (event.clientY - at.top) * ratio];
    },
    invert: (pixel) => (x.invert ? x.invert(pixel) * xSize : 0),
    invertY: (pixel) => (y.invert ? y.invert(pixel) * ySize : 0),
    x: (value) => x.apply(value / xSize),
    y: (value) => y.apply(value / ySize),
    place(layer, point) {
      if (layer.kind !== "bar") return [x.apply(point[0] / xSize), y.apply(point[1] / ySize)];
      return [x.apply(point[2] / xSize), y.apply(point[0]) + (y.bandwidth ?? 0) / 2];
    },
    /** The line down through everything that is pointed at; null hides it. */
    cross(value) {
      cross.style.display = value === null ? "none" : "";
      const at = value === null ? 0 : x.apply(value / xSize);
      setAll(cross, { x1: at, x2: at, y1: top, y2: bottom, class: "cross" });
      setAll(cross, { stroke: "var(--quiet)", "stroke-dasharray": "2 3" });
    },
    /** The stretch that is being dragged over; null hides it. */
    band(from, to) {
      const [left, size] = from === null ? [0, 0] : [Math.min(from, to), Math.abs(to - from)];
      setAll(band, { x: left, y: top, width: size, height: Math.max(0, bottom - top) });
      setAll(band, { fill: "var(--focus)", opacity: 0.15 });
    },
  };
}

function svgNode(tag) {
  return document.createElementNS("http://www.w3.org/2000/svg", tag);
}

function setAll(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

/** Everything that the options and marks of a drawing depend on. */
function measured(view, layers, width, domain) {
  const bars = isBars(view);
  const tops = stacked(layers);
  const pile = piled(layers);
  const inDomain = (value) => !domain || (value >= domain[0] && value <= domain[1]);
  const xs = layers.flatMap(xValues);
  const isNear = domain !== null && pile.pieces.length > 0; // then the pieces fill the height
  const ys = bars || isNear ? [] : layers.flatMap((layer) => yValues(layer, tops, inDomain));
  ys.push(...pile.tops.filter(([x]) => inDomain(x)).map((point) => point[1]));
  const [xUnit, xSize] = scaleFor(view.x.unit, largest(xs));
  const [yUnit, ySize] = scaleFor(view.y.unit, largest(ys));
  const narrow = width < NARROW_WIDTH;
  const rows = bars ? rowLabels(layers) : [];
  return {
    view,
    layers,
    width,
    domain,
    bars,
    tops,
    pile,
    isNear,
    inDomain,
    xs,
    ys,
    xUnit,
    xSize,
    yUnit,
    ySize,
    narrow,
    rows,
  };
}

const largest = (values) => Math.max(0, ...values.map(Math.abs));

function xValues(layer) {
  if (layer.kind === "across") return [];
  if (layer.kind === "band") return layer.points.flat();
  if (layer.kind === "piece") return layer.points.flatMap((point) => point.slice(0, 2));
  if (["bar", "limit"].includes(layer.kind)) return layer.points.flatMap((p) => [p[1], p[2]]);
  return layer.points.map((point) => point[0]);
}

function yValues(layer, tops, inDomain) {
  if (layer.kind === "area") return tops.get(layer).map((point) => point.y2);
  if (layer.kind === "across") return [layer.points[0][0]];
  if (["band", "down", "piece", "rest"].includes(layer.kind)) return [];
  return layer.points.filter((point) => inDomain(point[0])).map((point) => point[1]);
}

/** Areas on top of each other, in the order they come. */
function stacked(layers) {
  const heights = new Map();
  const tops = new Map();
  for (const layer of layers.filter((one) => one.kind === "area")) {
    const points = layer.points.map(([x, y]) => {
      const y1 = heights.get(x) ?? 0;
      heights.set(x, y1 + y);
      return { x, y1, y2: y1 + y };
    });
    tops.set(layer, points);
  }
  return tops;
}

function plotOptions(scene) {
  const { view, layers, width, bars, narrow, rows, xs } = scene;
  const mostCharacters = narrow ? 15 : width < 800 ? 30 : 44;
  const longest = Math.max(0, ...rows.map((text) => Math.min(text.length, mostCharacters)));
  // Bars that begin at zero have their number beside them.
  const numbered =
    bars && layers.some((layer) => layer.kind === "bar" && layer.points.some((p) => p[1] === 0));
  const sides = {
    marginLeft: bars ? 14 + longest * 7 : 52,
    marginRight: numbered ? (narrow ? 76 : 84) : 18,
    insetLeft: numbered && xs.some((x) => x < 0) ? (narrow ? 62 : 70) : 0,
  };
  scene.inner = width - sides.marginLeft - sides.marginRight - sides.insetLeft;
  const plainHeight = (narrow ? 280 : 380) + (scene.pile.pieces.length ? 80 : 0);
  return {
    width,
    height: bars ? BARS_TOP + MARGIN_BOTTOM + rows.length * ROW_HEIGHT : plainHeight,
    ...sides,
    marginTop: bars ? BARS_TOP : MARGIN_TOP,
    marginBottom: MARGIN_BOTTOM,
    style: { background: "transparent", color: "var(--quiet)" },
    x: xOptions(scene),
    y: bars ? rowOptions(rows, mostCharacters) : yOptions(scene),
    marks: [
      ...layers.flatMap((layer) => MARKS[layer.kind](layer, scene)),
      ...layers.filter((layer) => layer.kind === "bar").flatMap((bar) => barNumbers(bar, scene)),
    ],
  };
}

function xOptions({ view, xs, xUnit, xSize, domain, bars, narrow, pile, inner }) {
  const options = {
    label: axisLabel(view.x, xUnit),
    labelArrow: "none",
    labelAnchor: "center",
    domain: domain ? domain.map((value) => value / xSize) : pileDomain(pile, xs, xSize),
    ticks: bars ? Math.min(8, Math.max(2, Math.floor(inner / 60))) : narrow ? 4 : 8,
    nice: false,
  };
  return { ...options, ...tickOptions(view.x, xs, xSize, domain) };
}

/** Pieces draw themselves, so Plot does not know how far they reach. */
function pileDomain(pile, values, size, low = Math.min(...values)) {
  return pile.pieces.length ? [low / size, Math.max(...values) / size] : undefined;
}

/** Around values that are all the same, which have no range of their own. */
function levelDomain({ log }, values, size, isFromZero) {
  const [low, high] = d3.extent(values);
  if (low !== high || low === undefined || isFromZero || log) return undefined;
  const room = Number.isInteger(low) ? 1 : Math.abs(low) / 10;
  return [(low - room) / size, (low + room) / size];
}

function yOptions({ view, layers, ys, yUnit, ySize, pile }) {
  const isFilled = layers.some((layer) => ["area", "across"].includes(layer.kind));
  const isFromZero = !view.y.log && (isFilled || view.y.unit === "bytes");
  const options = {
    label: axisLabel(view.y, yUnit),
    labelArrow: "none",
    grid: true,
    domain: pileDomain(pile, ys, ySize, 0) ?? levelDomain(view.y, ys, ySize, isFromZero),
    zero: isFromZero,
    ticks: 6,
    nice: !view.y.log,
  };
  return { ...options, ...tickOptions(view.y, ys, ySize) };
}

function axisLabel(axis, unit) {
  const shownUnit = axis.unit === "percent" ? "%" : unit;
  return shownUnit ? `${axis.label} [${shownUnit}]` : axis.label;
}

function tickOptions(axis, values, size, domain) {
  if (axis.log) return { type: "log", base: 2, ...logTicks(values, size) };
  const isZero = (value) => value === 0; // "0k" otherwise
  if (largest(values) / size >= 1e4) {
    return { tickFormat: (value) => (isZero(value) ? "0" : d3.format("~s")(value)) };
  }
  return axis.unit === "number" ? wholeTicks(values, domain) : {};
}

/** Counts such as steps and batch sizes have no ticks between two whole numbers. */
function wholeTicks(values, domain) {
  const [low, high] = domain ?? [Math.min(...values), Math.max(...values)];
  if (!values.every(Number.isInteger)) return {};
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const gap = d3.min(d3.pairs(distinct, (a, b) => b - a)) ?? 1;
  const isFew = distinct.length < 5 && gap >= (high - low) / 5;
  if (!domain && isFew) return { ticks: distinct, tickFormat: ",d" };
  if (high - low > 6) return {};
  return { ticks: d3.range(Math.ceil(low), Math.floor(high) + 1), tickFormat: "d" };
}

/** Few enough to be told apart: powers of ten, or of two within a decade or two. */
function logTicks(values, size) {
  const [low, high] = [Math.min(...values) / size, Math.max(...values) / size];
  const base = high / low > 300 ? 10 : 2;
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  const powers = d3.range(first, last + 1).map((power) => base ** power);
  const ticks = powers.length > 2 || low === high ? powers : d3.ticks(low, high, 5);
  const format = { maximumSignificantDigits: 5, useGrouping: false };
  return { ticks, tickFormat: (value) => value.toLocaleString("en", format) };
}

/** Text with a rim in the colour of the page, so that it can be read over lines. */
const readable = (fill) => ({ fill, stroke: "var(--surface)", strokeWidth: 4 });

const MARKS = {
  area: areaMarks,
  line: lineMarks,
  step: lineMarks,
  dot: dotMarks,
  across: acrossMarks,
  down: downMarks,
  bar: barMarks,
  band: bandMarks,
  limit: limitMarks,
  piece: pieceMarks,
  rest: restMarks,
};

function scaledPoints(layer, { xSize, ySize }) {
  return layer.points.map((point) => ({ x: point[0] / xSize, y: point[1] / ySize }));
}

const clipOf = (scene) => (scene.domain ? "frame" : undefined);

function areaMarks(layer, scene) {
  const { tops, xSize, ySize } = scene;
  const channels = { x: (d) => d.x / xSize, y1: (d) => d.y1 / ySize, y2: (d) => d.y2 / ySize };
  const style = { fill: colour(layer), fillOpacity: 0.85, curve: "step-after" };
  return [Plot.areaY(tops.get(layer), { ...channels, ...style, clip: clipOf(scene) })];
}

function lineMarks(layer, scene) {
  const isStep = layer.kind === "step";
  const style = {
    stroke: colour(layer),
    strokeWidth: isStep ? 1.6 : 2,
    strokeDasharray: layer.dashed ? "5 4" : undefined,
    curve: isStep ? "step-after" : "linear",
  };
  const points = scaledPoints(layer, scene);
  const line = Plot.lineY(points, { x: "x", y: "y", ...style, clip: clipOf(scene) });
  // One point is no line.
  return points.length > 1
    ? [line]
    : [line, Plot.dot(points, { x: "x", y: "y", fill: colour(layer) })];
}

function dotMarks(layer, scene) {
  const data = scaledPoints(layer, scene).filter((point) => scene.inDomain(point.x * scene.xSize));
  const r = data.length > 30 ? 3.5 : 5;
  const dots = Plot.dot(data, {
    x: "x",
    y: "y",
    r,
    fill: colour(layer),
    stroke: "var(--surface)",
    strokeWidth: 1,
  });
  if (layer.name !== "peak") return [dots];
  const text = `peak ${shown(layer.points[0][1], scene.view.y.unit)}`;
  const place = { x: "x", y: "y", ...sideOf(layer.points[0][0], scene, 10) };
  return [dots, Plot.text(data, { ...place, text: () => text, ...readable(colour(layer)) })];
}

/** Over the whole height, behind what is drawn after it. */
function bandMarks(layer, scene) {
  const { xSize, xs, domain, width } = scene;
  const [low, high] = domain ?? [Math.min(...xs), Math.max(...xs)];
  const seen = layer.points
    .map(([from, to]) => [Math.max(from, low), Math.min(to, high)])
    .filter(([from, to]) => to > from);
  const [x1, x2] = [(point) => point[0] / xSize, (point) => point[1] / xSize];
  const style = { fill: colour(layer), fillOpacity: 0.13 };
  const room = (point) => ((point[1] - point[0]) / (high - low)) * (width - 70);
  const isFilled = scene.layers.some(isFilling);
  const named = seen.filter((point) => isFilled && room(point) > 7 * layer.name.length);
  const x = (point) => (point[0] + point[1]) / 2 / xSize;
  const place = { x, frameAnchor: "top", dy: -22, text: () => layer.name };
  return [
    Plot.rect(seen, { x1, x2, ...style }),
    Plot.text(named, { ...place, fill: "var(--quiet)" }),
  ];
}

/** The end of a line across at which nothing is drawn near it. */
function clearSide(level, { layers, xs, ys }) {
  const [low, high] = d3.extent(xs);
  const drawn = layers.filter((layer) => ["dot", "line", "step"].includes(layer.kind));
  const near = drawn
    .flatMap((layer) => layer.points)
    .filter((point) => Math.abs(point[1] - level) < largest(ys) / 8)
    .map((point) => (point[0] - low) / (high - low));
  const isRight = near.some((share) => share > 0.6);
  return isRight && !near.some((share) => share < 0.4) ? "left" : "right";
}

function acrossMarks(layer, scene) {
  const { view, ySize, ys, isNear } = scene;
  if (isNear && layer.points[0][0] > largest(ys)) return [];
  const y = (point) => point[0] / ySize;
  const text = `${layer.name} ${shown(layer.points[0][0], view.y.unit)}`;
  const line = {
    stroke: colour(layer),
    strokeWidth: 1.5,
    strokeDasharray: layer.dashed ? "5 4" : "7 4",
  };
  const place = { y, frameAnchor: clearSide(layer.points[0][0], scene), dy: -8 };
  return [
    Plot.ruleY(layer.points, { y, ...line }),
    Plot.text(layer.points, { ...place, text: () => text, ...readable(colour(layer)) }),
  ];
}

/** A label goes to the left of what has no room to its right. */
function sideOf(x, { xs, domain }, dx) {
  const [low, high] = domain ?? [Math.min(...xs), Math.max(...xs)];
  const isLate = x > low + 0.6 * (high - low);
  return isLate ? { dx: -dx, textAnchor: "end" } : { dx, textAnchor: "start" };
}

function downMarks(layer, scene) {
  const { view, xSize, bars } = scene;
  const points = layer.points.filter((point) => scene.inDomain(point[0]));
  const x = (point) => point[0] / xSize;
  const rule = Plot.ruleX(points, {
    x,
    stroke: colour(layer),
    strokeWidth: 1.5,
    strokeDasharray: "3 3",
  });
  if (bars) return [rule];
  const side = sideOf(layer.points[0][0], scene, 6);
  // Labels of several lines stand one above the other.
  const height = view.layers.filter((one) => one.kind === "down").indexOf(layer);
  const place = { x, frameAnchor: "bottom", dy: -6 - 15 * height, ...side };
  return [
    rule,
    Plot.text(points, { ...place, text: () => layer.name, ...readable(colour(layer)) }),
  ];
}
