// Replays: the reports that are kept, and up to six of them side by side.

import { get } from "/assets/api.js";
import { el } from "/assets/dom.js";
import { plural } from "/assets/format.js";
import { empty, link, note, section, table, time } from "/assets/parts.js";

const MOST = 6;

export default { title: () => "Replays", load, view };

async function load({ query }) {
  const chosen = query.getAll("show");
  const list = await get("replays");
  return { ...list, chosen, beside: chosen.length ? await get("replays/compare", { name: chosen }) : null };
}

function view({ replays, folder, chosen, beside }) {
  return el("div", null,
    el("h1", null, "Replays"),
    el("p", { class: "soft" }, "Reports of ", el("code", null, "mirab sim LOG --json FILE"), " and ", el("code", null, "mirab compare"),
      " that are kept", folder ? [" in ", el("code", null, folder)] : " beside the service", `. Choose up to ${MOST} to see side by side.`),
    replays.length ? chooser(replays, chosen) : empty("None is kept yet."),
    beside ? comparison(beside, chosen) : null);
}

function chooser(replays, chosen) {
  const columns = [{ name: "Show" }, { name: "Report", lead: true }, { name: "Log", wide: true }, { name: "Policies" }, { name: "Kept since", right: true }];
  const rows = replays.map((each) => ({ key: each.name, cells: [
    el("input", { type: "checkbox", name: "show", value: each.name, checked: chosen.includes(each.name), disabled: Boolean(each.problem),
      "aria-label": `Show ${each.name}` }),
    each.problem ? each.name : link(`/replays?show=${encodeURIComponent(each.name)}`, each.name),
    each.problem || each.log, each.policies.join(", "), time(each.kept_at)] }));
  return el("form", { action: "/replays", "data-filter": true, "data-key": location.search },
    table("Reports that are kept", columns, rows), el("p", null, el("button", { type: "submit" }, "Side by side")));
}

function comparison({ labels, title, lede, groups }, chosen) {
  const page = `/api/v1/replays/page?${chosen.map((name) => `name=${encodeURIComponent(name)}`).join("&")}`;
  const several = labels.length > 1;
  return section(several ? `${plural(labels.length, "replay")} of ${title}` : title,
    el("p", null, lede),
    el("p", null, el("a", { href: page, target: "_blank", rel: "noopener" }, "The whole report with its pictures")),
    groups.map((group) => el("div", null, el("h3", null, group.question),
      table(group.question, [{ name: "Measure", lead: true, wide: true }, ...labels.map((name) => ({ name, right: true }))],
        group.rows.map((row) => ({ key: row.name, cells: [
          el("span", null, row.name, row.note ? el("span", { class: "note" }, row.note) : null),
          ...row.cells.map((cell) => el("span", null, cell.value, cell.best && several ? el("span", { class: "tag" }, "best") : null,
            cell.change ? el("span", { class: "note" }, cell.change) : null))] })), "measures"))),
    note("▲ better, ▼ worse than the first."));
}
