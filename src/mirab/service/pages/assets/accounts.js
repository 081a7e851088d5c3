// Accounts: the tree with what each was promised and got, or one account over time with its formula.

import { get, getIfThere } from "/assets/api.js";
import { trendChart } from "/assets/charts.js";
import { el } from "/assets/dom.js";
import { ABSENT, count, hours, plural, ratio, share } from "/assets/format.js";
import { accountLink, address, bar, empty, facts, jobLink, link, note, plain, poolOf, section, table, termWord, time } from "/assets/parts.js";

export default { title: (data, { name }) => name || "Accounts", load, view };

async function load({ name }) {
  const [shares, budgets, trend, history] = await Promise.all([
    get(name ? `share/${encodeURIComponent(name).replaceAll("%2F", "/")}` : "share"), get("budgets"),
    getIfThere("trend", { account: name }), get("budgets/history", { account: name && plain(name), latest: LATEST })]);
  return { accounts: shares.accounts, ledgers: shares.ledgers, terms: termsOf(budgets.budgets), trend, budgets, decided: history.changesets };
}

const LATEST = 8;

/** Owner, review and the like by path. */
function termsOf(tree, above = "", found = new Map()) {
  for (const [name, node] of Object.entries(tree)) {
    const path = above ? `${above}/${name}` : name;
    found.set(path, node);
    termsOf(node.children ?? {}, path, found);
  }
  return found;
}

function view(data, route) {
  return route.name ? one(data, route) : tree(data, route);
}

// --- the tree --------------------------------------------------------------------------------------------------------
function tree(data, { width }) {
  return el("div", null,
    el("h1", null, "Accounts"),
    el("p", { class: "lede" }, lede(data)),
    data.accounts.length ? trees(data) : empty("There is no account."),
    section("Owed and charged, all accounts", trendChart(data.trend?.steps ?? [], width, "GPUs owed and charged over the window, hour by hour, of all accounts")),
    section("Who decided", decisions(data.decided)),
    section("How the ratio comes about", note(EXPLAINED), formulas(data.accounts)));
}

/** The main tree, then one for each pool that has shares of its own, with what is in it. */
function trees(data) {
  if (!data.ledgers?.length) {
    return rows(data, data.accounts, "The tree of accounts");
  }
  const pools = [...new Set(data.accounts.map((each) => poolOf(each.path)))];
  return el("div", null, pools.map((pool) => {
    const heading = poolHeading(pool, data.ledgers.find((each) => each.name === pool));
    return section(heading, rows(data, data.accounts.filter((each) => poolOf(each.path) === pool), `The tree of accounts: ${heading}`));
  }));
}

/** `Pool h100, 16 GPUs`; with what may be used of them, if not all. */
function poolHeading(pool, ledger) {
  if (!ledger) {
    return `Pool ${pool}, which has no shares of its own any more`;
  }
  const usable = ledger.schedulable < ledger.units ? `, ${share(ledger.schedulable / ledger.units)} of which may be used now` : "";
  return `${pool ? `Pool ${pool}` : `All other pools (${ledger.pools.join(", ")})`}, ${plural(ledger.gpus, "GPU")}${usable}`;
}

const EXPLAINED = "The lowest ratio goes first. Below 1 an account has had less than its share: it is owed, and nobody stops its runs but a drain.";

function lede({ accounts, trend }) {
  if (!trend?.ready) {
    return "What is owed is still being added up from the journal.";
  }
  const debts = accounts.filter((each) => !each.path.includes("/") && each.debt_h > 0.05);
  if (!debts.length) {
    return "Nobody is owed anything that was not delivered in the window.";
  }
  const most = debts.reduce((a, b) => (b.debt_h > a.debt_h ? b : a));
  const total = debts.reduce((sum, each) => sum + each.debt_h, 0);
  return `${hours(total)} GPU-hours are owed and not delivered${debts.length > 1 ? `, most of them to ${most.path} (${hours(most.debt_h)})` : `, to ${most.path}`}.`;
}

const COLUMNS = [{ name: "Account", lead: true }, { name: "Share", right: true }, { name: "Used h", right: true },
  { name: "Owed h", right: true }, { name: "Delivered h", right: true }, { name: "Debt h", right: true },
  { name: "Debt gone by", right: true }, { name: "Ratio", right: true }, { name: "", whole: true }, { name: "Running GPUs", right: true },
  { name: "Waiting jobs", right: true }, { name: "Next start", right: true }, { name: "Owner" }, { name: "Review" }];

