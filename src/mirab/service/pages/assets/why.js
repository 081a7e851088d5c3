// What the service says about why a job waits and when it will start; nothing where it says nothing.

import { el } from "/assets/dom.js";
import { count, hours, percent, plural, ratio, span } from "/assets/format.js";
import { accountLink, coded, facts, jobLink, note, section, table, time } from "/assets/parts.js";

/** Every blocker, ranked, each with what would remove it; who goes first, and what put them there. */
export function whyView(why, job) {
  if (!why || job.state !== "PENDING" || !(why.blockers.length || why.ahead.length)) {
    return null;
  }
  return section("Why it waits",
    why.blockers.length ? el("ol", { class: "blockers" }, why.blockers.map((each) => blocker(each, job))) : null,
    why.level ? note(why.level) : null,
    why.whatif.length ? rehearsed(why.whatif) : null,
    why.ahead.length > 1 ? contenders(why.ahead) : null);
}

function blocker(each, job) {
  return el("li", null, el("p", null, each.fact, each.about && each.about !== job.id ? [" (said of job ", jobLink(each.about), ", the first of its queue)"] : null),
    each.action ? el("p", { class: "soft" }, coded(each.action)) : null,
    each.removes.length ? el("p", { class: "soft" }, "In its way: ", listed(each.removes)) : null);
}

const isJob = (name) => /^\d+(_\d+)?$/.test(name);
const listed = (names) => names.slice(0, 12).flatMap((name, place) =>
  [place ? ", " : "", isJob(name) ? jobLink(name) : accountLink(name)]);

function rehearsed(whatif) {
  return el("div", null, el("h3", null, "What if"),
    note("Tried on a copy of the scheduler as it is now; nothing was changed."),
    facts(whatif.map((each) => [each.change, each.sentence])));
}

const COLUMNS = [{ name: "Account", lead: true }, { name: "Ratio", right: true }, { name: "Used h", right: true }, { name: "Before its first day h", right: true },
  { name: "Committed h", right: true }, { name: "Entitled h", right: true }, { name: "Waiting jobs", right: true },
  { name: "Largest runs in the window", wide: true }];

function contenders(ahead) {
  return el("div", null, el("h3", null, "Who goes first"),
    table("Accounts that go first", COLUMNS, ahead.map((each) => ({ key: each.account, cells: [
      el("span", null, accountLink(each.account), each.mine ? el("span", { class: "tag" }, "this job's") : null),
      ratio(each.ratio), hours(each.used_h), hours(each.par_h), hours(each.committed_h), hours(each.entitled_h), count(each.waiting_jobs),
      el("span", null, each.entries.slice(0, 4).flatMap((run, place) => [place ? ", " : "",
        jobLink(run.run.replace(/\.\d+$/, "")), ` ${run.user} ${hours(run.gpu_h)} GPU-h${run.running ? ", running" : ""}`]))] }))));
}

/** An instant, or that it is later than the runs have looked. */
function quantile(when, at, after) {
  if (at) {
    return time(at);
  }
  return when.runs && after ? el("span", null, "later than ", time(after)) : "";
}

/** A forecast says how it was made, how old it is, and how such forecasts have held. */
export function whenView(when) {
  if (!when) {
    return null;
  }
  return section("When it will start",
    el("p", null, when.sentence),
    facts([
      ["Stands in for now", when.stands_in ? el("span", null, "job ", jobLink(when.stands_in), "; this one is being looked at for itself ...") : ""],
      ["As likely before as after", quantile(when, when.p50, when.after_50)],
      ["In nine of ten runs by", quantile(when, when.p90, when.after_90)],
      ["At the latest", when.bound ? el("span", null, time(when.bound), ", by the contract") : ""],
      ["If nothing new came in", when.alone_p50 ? time(when.alone_p50) : ""],
      ["It hangs on", when.because],
      ["How it was made", when.runs ? `${plural(when.runs, "run")} of the same scheduler into the future, ${span(when.age_s)} ago` : ""],
      ["How such forecasts held", when.score?.judged ? `p90 in ${percent(when.score.p90_held, 0)}, p50 in ${percent(when.score.p50_held, 0)} of ${count(when.score.judged)}` : ""],
    ]),
    when.trust ? note(when.trust) : null);
}
