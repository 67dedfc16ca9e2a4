"use strict";
// Pieces of a chart: each lies on those that came before it, from where it begins to where it ends,
// and comes down when one below it ends. What is too small to be one lies on top of all.

const PIECE_SHADES = [1, 0.9, 0.8]; // so that neighbours of one colour can be told apart
const REST_SHADE = 0.55;
const THINNEST_WITH_RIM = 4; // pixels
const LETTER_WIDTH = 6.4;
const LETTER_HEIGHT = 15;

/** Where every piece lies: `steps` are [x, height of its lower edge]; `tops` are [x, height] of
 * all, and `rest` has [x, lower, upper] for each layer of what is small. */
function piled(layers) {
  const pieces = layers.filter((layer) => layer.kind === "piece").flatMap(piecesOf);
  pieces.sort((a, b) => a.rank - b.rank);
  const changes = new Map();
  for (const piece of pieces.filter((one) => one.to > one.from)) {
    changesAt(changes, piece.from).made.push(piece);
    changesAt(changes, piece.to).freed.add(piece);
  }
  let alive = [];
  const tops = [];
  for (const [x, { made, freed }] of [...changes].sort((a, b) => a[0] - b[0])) {
    alive = alive.filter((piece) => !freed.has(piece)).concat(made);
    alive.sort((a, b) => a.rank - b.rank);
    let height = 0;
    for (const piece of alive) {
      const last = piece.steps[piece.steps.length - 1];
      if (!last || last[1] !== height) piece.steps.push([x, height]);
      height += piece.height;
    }
    tops.push([x, height]);
  }
  const drawn = pieces.filter((piece) => piece.steps.length);
  const rest = new Map();
  let below = tops;
  for (const layer of layers.filter((one) => one.kind === "rest")) {
    rest.set(layer, onTop(below, layer.points));
    below = rest.get(layer).map(([x, , upper]) => [x, upper]);
  }
  return { pieces: drawn, tops: below, rest };
}

const piecesOf = (layer) =>
  layer.points.map(([from, to, height, rank, label], index) => {
    return { layer, index, from, to, height, rank, label, steps: [] };
  });

function changesAt(changes, x) {
  if (!changes.has(x)) changes.set(x, { made: [], freed: new Set() });
  return changes.get(x);
}

/** [x, lower, upper] wherever the pile or what lies on it changes. */
function onTop(tops, points) {
  const xs = [...new Set([...tops, ...points].map((point) => point[0]))].sort((a, b) => a - b);
  let [top, next] = [0, 0];
  return xs.map((x) => {
    while (top + 1 < tops.length && tops[top + 1][0] <= x) top += 1;
    while (next + 1 < points.length && points[next + 1][0] <= x) next += 1;
    const lower = tops.length && tops[top][0] <= x ? tops[top][1] : 0;
    return [x, lower, lower + (points[next]?.[1] ?? 0)];
  });
}

function pieceMarks(layer, scene) {
  const own = scene.pile.pieces.filter((piece) => piece.layer === layer);
  return [(_, scales) => pieceGroup(own, scales, scene)];
}

function pieceGroup(pieces, { x, y }, scene) {
  const group = svgNode("g");
  setAll(group, { fill: colour(pieces[0]?.layer ?? {}), "aria-label": "pieces" });
  for (const piece of pieces) {
    const stretches = stretchesOf(piece, scene);
    if (!stretches.length) continue;
    const path = group.appendChild(svgNode("path"));
    const shade = PIECE_SHADES[piece.rank % PIECE_SHADES.length];
    setAll(path, { d: outline(stretches, piece.height, x, y, scene), "fill-opacity": shade });
    // A rim would cover what is as thin as the rim.
    const isTall = y(0) - y(piece.height / scene.ySize) > THINNEST_WITH_RIM;
    setAll(path, { class: isTall ? "piece tall" : "piece", "data-rank": piece.rank });
    const name = labelIn(piece, stretches, x, y, scene);
    if (name) group.append(name);
  }
  return group;
}

