"""Budgets and their history as tables and as JSON, for people who have to answer for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mirab.logs.budgetedit import date_text
from mirab.model.accounts import CAPS, TEXTS, Budget, Budgets, covers
from mirab.model.changesets import Changeset
from mirab.model.units import WHOLE, AccountPath, exact_duration, exact_share, format_share
from mirab.study.budgetedits import OF_POOL, WORDS, TermChange, term_word
from mirab.study.budgethistory import Logged
from mirab.study.formats import plural
from mirab.study.tables import Section, Table

Json = dict[str, Any]


def day(unix_ms: int) -> str:
    """The date alone, in UTC."""
    return date_text(unix_ms)[:10]


def minute(unix_ms: int) -> str:
    """Date and time to the minute, in UTC."""
    return date_text(unix_ms)[:16].replace("T", " ")


def tree_rows(budgets: Budgets, root: str = "") -> list[tuple[AccountPath, Budget, int]]:
    """The accounts at or below one, parents first."""
    return [row for row in budgets.walk() if covers(root, row[0])]


def show_sections(
    title: str, budgets: Budgets, root: str, blame: Mapping[AccountPath, Changeset], today: str
) -> list[Section]:
    """The tree with what each account is promised, who answers for it, and until when."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    pools = wholes_of_pools(budgets)
    for path, budget, whole in tree_rows(budgets, root):
        by = blame.get(path)
        since = day(by.effective_at) if by else ""
        review = f"{budget.review} due" if review_due(budget, today) else budget.review
        shares = (format_share(budget.share), format_share(whole), *_pool_cells(path, budget, pools))
        rows.append((_indented(path), *shares, budget.owner, review, since))
        notes += _words(path, budget)
    columns = ("account", "share", "of all", *(head for pool in pools for head in (pool, f"of {pool}")),
               "owner", "review", "since")  # fmt: skip
    return [Section(title, Table(columns, rows), [*notes, *_unassigned(budgets, root)])]


def wholes_of_pools(budgets: Budgets) -> dict[str, dict[AccountPath, int]]:
    """Pool that has a ledger of its own -> account -> its share of that whole pool, in parts of `WHOLE`."""
    ledgers = budgets.ledgers(budgets.pools_named())
    return {ledger.name: {path: whole for path, _, whole in ledger.budgets.walk()} for ledger in ledgers if ledger.name}


def _pool_cells(path: AccountPath, budget: Budget, pools: Mapping[str, Mapping[AccountPath, int]]) -> Iterable[str]:
    """What the account names of each pool, and what that is of the whole pool."""
    named = dict(budget.pool_shares)
    for pool, wholes in pools.items():
        yield format_share(named[pool]) if pool in named else ""
        yield format_share(wholes[path])


def _indented(path: AccountPath) -> str:
    depth = path.count("/")
    return "  " * depth + path.rpartition("/")[2] if depth else path


def _words(path: AccountPath, budget: Budget) -> Iterable[str]:
    if budget.hypothesis:
        yield f"{path} is to achieve: {budget.hypothesis}"
    if budget.outcome:
        yield f"{path} at its last review: {budget.outcome}"
    if budget.closed:
        yield f"{path} is closed since {budget.closed}"
    for name, cap in budget.caps().items():
        yield f"{path}: {WORDS[name]} {cap}"
    if budget.formerly:
        yield f"{path} goes on for {', '.join(budget.formerly)}"


def _unassigned(budgets: Budgets, root: str) -> Iterable[str]:
    """What is promised to nobody at the top, where not everything is."""
    pools = budgets.pools_named()
    for ledger in budgets.ledgers(pools):
        left = WHOLE - sum(budget.share for budget in ledger.budgets.roots)
        if left and not root:
            where = f"pool {ledger.name}" if ledger.name else "all other pools" if pools else "the cluster"
            yield f"{format_share(left)} of {where} is promised to nobody, and used by whoever is next."


def review_due(budget: Budget, today: str) -> bool:
    """Whether its review date (``2027-03-01``) has come. Dates of another form are never due."""
    return bool(budget.review) and budget.review[:4].isdigit() and budget.review[:10] <= today