function rows({ terms, trend }, accounts, caption) {
  const top = Math.min(...accounts.map((each) => depth(each.path)));
  return table(caption, COLUMNS, accounts.map((each) => {
    const term = terms.get(plain(each.path)) ?? {};
    const debt = trend?.debts?.[each.path];
    const level = depth(each.path) - top;
    return { key: each.path, cells: [
      el("span", { class: `depth-${Math.min(level, 4)}` }, accountLink(each.path, level ? each.path.split("/").pop() : each.path)),
      share(each.share), hours(each.used_h), hours(each.owed_h), hours(each.delivered_h), hours(each.debt_h),
      debt && debt.debt_h >= 0.05 ? time(debt.gone_by) : ABSENT, ratioText(each), bar(each.ratio, 1, 2),
      count(each.running_gpus),
      each.waiting_jobs ? link(address("/queue", { show: "waiting", account: plain(each.path) }), count(each.waiting_jobs)) : "0",
      each.next_start ? time(each.next_start) : each.waiting_jobs ? ABSENT : "", term.owner ?? "", review(term)] };
  }), "accounts pairs");
}

const depth = (path) => path.split("/").length - 1;

function ratioText(each) {
  if (each.ratio === null) {
    return ABSENT;
  }
  return el("span", null, ratio(each.ratio), each.ratio < 1 ? el("span", { class: "tag" }, "owed") : null);
}

function review(term) {
  if (!term.review) {
    return "";
  }
  const due = /^\d{4}-\d\d-\d\d/.test(term.review) && term.review.slice(0, 10) <= new Date().toISOString().slice(0, 10);
  return el("span", { class: due ? "tag due" : "day" }, term.review, due ? " due" : "");
}

// --- who decided -----------------------------------------------------------------------------------------------------
/** The latest decisions about budgets, with what they rest on. */
function decisions(changesets) {
  if (!changesets.length) {
    return note("Nothing has been decided about it since the service began: it is as the cluster file says.");
  }
  return el("ol", { class: "story" }, [...changesets].reverse().map((made) => el("li", { "data-key": made.version },
    el("div", { class: "at" }, time(made.effective_at)),
    el("div", null, el("p", null, el("strong", null, made.author), `: ${made.reason}`, note("version ", count(made.version), comes(made))),
      changes(made),
      made.evidence ? el("p", { class: "evidence" }, "Decided on ", basis(made.evidence), made.evidence_told.length ? `: ${made.evidence_told.join(" ")}` : "") : null))));
}

const MOST = 12;

/** What it changed, a line each; that an account with a share is new goes without saying. */
function changes(made) {
  const told = made.changes.filter(({ term, before, account }) => term !== "account" || before !== null
    || !made.changes.some((other) => other.account === account && other.term === "share"));
  return el("ul", null, told.slice(0, MOST).map((each) => el("li", null, accountLink(each.account), " ", changed(each))),
    told.length > MOST ? el("li", { class: "soft" }, `and ${plural(told.length - MOST, "more change")}`) : null);
}

function comes({ effective_at, cancelled }) {
  return cancelled ? ", cancelled before it took effect" : new Date(effective_at) > new Date() ? ", to come" : "";
}

function changed({ term, before, after }) {
  if (term === "account") {
    return before === null ? "is new" : after === null ? "is gone" : `was ${before}`;
  }
  const word = termWord(term);
  return before === null ? `${word} ${after}, new` : `${word} ${before || ABSENT} → ${after || ABSENT}`;
}

/** A what-if that the service keeps is a link to it; anything else is what its author wrote. */
function basis(text) {
  const tried = /^what-if (w[0-9a-f]{16}) sha256:[0-9a-f]{64}$/.exec(text);
  return tried ? [link(address("/whatif", { trial: tried[1] }), "a what-if"), " (", el("code", null, tried[1]), ")"] : text;
}

// --- the formula -----------------------------------------------------------------------------------------------------
function formulas(accounts) {
  return el("div", null, accounts.slice(0, 200).map((each) => el("details", { "data-key": each.path },
    el("summary", null, each.path, ": ", ratio(each.ratio)), formula(each))));
}

/** `(used 12 h + committed 3 h) / entitled 40 h = 0.38`; with the part of the window before its first day, if any. */
function summed(each) {
  const before = each.par_h >= 0.05 ? ` + before its first day ${hours(each.par_h)} h` : "";
  return `(used ${hours(each.used_h)} h${before} + committed ${hours(each.committed_h)} h) / entitled ${hours(each.entitled_h)} h = ${ratio(each.ratio)}`;
}

/** Ratio = (used + committed) / entitled, with its numbers. */
function formula(each) {
  return el("div", { class: "formula" },
    el("p", null, el("span", { class: "sum" }, summed(each))),
    facts([
      ["Used", "what ran under a minimum in the window, in GPU-hours of weight 1"],
      ["Committed", "what its runs are still promised until their minimums are over"],
      ["Entitled", `its share, ${share(each.share)}, of all that could be given out in the window`],
      ["So", each.ratio === null ? "it has no share, and goes after all others"
        : each.ratio < 1 ? "it is below its share: it is owed, and goes before all that are not" : "it is at or above its share: whoever is below goes first"]]));
}