/** [from, to, lower edge] where the piece lies flat, of what is shown. */
function stretchesOf(piece, { domain }) {
  const [low, high] = domain ?? [-Infinity, Infinity];
  const ends = [...piece.steps.slice(1).map((step) => step[0]), piece.to];
  return piece.steps
    .map(([x, height], index) => [Math.max(x, low), Math.min(ends[index], high), height])
    .filter(([from, to]) => to > from);
}

function outline(stretches, height, x, y, { xSize, ySize }) {
  const at = (value, edge) => `${x(value / xSize).toFixed(1)},${y(edge / ySize).toFixed(1)}`;
  const lower = stretches.flatMap(([from, to, edge]) => [at(from, edge), at(to, edge)]);
  const upper = stretches
    .toReversed()
    .flatMap(([from, to, edge]) => [at(to, edge + height), at(from, edge + height)]);
  return `M${lower.join("L")}L${upper.join("L")}Z`;
}

/** Its name, where it lies flat for long enough to hold it. */
function labelIn(piece, stretches, x, y, { xSize, ySize }) {
  const longest = d3.greatest(stretches, ([from, to]) => to - from);
  const [left, right] = longest.slice(0, 2).map((value) => x(value / xSize));
  const [bottom, top] = [longest[2], longest[2] + piece.height].map((value) => y(value / ySize));
  const letters = Math.floor((right - left - 8) / LETTER_WIDTH);
  if (bottom - top < LETTER_HEIGHT || letters < 6 || !piece.label) return null;
  const text = svgNode("text");
  setAll(text, { x: left + 4, y: (top + bottom) / 2 + 4, class: "piece-label" });
  text.textContent =
    piece.label.length > letters ? `${piece.label.slice(0, letters - 1)}…` : piece.label;
  return text;
}

function restMarks(layer, scene) {
  const { pile, xSize, ySize } = scene;
  const channels = {
    x: (point) => point[0] / xSize,
    y1: (point) => point[1] / ySize,
    y2: (point) => point[2] / ySize,
  };
  const style = { fill: colour(layer), fillOpacity: REST_SHADE, curve: "step-after" };
  return [Plot.areaY(pile.rest.get(layer), { ...channels, ...style, clip: clipOf(scene) })];
}

/** The piece that lies there, or what lies on top of all; null beside them. */
function pieceAt(pile, x, height) {
  const found = pile.pieces.find((piece) => {
    if (x < piece.from || x >= piece.to) return false;
    const lower = edgeAt(piece, x);
    return height >= lower && height < lower + piece.height;
  });
  if (found) return found;
  for (const [layer, points] of pile.rest) {
    const [, lower, upper] = points.findLast((point) => point[0] <= x) ?? [0, 0, 0];
    if (height >= lower && height < upper) return { layer, rest: upper - lower };
  }
  return null;
}

const edgeAt = (piece, x) => (piece.steps.findLast((step) => step[0] <= x) ?? [0, 0])[1];

/** The middle of its longest flat stretch that is shown; null where none is. */
function middleOf(piece, scene) {
  const longest = d3.greatest(stretchesOf(piece, scene), ([from, to]) => to - from);
  return longest ? [(longest[0] + longest[1]) / 2, longest[2] + piece.height / 2] : null;
}

/** Tells about the piece at a place, and outlines it; over nothing, all that is at this x. */
function lookAtPiece(one, x, y) {
  const { drawn } = one.state;
  const [at, height] = [drawn.invert(x), drawn.invertY(y)];
  const piece = pieceAt(drawn.scene.pile, at, height);
  outlinePiece(one, "pointed", piece?.rank);
  showTip(one, piece ? pieceTold(one, piece) : pileTold(one, Math.round(at)), x, y);
}

/** Above the pile: how high it is. */
function pileTold(one, at) {
  const { y } = one.view();
  const { pile } = one.state.drawn.scene;
  const top = pile.tops.findLast((point) => point[0] <= at);
  if (!top) return null;
  const texts = [`event ${shown(at, "number")}`, `${shown(top[1], y.unit)} allocated`];
  const [head, line] = texts;
  return { at, cross: at, nodes: [make("b", { text: head }), textLine(line)], beside: true };
}