def show_json(budgets: Budgets, root: str, blame: Mapping[AccountPath, Changeset], today: str) -> list[Json]:
    """The same as records."""
    pools = wholes_of_pools(budgets)
    return [
        {
            "account": path,
            "share": format_share(budget.share),
            "share_of_all": round(whole / WHOLE, 9),
            **_pools_json(path, budget, pools),
            "owner": budget.owner,
            "review": budget.review,
            "review_due": review_due(budget, today),
            "hypothesis": budget.hypothesis,
            "outcome": budget.outcome,
            "closed": budget.closed,
            **{name: getattr(budget, name) for name in CAPS},
            "formerly": list(budget.formerly),
            "since": date_text(blame[path].effective_at) if path in blame else None,
            "version": blame[path].version if path in blame else None,
        }
        for path, budget, whole in tree_rows(budgets, root)
    ]


def _pools_json(path: AccountPath, budget: Budget, pools: Mapping[str, Mapping[AccountPath, int]]) -> Json:
    """What it names of single pools and has of each that somebody names; nothing where nobody does."""
    if not pools:
        return {}
    return {
        "pool_shares": {pool: format_share(share) for pool, share in budget.pool_shares},
        "share_of_pools": {pool: round(wholes[path] / WHOLE, 9) for pool, wholes in pools.items()},
    }


def tree_json(budgets: Budgets) -> Json:
    """The tree as in a cluster file: name -> terms that are not at their default, shares with all their digits."""
    return {budget.name: _terms_json(budget) for budget in budgets.roots}


def _terms_json(budget: Budget) -> Json:
    told: Json = {"share": exact_share(budget.share)}
    if budget.pool_shares:
        told["pool_shares"] = {pool: exact_share(share) for pool, share in budget.pool_shares}
    for name in (*TEXTS, "save_for_gangs"):
        if getattr(budget, name):
            told[name] = getattr(budget, name)
    if budget.formerly:
        told["formerly"] = list(budget.formerly)
    if not budget.equal_users:
        told["equal_users"] = False
    told |= budget.caps()
    if budget.children:
        told["children"] = {child.name: _terms_json(child) for child in budget.children}
    return told


