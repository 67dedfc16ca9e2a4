"use strict";
// A law of memory with sliders, against the memory of GPUs. A term comes as nested lists: nothing of it is run as code.

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
