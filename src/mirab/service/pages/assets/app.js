// The frame: which page an address is, who is looking, and how a page stays fresh.

import { logOut, Problem, Stream, whoIsThere } from "/assets/api.js";
import { el, morph } from "/assets/dom.js";
import { loginView, loginSent } from "/assets/login.js";
import { link } from "/assets/parts.js";
import accounts from "/assets/accounts.js";
import decisions from "/assets/decisions.js";
import job from "/assets/job.js";
import nodes from "/assets/nodes.js";
import now from "/assets/now.js";
import queue from "/assets/queue.js";
import replays from "/assets/replays.js";
import whatif from "/assets/whatif.js";

const PAGES = [
  [/^\/$/, now], [/^\/queue$/, queue], [/^\/jobs\/([^/]+)$/, job], [/^\/accounts(?:\/(.+))?$/, accounts],
  [/^\/nodes(?:\/([^/]+))?$/, nodes], [/^\/decisions$/, decisions], [/^\/replays$/, replays], [/^\/whatif$/, whatif],
];
const NAV = [["/", "Now"], ["/queue", "Queue"], ["/accounts", "Accounts"], ["/nodes", "Nodes"],
  ["/decisions", "Decisions"], ["/replays", "Replays"], ["/whatif", "What if"]];
const FRESH_EVERY = 2000;
const TICK = 30000;

const main = document.getElementById("main");
const said = document.getElementById("said");
let here = null;
let visit = 0;
let shown = null;
let me = null;
let connection = "";
let due = null;
let loadedAt = 0;

