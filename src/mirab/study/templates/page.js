
(() => {
  "use strict";
  for (const svg of document.querySelectorAll("svg.plot")) {
    const title = svg.querySelector(":scope > title");
    const description = svg.querySelector(":scope > desc");
    svg.setAttribute("aria-label", title.textContent);
    svg.setAttribute("aria-describedby", description.id);
    svg.removeAttribute("aria-labelledby");
    title.remove();
  }
  for (const title of document.querySelectorAll(".hit > title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const at = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!at) { hide(); return; }
    tip.textContent = at.dataset.tip;
    tip.hidden = false;
    const room = document.documentElement.clientWidth;
    const left = Math.min(Math.max(8, event.clientX + 14), Math.max(8, room - tip.offsetWidth - 8));
    const above = event.clientY - tip.offsetHeight - 14;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { hide(); } });
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) { each.open = true; }
  });
  window.addEventListener("afterprint", () => {
    for (const each of closed) { each.open = false; }
  });
})();
