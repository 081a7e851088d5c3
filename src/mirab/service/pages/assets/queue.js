// Queue: the jobs, as `mirab ls` lists them, with filters that stand in the address.

import { get } from "/assets/api.js";
import { el } from "/assets/dom.js";
import { count, plural, span } from "/assets/format.js";
import { accountLink, address, empty, field, filters, jobLink, link, pager, path, state, table, time } from "/assets/parts.js";

const PAGE = 50;
const SHOWN = {
  active: ["Running and waiting", ["RUNNING", "COMPLETING", "PENDING"]],
  waiting: ["Waiting", ["PENDING"]],
  running: ["Running", ["RUNNING", "COMPLETING"]],
  ended: ["Ended", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "REJECTED"]],
  all: ["All", []],
};
const NAMES = ["show", "user", "account", "node", "label"];

export default { title: () => "Queue", load, view };

function asked(query) {
  const wanted = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
  wanted.show = wanted.show in SHOWN ? wanted.show : "active";
  return wanted;
}

function load({ query }) {
  const { show, ...rest } = asked(query);
  const newest = query.get("newest") === null ? show === "ended" || show === "all" : query.get("newest") === "true";
  return get("jobs", { ...rest, state: SHOWN[show][1].join(","), limit: PAGE, cursor: query.get("cursor"), newest });
}

function view(found, { query, me }) {
  const wanted = asked(query);
  const options = Object.entries(SHOWN).map(([key, [word]]) => [key, word]);
  return el("div", null,
    el("h1", null, "Queue"),
    filters("/queue", field("show", "Show", wanted.show, options), field("user", "User", wanted.user),
      field("account", "Account", wanted.account), field("node", "Node", wanted.node), field("label", "Label", wanted.label)),
    el("p", { class: "soft" }, link(address("/queue", { user: me.user }), "My jobs"), " · ",
      link(address("/queue", { show: "waiting" }), "All that wait"), " · ",
      link(address("/queue", { show: "ended" }), "What ended last")),
    found.jobs.length ? table("Jobs", COLUMNS, found.jobs.map(row), "jobs")
      : empty(Object.values(wanted).filter(Boolean).length > 1 ? "No job is like this." : "There is no such job."),
    pager(query.get("cursor") && link(address("/queue", wanted), "First page"),
      found.next && link(address("/queue", { ...wanted, cursor: found.next }), `Next ${PAGE}`)));
}

export const COLUMNS = [{ name: "Job", lead: true }, { name: "User" }, { name: "Account" }, { name: "State" },
  { name: "GPUs", right: true }, { name: "When" }, { name: "Why", wide: true }];

export function row(job) {
  return { key: job.id, cells: [
    el("span", null, jobLink(job.id), job.name ? el("span", { class: "word" }, ` ${job.name}`) : null),
    link(address("/queue", { user: job.user }), job.user),
    accountLink(job.account), state(job.state, Boolean(job.started_at)),
    job.nodes > 1 ? `${count(job.gpus)} on ${plural(job.nodes, "node")}` : count(job.gpus),
    when(job), why(job)] };
}

function when(job) {
  if (job.ended_at) {
    return el("span", null, "ended ", time(job.ended_at));
  }
  if (job.state === "PENDING") {
    return el("span", null, "since ", time(job.submitted_at));
  }
  const secure = job.protected_until && new Date(job.protected_until) > new Date();
  return el("span", null, job.started_at ? ["since ", time(job.started_at)] : "starting",
    secure ? [", safe until ", time(job.protected_until)] : null);
}

function why(job) {
  if (job.progress_flag) {
    return job.progress_flag;
  }
  if (job.why) {
    return el("span", { class: "clamp", title: job.why }, job.why);
  }
  if (job.state === "RUNNING") {
    return el("span", null, "on ", job.node_names.slice(0, 3).flatMap((name, place) =>
      (place ? [", ", link(path("nodes", name), name)] : [link(path("nodes", name), name)])),
    job.node_names.length > 3 ? ` and ${count(job.node_names.length - 3)} more` : "");
  }
  return job.exit_code ? `exit code ${job.exit_code}` : job.preemptions ? `stopped ${plural(job.preemptions, "time")}, ${span(job.lost_s)} lost` : "";
}
