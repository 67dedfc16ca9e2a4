"use strict";
// A law of memory with sliders, against the memory of GPUs. A term comes as nested lists, so that
// nothing of it is run as code.

const OPERATORS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "**": (a, b) => a ** b,
};
const EXTRAPOLATED = " · extrapolated: no size like it was simulated or run";

function valueOf(expression, knobs) {
  if (typeof expression === "number") return expression;
  if (typeof expression === "string") return knobs[expression];
  const [operator, left, right] = expression;
  return OPERATORS[operator](valueOf(left, knobs), valueOf(right, knobs));
}

/** Puts the sliders, the answer and a bar for every GPU into their place. */
function calculator(place, figure) {
  const knobs = { ...figure.fixed };
  const answer = make("p", { class: "answer", role: "status", "aria-live": "polite" });
  const gpus = figure.gpus.map(([name, capacity]) => gpuRow(name, capacity));
  const update = () => {
    const bytes = lawBytes(figure, knobs);
    showAnswer(answer, bytes, figure.known_bytes);
    for (const gpu of gpus) showOnGpu(gpu, bytes);
  };
  const sliders = figure.sliders.map((slider) => {
    knobs[slider.name] = slider.value;
    return sliderRow(slider, (value) => {
      knobs[slider.name] = value;
      update();
    });
  });
  place.append(
    place.parentNode.querySelector("h3"),
    make("div", { class: "sliders" }, ...sliders),
    answer,
    make("div", { class: "gpus" }, ...gpus.map((gpu) => gpu.node)),
  );
  update();
}

function lawBytes(figure, knobs) {
  const terms = figure.terms.map(([factor, expression]) => factor * valueOf(expression, knobs));
  return Math.max(d3.sum(terms), figure.floor_bytes) + figure.overhead_bytes;
}

function gpuRow(name, capacity) {
  const fill = make("i");
  const free = make("span", { class: "free" });
  const limit = make("span", { class: "limit" });
  const meter = make("div", { class: "meter-box" }, make("div", { class: "meter" }, fill), limit);
  const title = make("span", { text: name });
  return {
    capacity,
    fill,
    limit,
    free,
    node: make("div", { class: "gpu", "data-gpu": name }, title, meter, free),
  };
}

function sliderRow(slider, changed) {
  const output = make("output", { text: String(slider.value) });
  const input = make("input", {
    type: "range",
    min: slider.smallest,
    max: slider.largest,
    step: slider.step,
    value: slider.value,
    "aria-label": slider.name,
    oninput: () => {
      output.textContent = Number(input.value).toLocaleString("en");
      changed(Number(input.value));
    },
  });
  const name = make("span", { text: slider.name.replaceAll("_", " ") });
  return make("label", {}, name, input, output);
}

function showAnswer(answer, bytes, [smallest, largestKnown]) {
  const isBeyond = bytes > largestKnown * 1.02 || bytes < smallest * 0.98;
  const note = make("small", { text: isBeyond ? EXTRAPOLATED : "" });
  answer.replaceChildren(`${shown(bytes, "bytes")} reserved`, note);
  answer.dataset.bytes = String(Math.round(bytes));
}

function showOnGpu({ capacity, fill, limit, free, node }, bytes) {
  const tooMuch = bytes - capacity;
  const whole = Math.max(bytes, 1.03 * capacity);
  fill.style.width = `${(100 * bytes) / whole}%`;
  limit.style.left = `${(100 * capacity) / whole}%`;
  node.classList.toggle("full", tooMuch > 0);
  const missing = `${shown(tooMuch, "bytes")} too much`;
  free.textContent = tooMuch > 0 ? missing : `${shown(-tooMuch, "bytes")} free`;
}
