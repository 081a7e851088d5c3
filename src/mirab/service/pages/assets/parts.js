// What several pages are made of: links, times, states, tables, bars, cards.

import { el, svg } from "/assets/dom.js";
import { ABSENT, fullInstant, instant } from "/assets/format.js";

export const path = (...parts) => `/${parts.map((part) => part.split("/").map(encodeURIComponent).join("/")).join("/")}`;

export const jobLink = (id, text = id) => el("a", { href: path("jobs", id) }, text);
export const nodeLink = (name) => el("a", { href: path("nodes", name) }, name);
/** An account; a long path breaks behind its slashes. */
export const accountLink = (name, text = name) => el("a", { href: path("accounts", name), class: "word" },
  text.split("/").flatMap((part, place) => (place ? ["/", el("wbr"), part] : [part])));

/** The account whatever its pool: `vision` of `h100:vision`; and that pool, "" = the main tree. */
export const plain = (name) => name.slice(name.lastIndexOf(":") + 1);
export const poolOf = (name) => name.slice(0, Math.max(0, name.lastIndexOf(":")));

const OF_POOL = "pool_shares.";
/** A term of a budget as people read it: `share of pool h100`. */
export const termWord = (term) => (term.startsWith(OF_POOL) ? `share of pool ${term.slice(OF_POOL.length)}` : term.replaceAll("_", " "));
/** The account whose share a change is about, `h100:vision` for that of one pool; null = it is about something else. */
export const shareOf = ({ account, term }) => (term === "share" ? account : term.startsWith(OF_POOL) ? `${term.slice(OF_POOL.length)}:${account}` : null);

/** An address of this site with other filters; what is empty is left out. */
export function address(base, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== "" && each !== null && each !== undefined) {
        search.append(name, each);
      }
    }
  }
  const text = search.toString();
  return text ? `${base}?${text}` : base;
}

/** An instant in the reader's zone, in full when pointed at. */
export function time(iso, seconds = false) {
  return iso ? el("time", { datetime: iso, title: fullInstant(iso) }, instant(iso, seconds)) : ABSENT;
}

const STATES = {
  RUNNING: ["●", "running", "good"], PENDING: ["○", "waiting", ""], COMPLETING: ["◐", "stopping", ""],
  COMPLETED: ["✓", "completed", ""], FAILED: ["✕", "failed", "bad"], CANCELLED: ["⊘", "cancelled", ""],
  TIMEOUT: ["✕", "time limit", "bad"], PREEMPTED: ["◌", "preempted", ""], NODE_FAIL: ["✕", "node failed", "bad"],
  REJECTED: ["✕", "rejected", "bad"],
  idle: ["○", "idle", ""], mixed: ["◐", "mixed", "good"], allocated: ["●", "allocated", "good"],
  degraded: ["▲", "degraded", "bad"], draining: ["▼", "draining", "bad"], drained: ["□", "in repair", "bad"],
  down: ["✕", "down", "bad"],
};

/** The state of a job or a node: a sign and a word, so that no colour is needed. */
export function state(name, started = true) {
  const [sign, word, mood] = STATES[name] ?? ["·", name.toLowerCase(), ""];
  return el("span", { class: `state ${mood}` }, el("span", { "aria-hidden": "true" }, sign), " ",
    name === "RUNNING" && !started ? "starting" : word);
}

/**
 * A table that becomes a list of cards where the screen is narrow. Columns: `{name, right, wide, lead, whole}`; rows: cells in
 * their order, or `{key, cells}`. `caption` is read to those who do not see the table.
 */
export function table(caption, columns, rows, kind = "") {
  const head = columns.map((column) =>
    el("th", { role: "columnheader", scope: "col", class: column.right ? "right" : null },
      column.name || el("span", { class: "unseen" }, "picture")));
  return el("table", { role: "table", class: `stack ${kind}` },
    el("caption", { class: "unseen" }, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
    el("tbody", { role: "rowgroup" }, rows.map((row) => line(columns, row))));
}

function line(columns, row) {
  const cells = row.cells ?? row;
  return el("tr", { role: "row", "data-key": row.key, class: row.kind }, cells.map((cell, place) => {
    const { name, right, wide, lead, whole } = columns[place];
    const kinds = [right && "right", wide && "wide", lead && "lead", whole && "whole"].filter(Boolean).join(" ");
    const empty = cell === "" || cell === null || cell === undefined;
    return el("td", { role: "cell", class: empty ? `${kinds} empty` : kinds || null, "data-label": name }, cell);
  }));
}

/** A bar of 0 to 1, with an optional goal; the number stands beside it, so it is a picture only. */
export function bar(value, goal = null, most = 1) {
  const length = Math.max(0, Math.min(value ?? 0, most)) / most * 100;
  return svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8 }),
    svg("rect", { class: "fill", width: length.toFixed(2), height: 8 }),
    goal !== null && [
      svg("rect", { class: "gap", x: goal / most * 100 - 1.5, width: 3, height: 8 }),
      svg("rect", { class: "goal", x: goal / most * 100 - 0.5, width: 1, height: 8 })]);
}

export const section = (title, ...children) => el("section", null, el("h2", null, title), children);
export const note = (...children) => el("p", { class: "soft" }, children);
export const empty = (...children) => el("p", { class: "empty-note" }, children);

/** Name and value, name and value: what is absent is left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== ABSENT);
  return el("dl", { class: "facts" }, known.map(([name, value]) =>
    el("div", null, el("dt", null, name), el("dd", null, value))));
}

/** A field of a filter. `options`: pairs of value and word, else it is a text. */
export function field(name, label, value, options = null) {
  const id = `f-${name}`;
  const input = options
    ? el("select", { id, name }, options.map(([each, word]) =>
      el("option", { value: each, selected: each === value }, word)))
    : el("input", { id, name, value, type: "search", autocomplete: "off", spellcheck: "false" });
  return el("div", { class: "field" }, el("label", { for: id }, label), input);
}

/** A form whose fields become the address of the page, so that it can be sent to a colleague. */
export function filters(action, ...fields) {
  return el("form", { class: "filters", action, role: "search", "data-filter": true,
    "data-key": location.pathname + location.search }, fields,
    el("button", { type: "submit" }, "Show"));
}

export function pager(...links) {
  const known = links.filter(Boolean);
  return known.length ? el("nav", { class: "pager", "aria-label": "More" }, known) : null;
}

/** A sentence in which `commands` stand between backticks. */
export const coded = (text) => text.split("`").map((part, place) => (place % 2 ? el("code", null, part) : part));

export const link = (href, text) => el("a", { href }, text);
