"""The parts of a cluster file that are about people: budgets, their changes, reservations and exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mirab.logs.contracts import parse_flag
from mirab.logs.fields import count, day, span
from mirab.logs.moments import Calendar, Moment, parse_moment
from mirab.logs.yamltree import Entry, nearest
from mirab.model.accounts import (
    LEDGER_MARK,
    REST,
    Budget,
    Budgets,
    ShareWithoutPool,
    child_path,
    share_of_pool,
    sorted_shares,
)
from mirab.model.events import BudgetsChanged
from mirab.model.policy import DRAIN_PAUSE, EXEMPTIONS, Exemption, Reservation
from mirab.model.resources import Cluster
from mirab.model.units import WHOLE, format_share, parse_share

T = TypeVar("T")

BUDGET_KEYS = (
    "share", "pool_shares", "children", "owner", "review", "hypothesis", "outcome", "save_for_gangs", "equal_users",
    "formerly", "closed", "gpus_max", "min_runtime_cap", "gang_gpus_max",
)  # fmt: skip
RESERVATION_KEYS = (
    "id", "account", "nodes", "gpus_per_node", "from", "until", "owner", "approver", "reason", "pool",
)  # fmt: skip
RESERVATION_NEEDS = ("account", "nodes", "gpus_per_node", "from", "until", "owner", "approver", "reason")
EXEMPTION_KEYS = (
    "id", "kind", "account", "owner", "approver", "reason", "begin", "end", "cap", "share", "donor", "node",
)  # fmt: skip
_NEEDED = {"longer-minimum": "cap", "extra-share": "share", DRAIN_PAUSE: "node"}
EXEMPTION_NEEDS = ("kind", "account", "owner", "approver", "reason", "begin", "end")
DEEPEST = 32


def budgets_from(entry: Entry) -> Budgets:
    """The tree of a `budgets` section.

    Raises:
        LogError: a share without %, siblings of more than 100 % (named), or anything else that is no budget.
    """
    return Budgets(_siblings(entry, "", 0))


def _siblings(entry: Entry, parent: str, depth: int) -> tuple[Budget, ...]:
    where = parent or "budgets"
    if depth > DEEPEST:
        raise entry.error(f"budgets are nested more than {DEEPEST} deep", "flatten them")
    budgets = tuple(_budget(name, item, child_path(parent, name), depth) for name, item in entry.table(where).items())
    if not budgets:
        raise entry.error(f"{where} is empty", "name at least one account with its share")
    total = sum(budget.share for budget in budgets)
    if total > WHOLE:
        names = ", ".join(f"{budget.name} {format_share(budget.share)}" for budget in budgets)
        raise entry.error(
            f"the shares under {where} sum to {format_share(total)}, more than 100%: {names}", "lower some"
        )
    for pool in dict.fromkeys(pool for budget in budgets for pool, _ in budget.pool_shares):
        _check_pool(entry, where, pool, budgets)
    return budgets


def _check_pool(entry: Entry, where: str, pool: str, budgets: Sequence[Budget]) -> None:
    """What siblings have of one pool is no more than all of it."""
    have = [(budget.name, share_of_pool(budget, budgets, pool)) for budget in budgets]
    total = sum(share for _, share in have)
    if total > WHOLE:
        names = ", ".join(f"{name} {format_share(share)}" for name, share in have if share)
        raise entry.error(
            f"the shares of the pool {pool} under {where} sum to {format_share(total)}, more than 100%: {names}",
            "lower some",
        )


def _budget(name: str, entry: Entry, path: str, depth: int) -> Budget:
    if "/" in name:
        raise entry.error(f"the account name {name!r} holds a '/'", "nest it under children: instead")
    if LEDGER_MARK in name:
        raise entry.error(f"the account name {name!r} holds a ':'", "that parts a pool from an account (h100:vision): "
                          "choose another name")  # fmt: skip
    if name == REST or name != name.strip():
        raise entry.error(f"{path!r} cannot be an account: '*' is what children leave, and spaces at the ends mislead",
                          "choose another name")  # fmt: skip
    found = entry.fields(f"account {path}", BUDGET_KEYS, ("share",))
    return Budget(
        name=name,
        share=found["share"].parsed(f"share of {path}", parse_share),
        pool_shares=_pool_shares(found["pool_shares"], path) if "pool_shares" in found else (),
        children=_siblings(found["children"], path, depth + 1) if "children" in found else (),
        owner=_optional(found, "owner", str, ""),
        review=_optional(found, "review", day, ""),
        hypothesis=_optional(found, "hypothesis", str, ""),
        save_for_gangs=_optional(found, "save_for_gangs", parse_flag, False),
        equal_users=_optional(found, "equal_users", parse_flag, True),
        outcome=_optional(found, "outcome", str, ""),
        formerly=_paths(found["formerly"]) if "formerly" in found else (),
        closed=_optional(found, "closed", day, ""),
        gpus_max=_optional(found, "gpus_max", count, None),
        min_runtime_cap=_optional(found, "min_runtime_cap", span, None),
        gang_gpus_max=_optional(found, "gang_gpus_max", count, None),
    )


def _pool_shares(entry: Entry, path: str) -> tuple[tuple[str, int], ...]:
    """Pool -> share of what the parent has of that pool alone."""
    found = {}
    for pool, item in entry.table(f"pool_shares of {path}").items():
        if not pool or "/" in pool or LEDGER_MARK in pool:
            raise entry.error(f"the pool {pool!r} of {path} cannot have shares of its own", "rename the pool")
        found[pool] = item.parsed(f"share of the pool {pool} of {path}", parse_share)
    return sorted_shares(found)


def check_pools(section: Entry, budgets: Budgets, pools: Sequence[str], besides: Sequence[str] = ()) -> None:
    """Raises LogError for the first share of a pool that there is not, with its line.

    Args:
        section: where the budgets stand.
        besides: see `Budgets.share_without_pool`.
    """
    wrong = budgets.share_without_pool(pools, besides)
    if wrong is not None:
        place = _pool_share_entry(section, wrong)
        raise place.error(wrong.told(), f"did you mean {nearest(wrong.pool, pools)}?" if pools else "")


def _pool_share_entry(section: Entry, share: ShareWithoutPool) -> Entry:
    """Where a share of a pool stands in a section of budgets."""
    parent, _, name = share.account.rpartition("/")
    for above in parent.split("/") if parent else ():
        section = section.table(above)[above].table(above)["children"]
    return section.table(name)[name].table(name)["pool_shares"].table(name)[share.pool]


def _paths(entry: Entry) -> tuple[str, ...]:
    """One path, or a list of them."""
    if isinstance(entry.value, list):
        return tuple(item.text("formerly") for item in entry.value)
    return (entry.text("formerly"),)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A thing with moments that become instants when the log's origin is known."""

    entry: Entry

    def instant(self, key: str, moment: Moment, origin: int | None, shift: int) -> int:
        try:
            return moment.at(origin) - shift
        except ValueError as error:
            raise self.entry.error(f"{key}: {error}") from error