// --- one account -----------------------------------------------------------------------------------------------------
function one(data, { name, width }) {
  const [account] = data.accounts;
  if (!account) {
    return el("div", null, el("h1", null, name), empty("It has no share any more, and nothing runs or waits."));
  }
  const term = data.terms.get(plain(name)) ?? {};
  const debt = data.trend?.debts?.[name];
  const [below, elsewhere] = [true, false].map((here) => data.accounts.slice(1).filter((each) => (poolOf(each.path) === poolOf(account.path)) === here));
  return el("div", null,
    above(name),
    el("h1", null, name),
    el("p", { class: "lede" }, standing(account)),
    section("What it was promised and got", facts([
      [poolOf(account.path) ? `Share of pool ${poolOf(account.path)}` : data.ledgers?.length ? "Share of all other pools" : "Share of the cluster", share(account.share)], ["Used", `${hours(account.used_h)} GPU-h`],
      ["Owed", account.owed_h === null ? "still being added up" : `${hours(account.owed_h)} GPU-h`],
      ["Delivered", account.delivered_h === null ? "" : `${hours(account.delivered_h)} GPU-h`],
      ["Debt", account.debt_h === null ? "" : `${hours(account.debt_h)} GPU-h`],
      ["Debt leaves the window", debt && debt.debt_h >= 0.05 ? el("span", null, "from ", time(debt.leaves_from), " on, all of it by ", time(debt.gone_by), " if nothing is paid") : ""],
      ["Running", `${plural(account.running_gpus, "GPU")}${borrowed(account)}`],
      ["Waiting", link(address("/queue", { show: "waiting", account: plain(name) }), `${plural(account.waiting_jobs, "job")} for ${plural(account.waiting_gpus, "GPU")}`)],
      ["Next opportunity", opportunity(account)],
      ["Owner", term.owner], ["Review", term.review ? review(term) : ""], ["Hypothesis", term.hypothesis],
      ["At its last review", term.outcome]])),
    section("Its ratio", formula(account)),
    section("Over time", trendChart(data.trend?.steps ?? [], width, `GPUs owed to and charged by ${name} over the window, hour by hour`)),
    section("Who decided", decisions(data.decided)),
    below.length ? section("Below it", rows(data, below, `Accounts below ${name}`)) : null,
    elsewhere.length ? section("In pools with shares of their own", rows(data, elsewhere, `${name} in pools with shares of their own`)) : null,
    account.users.length ? section("Its users", users(account)) : null,
    el("p", null, link(address("/queue", { account: plain(name) }), "Its jobs"), " · ",
      link(address("/decisions", { about: name }), "What was decided about it")));
}

/** GPUs beyond its share of them. */
function borrowed({ borrowed_gpus: gpus }) {
  return gpus ? `, ${gpus.toLocaleString("en")} of them beyond its share: borrowed from accounts that do not use theirs, who get them back past the minimums` : "";
}

/** When the first of its waiting jobs is forecast to start. */
function opportunity(account) {
  if (account.next_start) {
    const surely = account.next_start_p90 ? [", nine of ten by ", time(account.next_start_p90)] : null;
    return el("span", null, "job ", jobLink(account.next_job), ", in half of the runs forward by ", time(account.next_start), surely);
  }
  return account.waiting_jobs ? "later than the runs forward have looked" : "nothing of it waits";
}

function above(name) {
  const parts = name.split("/");
  return el("nav", { class: "crumbs", "aria-label": "Above it" }, link("/accounts", "Accounts"),
    parts.slice(0, -1).map((_, place) => [" / ", accountLink(parts.slice(0, place + 1).join("/"), parts[place])]));
}

function standing(account) {
  if (account.ratio === null) {
    return "It has no share: what it runs goes after all others.";
  }
  return account.ratio < 1
    ? `It stands at ${ratio(account.ratio)} of its share: it is owed, and goes before all that are not.`
    : `It stands at ${ratio(account.ratio)} of its share: whoever is below theirs goes first.`;
}

function users(account) {
  const columns = [{ name: "User", lead: true }, { name: "Used h", right: true }, { name: "Committed h", right: true },
    { name: "Running GPUs", right: true }, { name: "Waiting jobs", right: true }];
  return table(`Users of ${account.path}`, columns, account.users.map((user) => ({ key: user.user, cells: [
    link(address("/queue", { user: user.user }), user.user), hours(user.used_h), hours(user.committed_h),
    count(user.running_gpus), count(user.waiting_jobs)] })));
}
