"use strict";
// Draws every figure of the page from the data in it.

const figures = JSON.parse(document.getElementById("figures").textContent);
document.querySelectorAll(".scroll").forEach((frame) => {
  frame.addEventListener("scroll", () => frame.classList.toggle("moved", frame.scrollLeft > 0));
});
document.querySelectorAll(".scroll table").forEach(makeSortable);
document.querySelectorAll("figure[data-figure]").forEach((node) => {
  const figure = figures[Number(node.dataset.figure)];
  const place = make("div");
  node.insertBefore(place, node.querySelector("figcaption"));
  const draw = "sliders" in figure ? calculator : "trees" in figure ? tree : chart;
  draw(place, figure);
});
