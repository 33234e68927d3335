"use strict";
// Shows the values of the nearest step beside the pointer. Without this script every point still has its title.
const NS = "http://www.w3.org/2000/svg";
const shape = (name, values, text) => {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(values)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
for (const svg of document.querySelectorAll("svg[data-plot]")) {
  const plot = JSON.parse(svg.dataset.plot);
  const [left, right, top, bottom] = plot.box;
  const [first, last] = plot.steps;
  const layer = shape("g", { "pointer-events": "none" });
  svg.append(layer);
  const position = (step) => left + (last > first ? (step - first) / (last - first) : 0.5) * (right - left);
  const nearest = (steps, step) => {
    let [low, high] = [0, steps.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
  };
  svg.addEventListener("pointerleave", () => layer.replaceChildren());
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * svg.viewBox.baseVal.width;
    const step = first + ((Math.min(Math.max(x, left), right) - left) / (right - left)) * (last - first);
    const lines = [];
    const marks = [];
    let at;
    for (const run of plot.runs) {
      if (run.steps.length === 0) continue;
      const near = nearest(run.steps, step);
      at = at === undefined ? run.steps[near] : at;
      const name = plot.runs.length > 1 ? run.name.slice(0, 20) + ": " : "";
      lines.push([run.at, name + run.smooth[near] + " (" + run.raw[near] + ")"]);
      marks.push(shape("circle", { class: "s" + run.at, cx: position(run.steps[near]), cy: run.y[near], r: 3.5 }));
    }
    if (at === undefined) return;
    const width = 16 + 6.2 * Math.max(10, ...lines.map(([, text]) => text.length));
    const start = position(at) + width + 12 > right ? position(at) - width - 8 : position(at) + 8;
    const texts = lines.map(([run, text], line) => shape("text", { class: "tick s" + run, x: start + 8, y: top + 30 + 14 * line }, text));
    layer.replaceChildren(
      shape("line", { class: "cursor", x1: position(at), x2: position(at), y1: top, y2: bottom }),
      ...marks,
      shape("rect", { class: "tip", x: start, y: top + 2, width, height: 22 + 14 * lines.length, rx: 3 }),
      shape("text", { class: "tick", x: start + 8, y: top + 16 }, "step " + Math.round(at)),
      ...texts,
    );
  });
}
