"use strict";
// Bars in rows: their labels, the bars, limits in their rows, and numbers beside them.

/** The labels of bars, each once, by rank. */
function rowLabels(layers) {
  const points = layers.filter((layer) => layer.kind === "bar").flatMap((layer) => layer.points);
  return [...new Set(points.sort((a, b) => a[3] - b[3]).map((point) => point[0]))];
}

function rowOptions(rows, mostCharacters) {
  const short = (text) =>
    text.length > mostCharacters ? `${text.slice(0, mostCharacters - 1)}…` : text;
  return { label: null, domain: rows, tickFormat: short, tickSize: 0 };
}

/** In the row of a bar. */
function limitMarks(layer, { xSize }) {
  const at = { x: (point) => point[1] / xSize, y: (point) => point[0] };
  const tick = (stroke, strokeWidth) => Plot.tickX(layer.points, { ...at, stroke, strokeWidth });
  return [tick("var(--surface)", 6), tick(colour(layer), 2)]; // to be seen over a bar of its colour
}

/** Whether a bar that begins at zero, or on one that does, is the last of its row. */
function endsRow(layers) {
  const points = layers.filter((one) => one.kind === "bar").flatMap((one) => one.points);
  const [begins, tops] = [1, 2].map((i) => new Set(points.map((p) => `${p[0]} ${p[i]}`)));
  return ({ label, from, to }) =>
    (from === 0 || tops.has(`${label} ${from}`)) && !begins.has(`${label} ${to}`);
}

function barMarks(layer, scene) {
  const inRow = { y: "label", rx: 3, insetTop: 3, insetBottom: 3 };
  const bars = Plot.barX(barData(layer, scene), {
    x1: "x1",
    x2: "x2",
    fill: colour(layer),
    ...inRow,
  });
  return [bars, Plot.ruleX([0], { stroke: "var(--line)" })];
}

function barData(layer, { xSize }) {
  return layer.points.map(([label, from, to]) => {
    return { label, from, to, x1: from / xSize, x2: to / xSize };
  });
}

/** The end of a bar, or the limit of its row where that would go through the bar's number. */
function besideLimit(bar, end, text, { layers, xs, xSize, inner }) {
  const perPixel = (Math.max(...xs, 0) - Math.min(...xs, 0)) / xSize / inner;
  const isIn = (limit) => limit >= end && limit < end + (7 * text.length + 8) * perPixel;
  const limits = layers.filter((layer) => layer.kind === "limit").flatMap((one) => one.points);
  const own = limits.filter(([label]) => label === bar.label).map((point) => point[1] / xSize);
  return Math.max(end, ...own.filter(isIn));
}

/** Of what is whole its size, of what goes down the difference; over everything else. */
function barNumbers(layer, scene) {
  const { unit } = scene.view.x;
  const ends = endsRow(scene.layers);
  const data = barData(layer, scene);
  const isFall = (bar) => bar.from > bar.to && bar.to > 0;
  const text = (bar) => (isFall(bar) ? `−${shown(bar.from - bar.to, unit)}` : shown(bar.to, unit));
  const x = (bar) => besideLimit(bar, Math.max(bar.x1, bar.x2), text(bar), scene);
  const place = { y: "label", text, ...readable("var(--ink)") };
  const numbered = data.filter((bar) => isFall(bar) || ends(bar));
  const [left, right] = [(bar) => bar.to < 0, (bar) => bar.to >= 0].map((is) =>
    numbered.filter(is),
  );
  return [
    Plot.text(right, { ...place, x, textAnchor: "start", dx: 6 }),
    Plot.text(left, { ...place, x: "x2", textAnchor: "end", dx: -6 }),
  ];
}
