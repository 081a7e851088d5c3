// What if: the shares as sliders, tried on the last days of the journal, and who gains and who loses.

import { get, Problem } from "/assets/api.js";
import { el, svg } from "/assets/dom.js";
import { ABSENT, count, hours, plural, share, span } from "/assets/format.js";
import { accountLink, address, empty, link, note, plain, poolOf, section, shareOf, table, termWord } from "/assets/parts.js";

export default { title: () => "What if", load, view, again: ({ trial, kept }) => (trial ?? kept)?.state === "running" };

const ALL = "*";
const DAYS = ["7", "14", "30", "60"];

/**
 * The address holds the question (`share=ACCOUNT=40%`, `days=14`), so that it can be sent to a colleague; or it names an
 * answer that is kept (`trial=w...`), as the evidence of a change does.
 */
async function load({ query }) {
  if (query.get("trial")) {
    return { kept: await get(`whatif/${encodeURIComponent(query.get("trial"))}`) };
  }
  const wanted = new Map(query.getAll("share").map((each) => [each.slice(0, each.lastIndexOf("=")), each.slice(each.lastIndexOf("=") + 1)]));
  const days = query.get("days") ?? "30";
  const budgets = await get("budgets");
  const pools = budgets.pools ?? [];
  const present = [...rows(budgets.budgets), ...(pools.length > 1 ? pools : []).flatMap((pool) => poolRows(budgets.budgets, pool))];
  const changed = present.filter((each) => wanted.has(each.path) && (each.usual || number(wanted.get(each.path)) !== each.share));
  const asked = changed.map((each) => `${each.path}=${number(wanted.get(each.path))}%`);
  return { present, wanted, days, changed, asked, trial: asked.length ? await tried(asked, days) : null };
}

async function tried(share, days) {
  try {
    return await get("whatif", { share, days });
  } catch (problem) {
    if (problem instanceof Problem && [404, 422, 503].includes(problem.status)) {
      return { state: "refused", problem: problem.message };
    }
    throw problem;
  }
}

/** Every account that is open, in the order of the tree: path, the account above it, its share of that in per cent. */
function rows(tree, above = "") {
  return Object.entries(tree).filter(([, node]) => !node.closed).flatMap(([name, node]) => {
    const path = above ? `${above}/${name}` : name;
    return [{ path, above, share: number(node.share) }, ...rows(node.children ?? {}, path)];
  });
}

/**
 * The same of one pool alone, `h100:vision`. Where none of its siblings names the pool, the usual shares hold there too:
 * `usual`, and once one of them is to differ all have to be named.
 */
function poolRows(tree, pool, above = "") {
  const open = Object.entries(tree).filter(([, node]) => !node.closed);
  const usual = !open.some(([, node]) => node.pool_shares?.[pool] !== undefined);
  return open.flatMap(([name, node]) => {
    const path = above ? `${above}/${name}` : name;
    const share = number(usual ? node.share : node.pool_shares?.[pool] ?? "0%");
    return [{ path: `${pool}:${path}`, above, share, usual }, ...poolRows(node.children ?? {}, pool, path)];
  });
}

const number = (text) => Math.round(parseFloat(text) * 1e6) / 1e6 || 0;

// --- the sliders -----------------------------------------------------------------------------------------------------
function view({ present, wanted, days, changed, trial, kept }) {
  if (kept) {
    return el("div", null,
      el("h1", null, "What if"),
      el("p", { class: "lede" }, "What was tried and kept: the same jobs, once under the shares of then and once under the proposed ones."),
      answered(kept), note(link("/whatif", "Try other shares")));
  }
  return el("div", null,
    el("h1", null, "What if"),
    el("p", { class: "lede" }, "Move the shares and try them on the last days: the same jobs come in at the same times, once under the present ",
      "shares and once under yours. Nothing changes."),
    present.length ? form(present, wanted, days) : empty("There is no account."),
    trial ? outcome(trial, changed, days) : note("Move a slider, then try it."));
}

function form(present, wanted, days) {
  const moved = movedNow();
  const pools = [...new Set(present.map((each) => poolOf(each.path)).filter(Boolean))];
  return el("form", { action: "/whatif", class: "sliders", "data-filter": true, "data-sliders": true, "data-key": location.search },
    groups(present.filter((each) => !poolOf(each.path)), moved ?? wanted, present.some((each) => each.usual === false) ? "Of all other pools" : "Of the whole cluster"),
    pools.map((pool) => poolGroups(pool, present.filter((each) => poolOf(each.path) === pool), moved ?? wanted)),
    el("div", { class: "filters" },
      el("div", { class: "field" }, el("label", { for: "f-days" }, "Tried on"),
        el("select", { id: "f-days", name: "days", "data-quiet": true }, DAYS.map((each) => el("option", { value: each, selected: each === days }, `the last ${each} days`)))),
      el("button", { type: "submit" }, "Try it"), link("/whatif", "Back to the present shares")));
}