# --- changes ----------------------------------------------------------------------------------------------------------
def value_text(term: str, value: object) -> str:
    """A term's value for people; nothing is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if term == "min_runtime_cap" and isinstance(value, int):
        return exact_duration(value)
    if isinstance(value, int):
        return str(value) if term in CAPS else format_share(value)
    return str(value) if value not in (None, "") else "–"


def change_text(change: TermChange) -> str:
    """One change in a line: ``vision/video share 27% -> 30%``."""
    if change.term == "account":
        if change.before is None:
            return f"{change.path} is new"
        if change.after is None:
            return f"{change.path} is gone"
        return f"{change.before} goes on as {change.after}"
    before, after = (value_text(change.term, value) for value in (change.before, change.after))
    return f"{change.path} {term_word(change.term)} {before} -> {after}"


def change_json(change: TermChange) -> Json:
    return {
        "account": change.path,
        "term": change.term,
        "before": _plain(change.term, change.before),
        "after": _plain(change.term, change.after),
    }


def _plain(term: str, value: object) -> object:
    return format_share(value) if is_share(term) and isinstance(value, int) else value


def is_share(term: str) -> bool:
    """Whether the term is a share, of everything or of one pool."""
    return term == "share" or term.startswith(OF_POOL)


def diff_sections(title: str, changes: Sequence[TermChange]) -> list[Section]:
    """What differs, a line each."""
    rows = [
        (change.path, term_word(change.term), value_text(change.term, change.before),
         value_text(change.term, change.after))
        for change in changes
    ]  # fmt: skip
    return [Section(title, Table(("account", "term", "before", "after"), rows), [] if rows else ["They are the same."])]


# --- history ----------------------------------------------------------------------------------------------------------
Told = Mapping[int, Sequence[str]]
"""Version -> what its evidence says, in sentences, where that is known."""


def log_sections(entries: Sequence[Logged], account: str = "", told: Told | None = None) -> list[Section]:
    """Every decision, the latest first; those about an account, where one is named."""
    shown = about(entries, account)
    if not shown:
        return [Section("Nothing has been decided" + (f" about {account}" if account else "") + " yet")]
    return [_log_section(entry, (told or {}).get(entry.changeset.version, ())) for entry in reversed(shown)]


def about(entries: Sequence[Logged], account: str) -> list[Logged]:
    """Those that changed the account or what lies below it, under the names too that it had before."""
    names, found = {account}, []
    for entry in reversed(entries):
        if not account or any(_touches(entry, name) for name in names):
            found.append(entry)
        for old, new in _renamed(entry):
            names.update([old + name[len(new) :] for name in names if covers(new, name)])
    return found[::-1]


def _renamed(entry: Logged) -> list[tuple[str, str]]:
    """What an account was called before, and what it is called since."""
    moves = [each for each in entry.changes if each.term == "account" and each.before and each.after]
    return [(str(each.before), str(each.after)) for each in moves]


def _touches(entry: Logged, account: str) -> bool:
    places = [str(place) for change in entry.changes for place in (change.path, change.before, change.after)]
    return any(covers(account, place) for place in places)


def _log_section(entry: Logged, told: Sequence[str]) -> Section:
    made = entry.changeset
    held = "cancelled before it took effect" if entry.cancelled else f"from {minute(made.effective_at)}"
    title = f"Version {made.version}, {day(made.recorded_at)}, {made.author}: {held}"
    notes = [made.reason]
    if made.reverts:
        notes.append(f"takes back version {made.reverts}")
    if made.evidence:
        notes.append(" ".join([f"evidence: {made.evidence}", *(["says:", *told] if told else [])]))
    return Section(title, None, [*notes, *map(change_text, entry.changes)])


def log_json(entries: Sequence[Logged], account: str = "", told: Told | None = None) -> list[Json]:
    return [
        changeset_json(entry.changeset, entry.changes, entry.cancelled)
        | {"evidence_told": list((told or {}).get(entry.changeset.version, ()))}
        for entry in about(entries, account)
    ]


def changeset_json(made: Changeset, changes: Sequence[TermChange], cancelled: bool = False) -> Json:
    """A decision as a record; dates in ISO form."""
    return {
        "version": made.version,
        "based_on": made.based_on,
        "author": made.author,
        "reason": made.reason,
        "recorded_at": date_text(made.recorded_at),
        "effective_at": date_text(made.effective_at),
        "reverts": made.reverts or None,
        "cancelled": cancelled,
        "evidence": made.evidence,
        "changes": [change_json(change) for change in changes],
    }


def blame_sections(blame: Mapping[AccountPath, Changeset], budgets: Budgets, root: str = "") -> list[Section]:
    """Who decided last about each account, and why."""
    rows = []
    pools = budgets.pools_named()
    for path, budget, _ in tree_rows(budgets, root):
        by, named = blame[path], dict(budget.pool_shares)
        shares = (format_share(budget.share), *(format_share(named[pool]) if pool in named else "" for pool in pools))
        rows.append((path, *shares, str(by.version), day(by.effective_at), by.author, by.reason))
    columns = ("account", "share", *pools, "version", "from", "author", "reason")
    return [Section(f"Who decided, for {plural(len(rows), 'account')}", Table(columns, rows, wordy=True))]


def reviews(budgets: Budgets, today: str) -> list[tuple[AccountPath, Budget]]:
    """The budgets whose review is due, the longest due first."""
    due = [(path, budget) for path, budget, _ in budgets.walk() if review_due(budget, today) and not budget.closed]
    return sorted(due, key=lambda each: (each[1].review, each[0]))


def review_sections(budgets: Budgets, today: str) -> list[Section]:
    rows = [
        (path, budget.review, budget.owner, budget.hypothesis or "no hypothesis was stated")
        for path, budget in reviews(budgets, today)
    ]
    title = f"{plural(len(rows), 'review')} due on {today}"
    return [Section(title, Table(("account", "since", "owner", "was to achieve"), rows, wordy=True))]
