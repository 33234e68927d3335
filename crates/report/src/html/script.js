"use strict";
// Tables sort by a click on, or Enter in, the heading of a column. Without this script they are plain tables.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) continue;
  const compare = (a, b) => {
    const [x, y] = [a.dataset.v, b.dataset.v];
    if (x !== undefined && y !== undefined) return x - y;
    if (x !== undefined || y !== undefined) return x !== undefined ? -1 : 1;
    return a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => compare(a.cells[at], b.cells[at]) * (up ? 1 : -1));
      body.append(...rows);
    });
  });
}
