// Decisions: the journal in sentences, newest first, by subject and topic.

import { get } from "/assets/api.js";
import { el } from "/assets/dom.js";
import { count } from "/assets/format.js";
import { accountLink, address, empty, field, filters, jobLink, link, nodeLink, pager, time } from "/assets/parts.js";

const PAGE = 40;
const TOPICS = [["", "Everything"], ["starts", "Starts"], ["stops", "Stops, and for whom"], ["ends", "Ends"],
  ["people", "What people asked for"], ["waits", "Who waits, and why"], ["holds", "Nodes kept"], ["nodes", "Nodes and repairs"],
  ["budgets", "Budgets and exceptions"]];

export default { title: () => "Decisions", load, view };

function load({ query }) {
  return get("chronicle", { about: query.get("about"), topic: query.get("topic"), before: query.get("before"), limit: PAGE });
}

function view(found, { query }) {
  const [about, topic, before] = ["about", "topic", "before"].map((name) => query.get(name) ?? "");
  return el("div", null,
    el("h1", null, "Decisions"),
    el("p", { class: "soft" }, "What came in, what the scheduler did about it, and by which rule. The newest first."),
    filters("/decisions", field("about", "Job, node or account", about), field("topic", "About", topic, TOPICS)),
    found.entries.length ? storyOf(found.entries) : empty(found.before ? "Nothing among the records looked through; older ones may hold some." : "Nothing is recorded of this."),
    pager(before && link(address("/decisions", { about, topic }), "Newest"),
      found.before && link(address("/decisions", { about, topic, before: found.before }), "Older")));
}

/** Entries as a list. `subject`: what the page is about, which is not named again in each line. */
export function storyOf(entries, subject = "") {
  return el("ol", { class: "story" }, entries.map((entry) => el("li", { "data-key": entry.seq },
    el("div", { class: "at" }, time(entry.at, true)),
    el("ul", null, entry.lines.map((line) => el("li", null, el("span", { class: "what" }, line.what),
      el("span", null, whom(line, subject), line.text))),
      entry.more ? el("li", { class: "soft" }, `and ${count(entry.more)} more`) : null))));
}

function whom(line, subject) {
  if (line.node && line.node !== subject) {
    return [nodeLink(line.node), " "];
  }
  if (line.job && line.job !== subject) {
    return ["job ", jobLink(line.job), " "];
  }
  return line.account && !line.job && line.account !== subject ? [accountLink(line.account), " "] : "";
}
