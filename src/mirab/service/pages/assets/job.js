// A job: why it waits, when it will start, its story, its attempts on a line of time, and what it executes.

import { get, getIfThere } from "/assets/api.js";
import { attempts } from "/assets/charts.js";
import { el } from "/assets/dom.js";
import { count, plural, span } from "/assets/format.js";
import { accountLink, address, facts, link, nodeLink, note, path, section, state, table, time } from "/assets/parts.js";
import { storyOf } from "/assets/decisions.js";
import { whenView, whyView } from "/assets/why.js";

const STORY = 100;

export default { title: (data) => `Job ${data.job.id}`, load, quick, view };

/** What is recorded, and the last forecast: shown while the scheduler is run for the rest. */
async function quick({ name }) {
  const at = `jobs/${encodeURIComponent(name)}`;
  const job = await get(at);
  const waits = job.state === "PENDING";
  const [story, why, when] = await Promise.all([
    get("chronicle", { about: job.id, limit: STORY }), getIfThere(`${at}/why`, { whatif: "false" }),
    waits ? getIfThere(`${at}/when`, { wait: "0" }) : null]);
  return { job, story, why, when, working: waits && !when?.runs };
}

async function load({ name }) {
  const at = `jobs/${encodeURIComponent(name)}`;
  const job = await get(at);
  const waits = job.state === "PENDING";
  const [story, why, when] = await Promise.all([
    get("chronicle", { about: job.id, limit: STORY }), getIfThere(`${at}/why`), waits ? getIfThere(`${at}/when`) : null]);
  return { job, story, why, when };
}

function view({ job, story, why, when, working }, { width }) {
  return el("div", null,
    el("h1", null, `Job ${job.id}`, job.name ? el("span", { class: "name" }, ` ${job.name}`) : null),
    el("p", { class: "lede" }, state(job.state, Boolean(job.started_at)), told(job, why)),
    job.progress_flag ? el("p", { class: "problem" }, job.progress_flag) : null,
    whyView(why, job), working ? section("When it will start", note("The scheduler is being run forward ...")) : whenView(when),
    section("What it is", facts(described(job))),
    section("Line of time", attempts(job, width),
      job.runs.length ? table("Attempts", COLUMNS, job.runs.map((run) => attempt(run)))
        : note("It has not been started yet.")),
    section("Story",
      story.before ? el("p", null, link(address("/decisions", { about: job.id, before: story.before }), "What was before")) : null,
      story.entries.length ? storyOf([...story.entries].reverse(), job.id) : note("Nothing has been decided about it yet.")),
    job.spec ? executed(job) : null);
}

/** The first sentence; what is said below in full is not said twice. */
function told(job, why) {
  const text = why?.blockers?.length && job.state === "PENDING" ? why.headline : job.why;
  return text ? `: ${text}` : "";
}

function described(job) {
  return [
    ["User", link(address("/queue", { user: job.user }), job.user)],
    ["Account", accountLink(job.account)],
    ["Size", size(job)],
    ["Minimum runtime", job.min_runtime_s ? span(job.min_runtime_s) : "none: it is not charged, and may be stopped at any time"],
    ["Nobody stops it before", job.protected_until && !job.ended_at ? time(job.protected_until) : ""],
    ["Time limit", job.time_limit_s ? span(job.time_limit_s) : ""],
    ["Submitted", time(job.submitted_at, true)],
    ["First or present start", job.started_at ? time(job.started_at, true) : ""],
    ["Ended", job.ended_at ? time(job.ended_at, true) : ""],
    ["Waited", job.started_at && job.attempt <= 1 ? span((new Date(job.started_at) - new Date(job.submitted_at)) / 1000) : ""],
    ["Last checkpoint", job.checkpoint_at ? time(job.checkpoint_at, true) : ""],
    ["Stopped for others", job.preemptions ? `${plural(job.preemptions, "time")}, ${span(job.lost_s)} of work lost` : ""],
    ["Exit code", job.exit_code === null || !job.ended_at ? "" : count(job.exit_code)],
    ["Label", job.label],
    ["Array", job.array_job && job.array_job !== job.id ? `task ${job.array_task} of ${job.array_job}` : ""],
  ];
}

function size(job) {
  const each = job.gpus_per_node ? plural(job.gpus_per_node, "GPU") : plural(job.cpus_per_node || 1, "core");
  return job.nodes === 1 ? each : `${plural(job.nodes, "node")} with ${each} each, all or nothing`;
}

const COLUMNS = [{ name: "Attempt" }, { name: "Nodes", wide: true }, { name: "Began" }, { name: "Ended" },
  { name: "Outcome" }, { name: "Lost", right: true }];

function attempt(run) {
  return { key: run.id, cells: [
    String(run.attempt),
    el("span", null, run.node_names.slice(0, 8).flatMap((name, place) => (place ? [", ", nodeLink(name)] : [nodeLink(name)])),
      run.node_names.length > 8 ? ` and ${count(run.node_names.length - 8)} more` : ""),
    time(run.started_at ?? run.decided_at, true), run.ended_at ? time(run.ended_at, true) : "",
    run.outcome ? run.outcome.toLowerCase().replaceAll("_", " ") : "runs", run.lost_s ? span(run.lost_s) : ""] };
}

/** For the owner and those who look after the account. */
function executed(job) {
  const { spec } = job;
  return section("What it executes",
    facts([["Folder", el("code", null, spec.cwd)], ["Waits for", spec.dependency]]),
    spec.argv.length ? el("pre", { tabindex: "0" }, spec.argv.map(quoted).join(" ")) : null,
    spec.script ? el("details", null, el("summary", null, "The script"), el("pre", { tabindex: "0" }, spec.script)) : null,
    job.attempt ? el("p", null, el("a", { href: `/api/v1${path("jobs", job.id)}/output`, target: "_blank", rel: "noopener" },
      "What it has written")) : null);
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