@dataclass(frozen=True, slots=True)
class BudgetChange(_Draft):
    moment: Moment
    budgets: Budgets
    author: str
    reason: str

    @property
    def section(self) -> Entry:
        """Where its budgets stand."""
        return self.entry.table("the budget change")["budgets"]

    def at(self, origin: int | None, shift: int) -> BudgetsChanged:
        return BudgetsChanged(self.instant("at", self.moment, origin, shift), self.budgets, self.author, self.reason)


@dataclass(frozen=True, slots=True)
class DraftReservation(_Draft):
    begin: Moment
    end: Moment
    value: Reservation

    def at(self, origin: int | None, shift: int) -> Reservation:
        begin = self.instant("from", self.begin, origin, shift)
        end = self.instant("until", self.end, origin, shift)
        if end <= begin:
            raise self.entry.error(f"reservation {self.value.id} ends before it begins", "swap from and until")
        return replace(self.value, begin=begin, end=end)


@dataclass(frozen=True, slots=True)
class DraftExemption(_Draft):
    begin: Moment
    end: Moment
    value: Exemption

    def at(self, origin: int | None, shift: int) -> Exemption:
        begin = self.instant("begin", self.begin, origin, shift)
        end = self.instant("end", self.end, origin, shift)
        if end <= begin:
            raise self.entry.error(f"exception {self.value.id} ends before it begins", "swap begin and end")
        return replace(self.value, begin=begin, end=end)


def budget_changes_from(entry: Entry | None, calendar: Calendar) -> tuple[BudgetChange, ...]:
    """Later trees of budgets, each with the moment from which it holds."""
    if entry is None:
        return ()
    changes = []
    for item in entry.rows("budget_changes"):
        found = item.fields("the budget change", ("at", "budgets", "author", "reason"), ("at", "budgets"))
        words = {key: found[key].text(key) if key in found else "" for key in ("author", "reason")}
        moment = found["at"].parsed("at", lambda text: parse_moment(text, calendar))
        changes.append(BudgetChange(item, moment, budgets_from(found["budgets"]), **words))
    return tuple(changes)


