// Nodes: their health, drains with their instant, repairs; or one node with its history.

import { get } from "/assets/api.js";
import { storyOf } from "/assets/decisions.js";
import { el } from "/assets/dom.js";
import { count, plural } from "/assets/format.js";
import { usedOf } from "/assets/nodepicture.js";
import { COLUMNS as JOB_COLUMNS, row as jobRow } from "/assets/queue.js";
import { address, bar, empty, facts, field, filters, jobLink, link, nodeLink, note, pager, section, state, table, time } from "/assets/parts.js";

const PAGE = 100;
const OUT = ["degraded", "draining", "drained", "down"];
const STATES = [["", "Every state"], ["idle", "Idle"], ["mixed", "Partly used"], ["allocated", "In use"],
  ["degraded", "Degraded"], ["draining", "Draining"], ["drained", "In repair"], ["down", "Down"]];

export default { title: (data, { name }) => name || "Nodes", load, view };

async function load({ name }) {
  if (!name) {
    const [{ nodes }, history] = await Promise.all([get("nodes"), get("chronicle", { topic: "nodes", limit: 20 })]);
    return { nodes, history };
  }
  const [node, history, jobs] = await Promise.all([
    get(`nodes/${encodeURIComponent(name)}`), get("chronicle", { about: name, limit: 50 }),
    get("jobs", { node: name, limit: 20, newest: true })]);
  return { node, history, jobs };
}

function view(data, route) {
  return route.name ? one(data) : all(data, route);
}

const COLUMNS = [{ name: "Node", lead: true }, { name: "Pool" }, { name: "State" }, { name: "GPUs in use", right: true },
  { name: "", whole: true }, { name: "Jobs", wide: true }, { name: "Why", wide: true }, { name: "Empty by", right: true }];

function row(node) {
  return { key: node.name, cells: [
    nodeLink(node.name), node.pool, state(node.state), usedOf(node), node.gpus ? bar(node.gpus_used / node.gpus) : "",
    node.jobs.length ? el("span", null, node.jobs.slice(0, 6).flatMap((id, place) => (place ? [", ", jobLink(id)] : [jobLink(id)])),
      node.jobs.length > 6 ? ` and ${count(node.jobs.length - 6)} more` : "") : "",
    node.reason, node.drain_until ? time(node.drain_until) : ""] };
}

function all({ nodes, history }, { query }) {
  const [kind, name, place] = [query.get("state") ?? "", query.get("name") ?? "", Math.max(1, Number(query.get("page")) || 1)];
  const out = nodes.filter((node) => OUT.includes(node.state));
  const found = nodes.filter((node) => (!kind || node.state === kind) && (!name || node.name.includes(name) || node.pool === name));
  const shown = found.slice((place - 1) * PAGE, place * PAGE);
  const at = (number) => address("/nodes", { state: kind, name, page: number > 1 ? number : "" });
  return el("div", null,
    el("h1", null, "Nodes"),
    el("p", { class: "lede" }, out.length ? `${plural(out.length, "node")} of ${count(nodes.length)} ${out.length === 1 ? "takes" : "take"} no new work.`
      : `All ${plural(nodes.length, "node")} take work.`),
    out.length ? section("Out of use", table("Nodes that take no new work", COLUMNS, out.slice(0, PAGE).map(row), "pairs"),
      out.length > PAGE ? note(`and ${count(out.length - PAGE)} more: choose a state below`) : null) : null,
    section("All nodes",
      filters("/nodes", field("state", "State", kind, STATES), field("name", "Name or pool", name)),
      shown.length ? table("Nodes", COLUMNS, shown.map(row), "pairs") : empty("No node is like this."),
      pager(place > 1 && link(at(place - 1), `Previous ${PAGE}`), found.length > place * PAGE && link(at(place + 1), `Next ${PAGE} of ${count(found.length)}`))),
    section("What happened to nodes", history.entries.length ? storyOf(history.entries) : note("Nothing yet."),
      history.before ? el("p", null, link(address("/decisions", { topic: "nodes" }), "All of it")) : null));
}

function one({ node, history, jobs }) {
  return el("div", null,
    el("nav", { class: "crumbs", "aria-label": "Above it" }, link("/nodes", "Nodes")),
    el("h1", null, node.name),
    el("p", { class: "lede" }, state(node.state), node.reason ? `: ${node.reason}` : "", node.drain_until ? el("span", null, "; empty by ", time(node.drain_until)) : ""),
    section("What it is", facts([["Pool", node.pool], ["GPU type", node.gpu_type], ["GPUs in use", usedOf(node)],
      ["Cores", node.cpus ? count(node.cpus) : ""]])),
    section("Jobs", jobs.jobs.length ? table(`Jobs on ${node.name}`, JOB_COLUMNS, jobs.jobs.map(jobRow), "jobs") : note("None has run here."),
      jobs.next ? el("p", null, link(address("/queue", { node: node.name, show: "all" }), "All jobs that ran here")) : null),
    section("What happened to it", history.entries.length ? storyOf(history.entries, node.name) : note("Nothing yet."),
      history.before ? el("p", null, link(address("/decisions", { about: node.name, before: history.before }), "What was before")) : null));
}
