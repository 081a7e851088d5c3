// Now: the four measures, the nodes as a picture, what is kept for whom, and who runs what.

import { get, getIfThere } from "/assets/api.js";
import { el } from "/assets/dom.js";
import { count, hours, percent, plural, span } from "/assets/format.js";
import { legend, tiles } from "/assets/nodepicture.js";
import { accountLink, address, bar, empty, jobLink, link, nodeLink, note, section, table, time } from "/assets/parts.js";

const SILENT_MOST = 20;

export default { title: () => "Now", load, view };

async function load() {
  const now = await get("now");
  const silent = now.silent_runs ? await getIfThere("squatters") : null;
  return { ...now, silent: silent?.runs ?? [] };
}

function view(now) {
  return el("div", null,
    el("h1", null, "Now"),
    el("p", { class: "lede" }, lede(now)),
    el("ol", { class: "pyramid", "aria-label": "The four measures, each meaningful only above the one before it" },
      now.pyramid.map(level)),
    nodesSection(now),
    now.holds.length ? holds(now) : null,
    people(now),
    now.silent.length ? silent(now.silent) : null);
}

function lede(now) {
  const pools = now.pools.filter((pool) => pool.counted);
  const sum = (key) => pools.reduce((total, pool) => total + pool[key], 0);
  const unit = pools[0]?.unit ?? "GPU";
  const { total } = now;
  const parts = [`${count(sum("busy"))} of ${plural(sum("schedulable"), unit)} ${total.runs ? `in use by ${plural(total.runs, "run")}` : "in use"}`];
  parts.push(total.waiting_jobs
    ? `${plural(total.waiting_jobs, "job")} ${total.waiting_jobs === 1 ? "waits" : "wait"} for ${plural(total.waiting_gpus, unit)}`
    : "nothing waits");
  const out = sum("installed") - sum("schedulable") + sum("leaving");
  if (out) {
    parts.push(`${plural(out, unit)} ${out === 1 ? "is" : "are"} on nodes that take no new work`);
  }
  return `${parts.join("; ")}.`;
}

const MEANS = {
  availability: ["Availability", (level) => `${count(level.part)} of ${plural(level.whole, level.unit)} work, or could`],
  occupancy: ["Occupancy", occupancy],
  impact: ["Impact", impact],
  utilization: ["Utilization", utilization],
};

function level(found) {
  const [name, told] = MEANS[found.name];
  return el("li", { class: `level ${found.name}` },
    el("h2", null, name),
    el("p", { class: "big" }, percent(found.ratio)),
    bar(found.ratio),
    el("p", { class: "soft" }, told(found)));
}

function occupancy(found) {
  const text = `${count(found.part)} of ${plural(found.whole, found.unit)} in use`;
  if (!found.wanted || found.wanted >= found.whole) {
    return text;
  }
  return `${text}; ${percent(found.part / found.wanted)} of what is asked for`;
}

function impact(found) {
  if (!found.ready) {
    return "The books are still being read";
  }
  const window = span(found.window_s);
  if (found.ratio === null) {
    return `Nobody was owed anything in the last ${window}`;
  }
  return `${hours(found.part)} of ${hours(found.whole)} GPU-h that were owed in the last ${window} delivered`;
}

function utilization(found) {
  if (!found.running) {
    return "Nothing runs";
  }
  if (found.ratio === null) {
    return "Nothing measures the activity of the GPUs here";
  }
  return `Mean activity of ${count(found.whole)} of ${plural(found.running, "GPU")} in use`;
}

// --- nodes -----------------------------------------------------------------------------------------------------------
function nodesSection(now) {
  const held = heldNodes(now.holds);
  return section("Nodes", legend(), now.pools.map((pool) => el("div", { class: "pool", "data-key": pool.name },
    el("h3", null, pool.name, pool.gpu_type ? ` (${pool.gpu_type})` : ""),
    el("p", { class: "soft" }, fragmentation(pool)),
    tiles(pool, held))));
}

function heldNodes(holds) {
  const held = new Map();
  for (const hold of holds) {
    for (const node of hold.nodes) {
      held.set(node, hold);
    }
  }
  return held;
}