def reservations_from(
    entry: Entry | None, calendar: Calendar, budgets: Budgets | None, pools: Sequence[str] | None
) -> tuple[DraftReservation, ...]:
    """Reservations; accounts and pools must be known where the file says which there are."""
    if entry is None:
        return ()
    drafts: list[DraftReservation] = []
    for number, item in enumerate(entry.rows("reservations"), 1):
        found = item.fields("the reservation", RESERVATION_KEYS, RESERVATION_NEEDS)
        _known_account(found["account"], budgets)
        pool = found["pool"].text("pool") if "pool" in found else ""
        if pool and pools is not None and pool not in pools:
            raise found["pool"].error(f"there is no pool {pool!r}", f"did you mean {nearest(pool, pools)}?")
        value = Reservation(
            id=found["id"].text("id") if "id" in found else f"r{number}",
            account=found["account"].text("account"),
            nodes=found["nodes"].parsed("nodes", _at_least_one),
            gpus_per_node=found["gpus_per_node"].parsed("gpus_per_node", _at_least_one),
            begin=0,
            end=0,
            pool=pool,
            **{key: found[key].text(key) for key in ("owner", "approver", "reason")},
        )
        begin, end = (found[key].parsed(key, lambda text: parse_moment(text, calendar)) for key in ("from", "until"))
        drafts.append(DraftReservation(item, begin, end, value))
    _unique(entry, "reservation", [draft.value.id for draft in drafts])
    return tuple(drafts)


def exemptions_from(entry: Entry | None, calendar: Calendar, budgets: Budgets | None) -> tuple[DraftExemption, ...]:
    """Exceptions to the rules, each with owner, approver, reason, begin and end."""
    if entry is None:
        return ()
    drafts: list[DraftExemption] = []
    for number, item in enumerate(entry.rows("exceptions"), 1):
        found = item.fields("the exception", EXEMPTION_KEYS, EXEMPTION_NEEDS)
        _known_account(found["account"], budgets)
        if "donor" in found:
            _known_account(found["donor"], budgets)
        kind = found["kind"].parsed("kind", _kind)
        needed = _NEEDED.get(kind)
        if needed and needed not in found:
            raise item.error(f"an exception of kind {kind} has no {needed!r}", "add it")
        value = Exemption(
            id=found["id"].text("id") if "id" in found else f"x{number}",
            kind=kind,
            begin=0,
            end=0,
            cap=_optional(found, "cap", span, 0),
            share=_optional(found, "share", parse_share, 0),
            donor=_optional(found, "donor", str, ""),
            node=_optional(found, "node", str, ""),
            **{key: found[key].text(key) for key in ("account", "owner", "approver", "reason")},
        )
        begin, end = (found[key].parsed(key, lambda text: parse_moment(text, calendar)) for key in ("begin", "end"))
        drafts.append(DraftExemption(item, begin, end, value))
    _unique(entry, "exception", [draft.value.id for draft in drafts])
    return tuple(drafts)


def _optional(found: dict[str, Entry], key: str, parse: Callable[[str], T], default: T) -> T:
    return found[key].parsed(key, parse) if key in found else default


def _known_account(entry: Entry, budgets: Budgets | None) -> None:
    account = entry.text("account")
    known = [str(path) for path, _, _ in budgets.walk()] if budgets is not None else []
    if known and account not in known:
        raise entry.error(f"there is no account {account!r} in the budgets", f"did you mean {nearest(account, known)}?")


def check_accounts(drafts: Sequence[DraftReservation | DraftExemption], budgets: Budgets) -> None:
    """Raises LogError for the first reservation or exception of an account that is not in the budgets."""
    for draft in drafts:
        found = draft.entry.table("the entry")
        for key in ("account", "donor"):
            if key in found:
                _known_account(found[key], budgets)


def check_nodes(drafts: Sequence[DraftExemption], cluster: Cluster) -> None:
    """Raises LogError for the first exception of a node that the cluster has not."""
    known = [node for pool in cluster.pools for node in pool.nodes]
    for draft in drafts:
        if draft.value.node and draft.value.node not in known:
            entry = draft.entry.table("the entry")["node"]
            remedy = f"did you mean {nearest(draft.value.node, known)}?"
            raise entry.error(f"there is no node {draft.value.node!r} in the cluster", remedy)


def _unique(entry: Entry, what: str, ids: list[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise entry.error(f"the {what} {name!r} stands twice", "give each its own id")
        seen.add(name)


def _kind(text: str) -> str:
    if text not in EXEMPTIONS:
        raise ValueError(f"no kind {text!r}: did you mean {nearest(text, EXEMPTIONS)}?")
    return text


def _at_least_one(text: str) -> int:
    value = count(text)
    if not value:
        raise ValueError("0 is too few: write a whole number from 1 on")
    return value
