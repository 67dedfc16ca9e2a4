"use strict";
// Numbers as text, and elements with text in them. All text goes in as text, never as markup.

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
  if (unit === "percent") return `${value > 0 ? "+" : ""}${value.toFixed(Math.abs(value) < 10 ? 3 : 1)} %`;
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
