"use strict";
// One button opens and closes all folded parts. Without this script they open one by one.
const folded = [...document.querySelectorAll("details")];
const nav = document.querySelector("nav");
if (nav && folded.length > 1) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  let open = false;
  const name = () => { button.textContent = open ? "Collapse all" : "Expand all"; };
  button.addEventListener("click", () => {
    open = !open;
    for (const part of folded) part.open = open;
    name();
  });
  name();
  nav.append(button);
}
addEventListener("beforeprint", () => { for (const part of folded) part.open = true; });
