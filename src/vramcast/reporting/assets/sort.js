"use strict";
// The rows of a table in another order: a heading is a button.

const LEAST_ROWS = 4; // fewer are seen at a glance
const UNITS = {
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
  "µs": 1e-6,
  ms: 1e-3,
  min: 60,
  h: 3600,
  K: 1e3,
  M: 1e6,
};
const NUMBER = /^~?([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)x?(?:\s*([a-zA-Zµ]+))?/;

/** The number that a cell begins with, in the smallest unit; null where it is text. */
function cellValue(text, isBytes) {
  if (text === "exact") return 0;
  const found = NUMBER.exec(text);
  if (!found) return null;
  const number = Number(found[1].replaceAll(",", "").replace("−", "-"));
  const unit = found[2] === "B" && !isBytes ? 1e9 : (UNITS[found[2]] ?? 1);
  return number * unit;
}

/** The rows with the values of a column: numbers, or text where there is no number. */
function keyed(table, column) {
  const texts = table.rowsAsMade.map((row) => row.cells[column].textContent.trim());
  const isBytes = texts.some((text) => text.includes("iB"));
  const values = texts.map((text) => cellValue(text, isBytes));
  const isText = values.every((value) => value === null);
  const keys = isText ? texts.map((text) => text || null) : values;
  return { isText, rows: table.rowsAsMade.map((row, index) => ({ row, key: keys[index] })) };
}

const compare = (a, b) =>
  typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;

/** Rows without a value come last. */
function inOrder(rows, direction) {
  const sign = direction === "descending" ? -1 : 1;
  const known = rows.filter(({ key }) => key !== null);
  known.sort((a, b) => sign * compare(a.key, b.key));
  return [...known, ...rows.filter(({ key }) => key === null)].map(({ row }) => row);
}

/** Numbers from the largest on, text from A on; then the other way round, then as it was. */
function sortBy(table, heading) {
  const { isText, rows } = keyed(table, heading.cellIndex);
  const directions = isText ? ["ascending", "descending"] : ["descending", "ascending"];
  const direction = directions[directions.indexOf(heading.ariaSort) + 1];
  for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
  if (direction) heading.setAttribute("aria-sort", direction);
  table.tBodies[0].append(...(direction ? inOrder(rows, direction) : table.rowsAsMade));
}

function makeSortable(table) {
  if (!table.tHead || table.tBodies[0].rows.length < LEAST_ROWS) return;
  table.rowsAsMade = [...table.tBodies[0].rows];
  for (const heading of table.tHead.querySelectorAll("th")) {
    const onclick = () => sortBy(table, heading);
    heading.replaceChildren(make("button", { class: "sort", text: heading.textContent, onclick }));
  }
}