function routeOf(address) {
  const path = address.pathname.replace(/(.)\/$/, "$1");
  for (const [pattern, page] of PAGES) {
    const found = pattern.exec(path);
    if (found) {
      return { page, path, name: found[1] === undefined ? "" : decoded(found[1]), query: address.searchParams, me };
    }
  }
  return null;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Go where the address says. `moved`: the reader has followed a link, so the new page gets the focus. */
async function arrive(moved) {
  here = routeOf(new URL(location.href));
  shown = null;
  visit += 1;
  drawFrame();
  if (here === null) {
    show("Not found", problemView({ status: 404, message: "There is no such page." }));
    return;
  }
  if (moved) {
    window.scrollTo(0, 0);
  }
  await refresh();
  if (moved) {
    main.focus({ preventScroll: true });
    said.textContent = document.title;
  }
}

/** Ask for the page's data and draw it; what is on the screen stays there until then. */
async function refresh() {
  clearTimeout(due);
  due = null;
  const asking = visit;
  const route = here;
  loadedAt = Date.now();
  try {
    if (me === null) {
      me = await whoIsThere();
      stream.open();
      drawFrame();
    }
    if (shown === null && route.page.quick) {
      arrived(asking, await route.page.quick({ ...route, me }));
    }
    const data = await route.page.load({ ...route, me });
    if (arrived(asking, data) && route.page.again?.(data)) {
      later(FRESH_EVERY);
    }
  } catch (problem) {
    if (asking === visit) {
      failed(problem);
    }
  }
}

/** Draw it, unless the reader has gone elsewhere meanwhile; whether that was done. */
function arrived(asking, data) {
  if (asking !== visit) {
    return false;
  }
  shown = data;
  draw();
  return true;
}

function draw() {
  const route = { ...here, me, width: Math.min(main.clientWidth, 1120) };
  show(route.page.title(shown, route), route.page.view(shown, route));
}

function failed(problem) {
  if (!(problem instanceof Problem)) {
    show("Fault", problemView({ status: 0, message: `A fault in this page: ${problem.message}` }));
    throw problem;
  }
  if (problem.status === 401) {
    me = null;
    stream.close();
    drawFrame();
    show("Log in", loginView(problem.message));
    return;
  }
  if (shown === null || problem.status === 404 || problem.status === 403) {
    show("Not shown", problemView(problem));
  }
  if (problem.status === 0 || problem.status >= 500) {
    later(TICK / 3);
  }
}

function problemView(problem) {
  return el("div", null, el("h1", null, problem.status === 404 ? "Not found" : "Not shown"),
    el("p", { class: "problem", role: "alert" }, problem.message),
    el("p", null, link("/", "To the page Now")));
}

function show(title, view) {
  document.title = `${title} · mirab`;
  const fresh = el("main", { id: "main", tabindex: "-1" }, view);
  morph(main, fresh);
  main.setAttribute("data-ready", String(visit));
}

/** Something has happened: ask again, but not more often than every two seconds, and only while somebody looks. */
function later(pause) {
  if (due === null && here !== null && me !== null) {
    due = setTimeout(() => (document.hidden ? (due = null) : refresh()), pause);
  }
}

const stream = new Stream(
  () => later(Math.max(50, FRESH_EVERY - (Date.now() - loadedAt))),
  (state) => {
    connection = state;
    drawFrame();
  },
);

// --- the frame -------------------------------------------------------------------------------------------------------
function drawFrame() {
  const at = here?.path ?? "";
  const current = (base) => (base === "/" ? at === "/" : at.startsWith(base) || (base === "/queue" && at.startsWith("/jobs")));
  const items = NAV.map(([base, word]) =>
    el("li", null, el("a", { href: base, "aria-current": current(base) ? "page" : null }, word)));
  morph(document.getElementById("nav"), el("nav", { id: "nav", "aria-label": "Pages" }, me && el("ul", null, items)));
  morph(document.getElementById("me"), el("div", { class: "me", id: "me" }, me && whoView()));
}

function whoView() {
  const roles = me.grants.map((grant) => `${grant.role}${grant.account ? ` of ${grant.account}` : ""}`).join(", ");
  const words = { live: ["●", "live"], lost: ["○", "connecting again"] }[connection] ?? ["○", "connecting"];
  return [
    el("span", { class: "live", title: "Whether this page hears of changes at once" },
      el("span", { "aria-hidden": "true" }, words[0]), ` ${words[1]}`),
    el("span", { class: "user", title: roles }, me.user),
    me.origin.startsWith("unix") ? null : el("button", { type: "button", class: "plain", "data-act": "log-out" }, "Log out"),
  ];
}

// --- what the reader does --------------------------------------------------------------------------------------------
function go(address) {
  history.pushState(null, "", address);
  arrive(true);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act='log-out']");
  if (button) {
    logOut().finally(() => location.reload());
    return;
  }
  const anchor = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !plain || anchor.target || anchor.hasAttribute("download")) {
    return;
  }
  const address = new URL(anchor.getAttribute("href"), location.href);
  if (address.origin === location.origin && routeOf(address) && !address.hash) {
    event.preventDefault();
    go(address.href);
  }
});

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  if (form.hasAttribute("data-filter")) {
    const address = new URL(form.getAttribute("action"), location.origin);
    for (const [name, value] of new FormData(form)) {
      if (String(value).trim()) {
        address.searchParams.append(name, String(value).trim());
      }
    }
    go(address.href);
  } else if (form.hasAttribute("data-login") && (await loginSent(form))) {
    arrive(true);
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("form[data-filter] select")) {
    event.target.form.requestSubmit();
  }
});

/** Arrows move inside the picture of the nodes; a slash goes to the first filter. */
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    const first = main.querySelector("form[data-filter] input");
    if (first) {
      event.preventDefault();
      first.focus();
    }
    return;
  }
  const tile = event.target.closest?.(".tiles a");
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" }[event.key];
  if (!tile || step === undefined) {
    return;
  }
  event.preventDefault();
  moveTo(tile, step);
});

function moveTo(tile, step) {
  const all = [...tile.closest(".tiles").querySelectorAll("a")];
  const place = all.indexOf(tile);
  const row = all.findIndex((each) => each.offsetTop > all[0].offsetTop);
  const wide = row < 0 ? all.length : row;
  const wanted = { down: place + wide, up: place - wide, first: 0, last: all.length - 1 }[step] ?? place + step;
  const next = all[Math.max(0, Math.min(all.length - 1, wanted))];
  tile.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

window.addEventListener("popstate", () => arrive(true));
let resized = null;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => shown !== null && draw(), 150);
});
document.addEventListener("visibilitychange", () => !document.hidden && shown !== null && later(50));
setInterval(() => {
  if (document.hidden || here === null || me === null) {
    return;
  }
  if (Date.now() - loadedAt > TICK) {
    later(50);
  } else if (shown !== null) {
    draw();
  }
}, TICK);

arrive(false);