function fragmentation(pool) {
  const nodes = plural(pool.nodes.length, "node");
  const size = `${nodes} with ${plural(pool.per_node, pool.unit)}${pool.nodes.length === 1 ? "" : " each"}`;
  if (!pool.free) {
    return `${size}; none is free.`;
  }
  if (pool.unit !== "GPU") {
    return `${size}; ${count(pool.free)} free.`;
  }
  const whole = `${count(pool.free)} free, ${pool.whole_free ? `${plural(pool.whole_free, "node")} as a whole` : "no node as a whole"}`;
  const pieces = pool.stranded ? `, ${count(pool.stranded)} in pieces on nodes that are partly used` : "";
  const out = pool.kept_out
    ? ` Enough is free for ${plural(pool.kept_out, "waiting job")}, but not together.` : "";
  return `${size}; ${whole}${pieces}.${out}`;
}

function holds(now) {
  const columns = [{ name: "For", lead: true }, { name: "Account" }, { name: "Nodes", wide: true },
    { name: "Theirs by", right: true }];
  const rows = now.holds.map((hold) => ({ key: hold.job ?? hold.reservation, cells: [
    hold.job ? el("span", null, "job ", jobLink(hold.job)) : `reservation ${hold.reservation}`,
    hold.account ? accountLink(hold.account) : "",
    el("span", null, plural(hold.nodes.length, "node"), ": ", listed(hold.nodes)),
    hold.due ? "now" : time(hold.until)] }));
  return section("Kept for somebody",
    note("These nodes go on working: whatever ends in time may run on them until then."),
    table("Nodes that are kept", columns, rows));
}

function listed(nodes) {
  const shown = nodes.slice(0, 6).flatMap((name, place) => (place ? [", ", nodeLink(name)] : [nodeLink(name)]));
  return nodes.length > 6 ? [...shown, ` and ${count(nodes.length - 6)} more`] : shown;
}

/** Runs that hold GPUs without a sign of progress, the worst first. */
function silent(runs) {
  const columns = [{ name: "Job", lead: true }, { name: "User" }, { name: "Account" }, { name: "GPUs", right: true },
    { name: "Held since the last sign", right: true }, { name: "What is missed", wide: true }];
  const rows = runs.slice(0, SILENT_MOST).map((run) => ({ key: run.run, cells: [
    jobLink(run.job), link(address("/queue", { user: run.user }), run.user), accountLink(run.account), count(run.gpus),
    `${hours(run.gpu_hours)} GPU-h in ${span(run.silent_s)}`, run.flag] }));
  const more = runs.length - SILENT_MOST;
  return section("Silent runs", table("Runs without a sign of progress", columns, rows),
    more > 0 ? note(`and ${count(more)} more: mirab squatters lists them all.`) : null);
}

// --- people ----------------------------------------------------------------------------------------------------------
function people(now) {
  if (!now.people.length) {
    return section("Who runs what", empty("Nothing runs and nothing waits."));
  }
  const most = Math.max(1, ...now.people.map((line) => line.gpus));
  const columns = [{ name: "Account", lead: true }, { name: "User" }, { name: "GPUs in use", right: true },
    { name: "", whole: true }, { name: "Runs", right: true }, { name: "Waiting jobs", right: true },
    { name: "GPUs waited for", right: true }];
  const rows = now.people.map((line) => ({ key: `${line.account} ${line.user}`, cells: [
    accountLink(line.account), link(address("/queue", { user: line.user }), line.user), count(line.gpus),
    bar(line.gpus, null, most), count(line.runs), count(line.waiting_jobs), count(line.waiting_gpus)] }));
  if (now.people_more.lines) {
    const more = now.people_more;
    rows.push({ key: "more", cells: [`and ${count(more.lines)} others`, "", count(more.gpus), "", count(more.runs),
      count(more.waiting_jobs), count(more.waiting_gpus)] });
  }
  return section("Who runs what",
    now.silent_runs ? note(`${plural(now.silent_runs, "run")} ${now.silent_runs === 1 ? "has" : "have"} shown no sign of progress for longer than declared.`) : null,
    now.held_jobs ? note(`${plural(now.held_jobs, "job")} ${now.held_jobs === 1 ? "is" : "are"} kept out of the queue.`) : null,
    table("Who runs and waits for what", columns, rows, "pairs"));
}
