// Pictures over time: owed and charged of an account, and the attempts of a job. Each has its numbers beside it in words.

import { el, svg } from "/assets/dom.js";
import { count, instant } from "/assets/format.js";

const LEFT = 44;
const BOTTOM = 22;
const TOP = 8;

/** GPUs owed (dashed) and charged (filled), hour by hour, as wide as the page. */
export function trendChart(steps, width, label) {
  const high = 200;
  const known = steps.filter((step) => step.hours > 0);
  if (known.length < 2) {
    return el("p", { class: "empty-note" }, "There is less than two hours of history yet.");
  }
  const begin = Date.parse(known[0].at);
  const last = known[known.length - 1];
  const end = Date.parse(last.at) + last.hours * 3600e3;
  const most = Math.max(1, ...known.map((step) => Math.max(step.owed, step.charged)));
  const x = (at) => LEFT + (at - begin) / (end - begin) * (width - LEFT - 8);
  const y = (value) => TOP + (1 - value / most) * (high - TOP - BOTTOM);
  const charged = stairs(known, "charged", x, y);
  return el("figure", null,
    el("figcaption", { class: "keys" }, key("owed", "owed, in GPUs"), key("charged", "charged")),
    svg("svg", { class: "plot", viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": label },
      ticks(most).map((value) => [
        svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, count(value))]),
      svg("path", { class: "area", d: `${charged}L${x(end).toFixed(1)} ${y(0)}L${LEFT} ${y(0)}Z` }),
      svg("path", { class: "line charged", d: charged }),
      svg("path", { class: "line owed", d: stairs(known, "owed", x, y) }),
      moments(begin, end, width).map((at) => svg("text", { x: x(at), y: high - 5, "text-anchor": "middle" }, dayOf(at, end - begin)))));
}

function key(kind, word) {
  return el("span", { class: "key" },
    svg("svg", { viewBox: "0 0 28 10", class: "sample", "aria-hidden": "true" }, svg("path", { class: `line ${kind}`, d: "M0 5H28" })), word);
}

function stairs(steps, name, x, y) {
  let drawn = "";
  for (const step of steps) {
    const at = Date.parse(step.at);
    const level = y(step[name]).toFixed(1);
    drawn += `${drawn ? "L" : "M"}${x(at).toFixed(1)} ${level}L${x(at + step.hours * 3600e3).toFixed(1)} ${level}`;
  }
  return drawn;
}

/** At most five round numbers from 0 on. */
function ticks(most) {
  const raw = most / 4;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= raw);
  const whole = Math.max(1, step);
  return Array.from({ length: Math.floor(most / whole) + 1 }, (_, place) => place * whole);
}

function moments(begin, end, width) {
  const many = Math.max(2, Math.min(8, Math.floor(width / 130)));
  return Array.from({ length: many }, (_, place) => begin + (end - begin) * (place + 0.5) / many);
}

function dayOf(at, length) {
  const text = instant(new Date(at).toISOString());
  return length > 3 * 86400e3 && text.includes(" ") ? text.replace(/ \d\d:\d\d$/, "") : text;
}

/** When the job waited, ran and stopped, on one line. */
export function attempts(job, width) {
  const begin = Date.parse(job.submitted_at);
  const end = Math.max(job.ended_at ? Date.parse(job.ended_at) : Date.now(), begin + 1000);
  const x = (at) => 2 + (Math.min(Math.max(at, begin), end) - begin) / (end - begin) * (width - 4);
  const runs = job.runs.map((run) => [Date.parse(run.started_at ?? run.decided_at), run.ended_at ? Date.parse(run.ended_at) : end, run]);
  const told = runs.map(([from, to, run]) => `attempt ${run.attempt} from ${clock(from)} to ${run.ended_at ? clock(to) : "now"}`);
  return svg("svg", { class: "plot", viewBox: `0 0 ${width} 58`, role: "img",
    "aria-label": `Submitted ${clock(begin)}; ${told.join("; ") || "not started yet"}` },
    svg("path", { class: "waited", d: `M2 21H${width - 2}` }),
    runs.map(([from, to, run]) => [
      svg("rect", { class: run.ended_at ? "ran" : "runs", x: x(from).toFixed(1), y: 8, rx: 2,
        width: Math.max(3, x(to) - x(from)).toFixed(1), height: 26 }),
      x(to) - x(from) > 40 && svg("text", { class: "inside", x: (x(from) + 8).toFixed(1), y: 26 }, `${run.attempt}`)]),
    svg("text", { x: 2, y: 52 }, clock(begin)),
    svg("text", { x: width - 2, y: 52, "text-anchor": "end" }, job.ended_at ? clock(end) : "now"));
}

const clock = (at) => instant(new Date(at).toISOString());