function groups(present, wanted, whole) {
  const found = new Map();
  for (const each of present) {
    found.set(each.above, [...(found.get(each.above) ?? []), each]);
  }
  return [...found].map(([above, children]) => group(above, children, wanted, whole));
}

/** Who has how much of one pool: folded away where nobody pays for it alone. */
function poolGroups(pool, present, wanted) {
  const named = present.some((each) => !each.usual || wanted.has(each.path));
  return el("details", { class: "pool", "data-key": `pool ${pool}`, open: named },
    el("summary", null, `Pool ${pool} alone${named ? "" : ": shared as everything else"}`), groups(present, wanted, `Of pool ${pool}`));
}

/** Where the reader has put the sliders of this form; null = it is a new one. */
function movedNow() {
  const old = document.querySelector("form[data-sliders]");
  if (old?.getAttribute("data-key") !== location.search) {
    return null;
  }
  return new Map([...old.querySelectorAll("input[type=range]")].map((each) => [each.dataset.path, each.value]));
}

function group(above, children, wanted, whole) {
  const values = children.map((each) => (wanted.has(each.path) ? number(wanted.get(each.path)) : each.share));
  const [pool, usual] = [poolOf(children[0].path), children[0].usual];
  return el("fieldset", { "data-key": `${pool} ${above || "top"}`, "data-usual": usual ? "" : null },
    el("legend", null, above ? `Of ${above}${pool ? `, pool ${pool}` : ""}` : whole),
    children.map((each, place) => slider(each, values[place])),
    el("p", { class: "sum", role: "status" }, summed(values)));
}

function slider({ path, above, share }, value) {
  const id = `s-${path}`;
  const name = `${poolOf(path) && `${poolOf(path)}:`}${above ? plain(path).slice(above.length + 1) : plain(path)}`;
  return el("div", { class: "slider" },
    el("label", { for: id }, name),
    el("input", { id, type: "range", min: 0, max: 100, step: Number.isInteger(share) ? 1 : "any", value, "data-path": path, "data-present": share,
      "aria-valuetext": worded(value, share) }),
    el("output", { for: id }, worded(value, share)));
}

const shown = (value) => `${Math.round(value * 100) / 100}\u00a0%`;
const worded = (value, share) => (value === share ? shown(value) : `${shown(value)}, now ${shown(share)}`);

function summed(values) {
  const sum = Math.round(values.reduce((a, b) => a + b, 0) * 100) / 100;
  return sum > 100 ? `${shown(sum)} in all: ${shown(sum - 100)} too much` : `${shown(sum)} in all${sum < 100 ? `, ${shown(100 - sum)} for nobody` : ""}`;
}

/** While a slider moves: its words, the sum of its group, and what the form will ask for. */
document.addEventListener("input", (event) => {
  const moved = event.target.closest?.("form[data-sliders] input[type=range]");
  if (!moved) {
    return;
  }
  const [value, share] = [number(moved.value), number(moved.dataset.present)];
  moved.setAttribute("aria-valuetext", worded(value, share));
  moved.parentNode.querySelector("output").textContent = worded(value, share);
  const all = [...moved.closest("fieldset").querySelectorAll("input[type=range]")].map((each) => number(each.value));
  const sum = moved.closest("fieldset").querySelector(".sum");
  sum.textContent = summed(all);
  sum.classList.toggle("problem", all.reduce((a, b) => a + b, 0) > 100.001);
});

document.addEventListener("formdata", (event) => {
  if (!event.target.hasAttribute("data-sliders")) {
    return;
  }
  event.formData.delete("share");
  for (const group of event.target.querySelectorAll("fieldset")) {
    const all = [...group.querySelectorAll("input[type=range]")];
    const moved = all.filter((each) => number(each.value) !== number(each.dataset.present));
    for (const each of moved.length && group.hasAttribute("data-usual") ? all : moved) {
      event.formData.append("share", `${each.dataset.path}=${number(each.value)}%`);
    }
  }
});

// --- the answer ------------------------------------------------------------------------------------------------------
function outcome(trial, changed, days) {
  if (trial.state === "running") {
    return section("Being worked out", el("p", { role: "status", "data-wait": true },
      `The last ${days} days are replayed twice, in the background. This page shows the result when it is there; you can leave it and come back.`));
  }
  return el("div", null, answered(trial), trial.state === "done" ? section("As evidence", evidence(trial, changed)) : null);
}

function answered(trial) {
  if (trial.state !== "done") {
    return trial.state === "running" ? note("It is still being worked out.") : el("p", { class: "problem", role: "alert" }, trial.problem);
  }
  const { accounts, all, changes } = trial.result;
  const busy = accounts.filter(hasSomething).sort((a, b) => most(b.owed) - most(a.owed) || (a.account < b.account ? -1 : 1));
  return el("div", null,
    section("Who gains, who loses", trial.told.map((each) => el("p", null, each)), differences(busy, trial),
      answer([all, ...busy]), note(trial.method)),
    changes.length ? section("What differs", el("ul", null, changes.map((each) => el("li", null, each.account, ` ${termWord(each.term)} `, `${each.before ?? ABSENT} → ${each.after ?? ABSENT}`)))) : null);
}

