// What the service says about why a job waits and when it will start; nothing where it says nothing.

import { el } from "/assets/dom.js";
import { jobLink, note, section, time } from "/assets/parts.js";
import { percent, span } from "/assets/format.js";

/** Every blocker, ranked, with the action that would remove it. */
export function whyView(why, job) {
  const blockers = why?.blockers ?? [];
  if (!blockers.length || job.state !== "PENDING") {
    return null;
  }
  return section("Why it waits",
    el("ol", { class: "blockers" }, blockers.map((each) => el("li", null,
      el("p", null, each.sentence ?? each.text ?? ""),
      each.advice || each.remedy ? el("p", { class: "soft" }, each.advice ?? each.remedy) : null))),
    why.ahead?.length ? note("Ahead of it: ", why.ahead.slice(0, 8).flatMap((each, place) =>
      [place ? ", " : "", aheadOf(each)])) : null);
}

const aheadOf = (each) => (typeof each === "string" ? jobLink(each) : each.job ? jobLink(each.job) : String(each.account ?? ""));

export function whenView(when) {
  if (!when || !(when.p50_at ?? when.p50)) {
    return null;
  }
  const [middle, late] = [when.p50_at ?? when.p50, when.p90_at ?? when.p90];
  return section("When it will start",
    el("p", null, "As likely before as after ", time(middle), late ? [", in nine of ten runs by ", time(late)] : null, "."),
    when.bound_at ? el("p", null, "At the latest ", time(when.bound_at), ": that is promised.") : null,
    when.assumption ? note(when.assumption) : null,
    when.age_s !== undefined ? note(`From ${when.runs ?? "several"} runs of the same scheduler into the future, made ${span(when.age_s)} ago.`,
      when.held !== undefined && when.held !== null ? ` Such p90s held ${percent(when.held)} of the time.` : "") : null);
}
