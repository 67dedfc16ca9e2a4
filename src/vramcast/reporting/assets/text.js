"use strict";
// Numbers as text, and elements with text in them. Text goes in as text, never as markup.

const SCALES = {
  bytes: [
    ["PiB", 2 ** 50],
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
    ["B", 1],
  ],
  seconds: [
    ["h", 3600],
    ["min", 60],
    ["s", 1],
    ["ms", 1e-3],
    ["µs", 1e-6],
  ],
};

/** The name and the size of the unit in which a value of this size is written. */
function scaleFor(unit, value) {
  const scale = SCALES[unit];
  if (!scale) return ["", 1];
  // A time a little below a unit is still written in it: 0.95 s.
  const share = unit === "bytes" ? 1 : 0.9;
  return scale.find(([, size]) => Math.abs(value) >= size * share) ?? scale[scale.length - 1];
}

/** A value as a person reads it. */
function shown(value, unit) {
  if (typeof value !== "number") return String(value);
  if (unit === "percent") {
    return `${value > 0 ? "+" : ""}${value.toFixed(Math.abs(value) < 1 ? 3 : 1)} %`;
  }
  if (SCALES[unit]) {
    const [name, size] = scaleFor(unit, value);
    const digits = { maximumFractionDigits: 2, minimumFractionDigits: name === "B" ? 0 : 2 };
    return `${(value / size).toLocaleString("en", digits)} ${name}`;
  }
  const maximumSignificantDigits = Math.abs(value) < 1e4 ? 5 : 12;
  return value.toLocaleString("en", { maximumSignificantDigits });
}

/** An element; `text`, `class` and `on...` are what they say, anything else is an attribute. */
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