const most = ({ before, after }) => Math.max(before, after);
const hasSomething = (row) => (!row.account.endsWith("/*") && most(row.share) > 0) || most(row.workloads) > 0 || most(row.owed) > 0;

const WORDS = { gains: "▲ gains", loses: "▼ loses", both: "▲▼ both", noise: "noise", same: "no change", unknown: "cannot tell" };
const SIGNS = { better: "▲ better", worse: "▼ worse", noise: "noise" };
const COLUMNS = [{ name: "Account", lead: true }, { name: "Verdict" }, { name: "Share", right: true }, { name: "Owed h", right: true },
  { name: "Delivered h", right: true }, { name: "Median wait", right: true }, { name: "p90 wait", right: true }, { name: "Lost h", right: true }];
const BARS = [{ name: "Account", lead: true }, { name: "Verdict" }, { name: "Difference", right: true }, { name: "", whole: true }];
const FIRST = 24;

/** What each gets of what it is owed, more or less than now: the bar is the difference, the line through it what luck may do. */
function differences(rows, trial) {
  if (!trial.result.method.enough) {
    return null;
  }
  const shown = rows.filter(({ delivered }) => delivered.difference !== null).slice(0, FIRST);
  const widest = Math.max(1, ...shown.map(({ delivered }) => Math.abs(delivered.difference)), ...shown.map(({ delivered }) => delivered.spread ?? 0));
  return [el("h3", null, "Delivered: GPU-hours more or less than now"),
    note("The bar is the difference; the line through the middle is what luck may do. A bar within the line is noise."),
    table("Difference of what is delivered, with its spread", BARS, shown.map(({ account, delivered }) => ({ key: account, cells: [
      named(account), SIGNS[delivered.verdict] ?? "no change", signed(delivered), differenceBar(delivered, widest)] })), "differences pairs"), el("h3", null, "Everything, before and after")];
}

const signed = ({ difference, spread }) =>
  `${difference > 0 ? "+" : difference < 0 ? "−" : ""}${count(Math.abs(difference))}${spread === null ? "" : ` ± ${count(spread)}`}`;

/** From the middle to the right is more, to the left less; hollow = noise. The numbers stand beside it. */
function differenceBar({ difference, spread, verdict }, widest) {
  const at = (value) => 50 + value / widest * 48;
  const [begin, end] = [at(0), at(difference)].sort((a, b) => a - b);
  return svg("svg", { class: `difference ${verdict}`, viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "middle", x1: 50, x2: 50, y1: 0, y2: 12 }),
    svg("rect", { class: "moved", x: begin.toFixed(2), width: Math.max(0.3, end - begin).toFixed(2), y: 2.5, height: 7 }),
    spread && svg("line", { class: "luck", x1: at(-spread).toFixed(2), x2: at(spread).toFixed(2), y1: 6, y2: 6 }));
}

const named = (account) => (account === ALL ? el("strong", null, "all together") : accountLink(account.replace(/\/\*$/, ""), account));

function answer(accounts) {
  return table("By account, before and after", COLUMNS, accounts.map((row) => ({ key: row.account, cells: [
    named(row.account), WORDS[row.verdict], both(row.share.before, row.share.after, share), both(row.owed.before, row.owed.after, hours),
    aspect(row.delivered, hours), aspect(row.wait_p50_s, span), aspect(row.wait_p90_s, span), aspect(row.lost, hours)] })), "whatif");
}

const both = (before, after, format) => (format(before) === format(after) ? format(after) : `${format(before)} → ${format(after)}`);

/** Before and after, and whether luck explains the difference. */
function aspect(each, format) {
  if (each.before === null && each.after === null) {
    return ABSENT;
  }
  const verdict = SIGNS[each.verdict];
  const spread = verdict && each.spread !== null ? ` (± ${format(each.spread)})` : "";
  return el("span", null, both(each.before, each.after, format), verdict ? el("span", { class: "note" }, verdict, spread) : null);
}

function evidence(trial, changed) {
  const whole = `/api/v1/whatif/${trial.id}?whole=true`;
  const file = `whatif-${trial.id}.json`;
  const shares = trial.result.changes.map((each) => [shareOf(each), each.after]).filter(([account]) => changed.some(({ path }) => path === account))
    .map(([account, after]) => `${account}=${after ?? "none"}`).join(" ");
  return [
    el("p", null, el("a", { href: whole, download: file }, "The whole result"), ` (${plural(trial.result.method.days, "day")}, ${plural(trial.result.method.draws, "draw")}) is kept here as `, el("code", null, trial.id),
      ". A change of budgets names it by its hash:"),
    el("pre", null, `mirab budget set ${shares} --reason "..." --evidence ${trial.id}`),
    el("p", { class: "soft" }, "SHA-256 ", el("code", null, trial.sha256)),
    note(link(address("/accounts", {}), "Accounts"), " show what holds now."),
  ];
}