function pieceTold(one, piece) {
  const { unit } = one.view().y;
  if (piece.rest) {
    const text = `${shown(piece.rest, unit)} ${piece.layer.name}: smaller ones together`;
    return { nodes: [make("b", { text })], beside: true };
  }
  const [first, ...lines] = piece.layer.details[piece.index] ?? [shown(piece.height, unit)];
  const nodes = [make("b", { text: first }), ...lines.map(textLine)];
  return { at: (piece.from + piece.to) / 2, nodes, beside: true };
}

function outlinePiece(one, name, rank) {
  one.box.querySelectorAll(`.piece.${name}`).forEach((path) => path.classList.remove(name));
  if (rank === undefined) return;
  const path = one.box.querySelector(`.piece[data-rank="${rank}"]`);
  path?.classList.add(name);
}

/** Goes to the piece made before or after, or to the one above or below. */
function walkPieces(one, key) {
  const { state } = one;
  const { pile } = state.drawn.scene;
  const seen = pile.pieces.filter((piece) => middleOf(piece, state.drawn.scene));
  if (!seen.length) return;
  const now = seen.findIndex((piece) => piece.rank === state.stop);
  const next = now < 0 ? seen[0] : neighbour(seen, now, key, state.drawn.scene);
  state.stop = next.rank;
  const [x, height] = middleOf(next, state.drawn.scene);
  outlinePiece(one, "pointed", next.rank);
  showTip(one, pieceTold(one, next), state.drawn.x(x), state.drawn.y(height));
}

function neighbour(pieces, now, key, scene) {
  const way = ["ArrowRight", "ArrowUp"].includes(key) ? 1 : -1;
  if (["ArrowLeft", "ArrowRight"].includes(key)) {
    return pieces[Math.max(0, Math.min(pieces.length - 1, now + way))];
  }
  const [x] = middleOf(pieces[now], scene);
  const column = pieces.filter((piece) => piece.from <= x && x < piece.to);
  return column[column.indexOf(pieces[now]) + way] ?? pieces[now];
}

/** Keeps a piece outlined, and says below the chart who made it, when, and when it is freed. */
function choosePiece(one, rank) {
  const { state } = one;
  const piece = state.drawn.scene.pile.pieces.find((each) => each.rank === rank);
  state.chosen = piece ? rank : null;
  if (piece) hideTip(one);
  outlinePiece(one, "chosen", piece?.rank);
  one.below.replaceChildren(...(piece ? [chosenPanel(one, piece)] : [PIECE_HINT]));
}

const PIECE_HINT =
  "Point at an area to see what it is, or walk with the arrow keys. " +
  "A click or Enter says when it was made and freed.";

function chosenPanel(one, piece) {
  const facts = Object.entries(piece.layer.more[piece.index] ?? {});
  const swatch = make("span", { class: "swatch", style: `background:${colour(piece.layer)}` });
  const head = `${shown(piece.height, one.view().y.unit)} ${piece.layer.name} ${piece.label}`;
  const rows = facts.map(([name, text]) =>
    make("div", {}, make("dt", { text: name }), make("dd", { text })),
  );
  return make("div", { class: "chosen" }, make("b", {}, swatch, head), make("dl", {}, ...rows));
}

/** What does not have the text fades; below the chart stands how much has it. */
function findPieces(one) {
  const { pieces } = one.state.drawn.scene.pile;
  const wanted = one.find.value.trim().toLowerCase();
  const found = pieces.filter((piece) => textOf(piece).includes(wanted));
  const ranks = new Set(found.map((piece) => piece.rank));
  one.box.querySelectorAll(".piece").forEach((path) => {
    path.classList.toggle("faded", !ranks.has(Number(path.dataset.rank)));
  });
  if (!wanted) return choosePiece(one, one.state.chosen);
  const most = shown(mostAtOnce(found), one.view().y.unit);
  one.below.textContent = `${found.length} of ${pieces.length} have it: at most ${most} at once`;
}

const textOf = (piece) =>
  [piece.label, ...(piece.layer.details[piece.index] ?? [])].join("\n").toLowerCase();

function mostAtOnce(pieces) {
  const at = (x) => pieces.filter((piece) => piece.from <= x && x < piece.to);
  return d3.max(pieces, (each) => d3.sum(at(each.from), (piece) => piece.height)) ?? 0;
}
