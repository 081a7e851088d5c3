"""A proposed file of budgets, policy, exceptions and reservations, put in place of the present one of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mirab.logs.budgetfile import DraftExemption, DraftReservation
from mirab.logs.clusterfile import ClusterFile
from mirab.logs.errors import LogError
from mirab.logs.moments import Moment
from mirab.model.accounts import Budgets
from mirab.model.events import BudgetsChanged
from mirab.model.policy import Exemption, Reservation
from mirab.model.trace import Trace
from mirab.model.units import DAY, WEEK, AccountPath, Duration, Instant
from mirab.model.workloads import Arrival

FIRST_DAY = 3 * DAY
"""Where an exception is tried in a log without a calendar: measures begin to judge on the third midnight."""
_NAMES_SHOWN = 8

T = TypeVar("T", Exemption, Reservation)


def proposed(trace: Trace, file: ClusterFile, *, unknown_accounts: str = "refuse") -> Trace:
    """The trace under what a file proposes; a section that the file does not have stays as it is at present.

    Accounts of the log that the proposal renames or merges (`formerly`) are those of their heirs.

    Raises:
        LogError: other nodes than the present ones, an account of the log that the proposal does not know while
            unknown accounts are refused, or see `ClusterFile`.
    """
    if file.cluster is not None and file.cluster.pools != trace.cluster.pools:
        raise LogError(
            "describes other nodes than the present cluster file", file.path,
            remedy="a what-if compares budgets on the same nodes: leave out its cluster: section",
        )  # fmt: skip
    file.check_pools(trace.cluster)
    origin = _origin(trace)
    budgets = file.budgets or trace.budgets
    changes = file.budget_changes(origin, trace.shift) if file.draft_changes else tuple(trace.budget_changes)
    if file.budgets is not None and not file.draft_changes:
        changes = ()
    in_force, later = _in_force(budgets, changes)
    made = replace(
        trace,
        budgets=in_force,
        budget_changes=later,
        exemptions=file.exemptions(origin, trace.shift) if file.draft_exemptions else trace.exemptions,
        reservations=file.reservations(origin, trace.shift) if file.draft_reservations else trace.reservations,
    )
    return _with_heirs(made, file, trace.budgets, unknown_accounts)


def _origin(trace: Trace) -> int | None:
    """Unix time from which the durations of files count."""
    return None if trace.origin is None else trace.origin - trace.shift


def _in_force(budgets: Budgets, changes: Sequence[BudgetsChanged]) -> tuple[Budgets, tuple[BudgetsChanged, ...]]:
    """The budgets at instant 0, and those to come."""
    for change in changes:
        if change.at <= 0:
            budgets = change.budgets
    return budgets, tuple(change for change in changes if change.at > 0)


def _with_heirs(trace: Trace, file: ClusterFile, present: Budgets, unknown_accounts: str) -> Trace:
    """Work of accounts that go on under another name is theirs."""
    heirs = trace.budgets.heirs()
    known = {str(path) for path, _, _ in trace.budgets.walk()}
    before = {str(path) for path, _, _ in present.walk()}
    missing: dict[str, int] = {}
    arrivals: list[Arrival] = []
    for arrival in trace.arrivals:
        account = arrival.workload.account
        if account in heirs:
            workload = replace(arrival.workload, account=heirs[account])
            arrival = replace(arrival, workload=workload)
        elif account not in known and account in before:
            missing[account] = missing.get(account, 0) + 1
        arrivals.append(arrival)
    if missing and unknown_accounts == "refuse":
        raise _missing(missing, file)
    exemptions = [_moved(each, heirs) for each in trace.exemptions]
    reservations = [_moved(each, heirs) for each in trace.reservations]
    held: list[Exemption | Reservation] = [*exemptions, *reservations]
    orphan = next((each for each in held if each.account not in known), None)
    if orphan is not None:
        raise LogError(
            f"has no account {orphan.account}, which {orphan.id} is an exception for", file.path,
            remedy="add the account, or write an exceptions: section without it",
        )  # fmt: skip
    arrivals = arrivals if heirs else list(trace.arrivals)
    return replace(trace, arrivals=arrivals, exemptions=exemptions, reservations=reservations)


def _moved(held: T, heirs: dict[AccountPath, AccountPath]) -> T:
    return replace(held, account=heirs.get(AccountPath(held.account), held.account))


def _missing(missing: dict[str, int], file: ClusterFile) -> LogError:
    names = sorted(missing, key=lambda name: (-missing[name], name))
    shown = ", ".join(f"{name} ({missing[name]:,} workloads)" for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return LogError(
        f"has no account for work of the log: {shown}{more}", file.path,
        remedy="give each a share, or say `formerly:` in the account that goes on for it; "
        "--set unknown_accounts=zero lets them in with share 0",
    )  # fmt: skip


# --- one exception ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Tried:
    """An exception or reservation that is tried, and where its begin was put (`moved`: not where its dates say)."""

    held: Exemption | Reservation
    moved: Duration


def with_exceptions(trace: Trace, file: ClusterFile, place: Instant | None = None) -> tuple[Trace, list[Tried]]:
    """The trace with the exceptions and reservations of a file besides its own.

    One whose time lies outside the log, as next month does, is tried inside it: moved by whole weeks where the log has
    a calendar, to the third day where it has none, or to `place`.

    Raises:
        LogError: the file has none, or they are of accounts or nodes that there are not.
    """
    drafts: list[DraftExemption | DraftReservation] = [*file.draft_exemptions, *file.draft_reservations]
    if not drafts:
        raise LogError("has no exceptions and no reservations", file.path, remedy="write a section exceptions:")
    file.check_accounts(trace.budgets)
    file.check_nodes(trace.cluster)
    taken = [*(each.id for each in trace.exemptions), *(each.id for each in trace.reservations)]
    tried = [_tried(draft, trace, place, taken) for draft in drafts]
    exemptions = [each.held for each in tried if isinstance(each.held, Exemption)]
    reservations = [each.held for each in tried if isinstance(each.held, Reservation)]
    made = replace(
        trace,
        exemptions=(*trace.exemptions, *exemptions),
        reservations=(*trace.reservations, *reservations),
    )
    return made, tried


def _tried(draft: DraftExemption | DraftReservation, trace: Trace, place: Instant | None, taken: list[str]) -> Tried:
    begin, end = (_instant(moment, trace) for moment in (draft.begin, draft.end))
    if begin is None or end is None:
        begin, end = _dates(draft)
        target = trace.starts_at + FIRST_DAY if place is None else place
        moved = target - begin
    else:
        moved = _weeks(begin, end, trace) if place is None else place - begin
    if end <= begin:
        raise draft.entry.error(f"exception {draft.value.id} ends before it begins", "swap begin and end")
    name = draft.value.id if draft.value.id not in taken else f"{draft.value.id}-tried"
    return Tried(replace(draft.value, id=name, begin=begin + moved, end=end + moved), moved)


def placed(held: Exemption | Reservation, trace: Trace) -> tuple[Exemption | Reservation, Duration]:
    """An exception put into the period of a log, and how far it was moved for that.

    By whole weeks; where it fits whole and not so, as late as it does; where it is longer, from the beginning on.
    """
    moved = _weeks(held.begin, held.end, trace)
    if not trace.starts_at <= held.begin + moved < held.end + moved <= trace.ends_at:
        moved = max(trace.starts_at - held.begin, trace.ends_at - held.end)
    return replace(held, begin=held.begin + moved, end=held.end + moved), moved


def _instant(moment: Moment, trace: Trace) -> Instant | None:
    """On the trace's clock; None for a date where the log has no calendar."""
    origin = _origin(trace)
    if moment.since_start is None and origin is None:
        return None
    return moment.at(origin) - trace.shift


def _dates(draft: DraftExemption | DraftReservation) -> tuple[Instant, Instant]:
    """Both ends on one clock, where only their distance matters."""
    if draft.begin.unix_ms is None or draft.end.unix_ms is None:
        raise draft.entry.error(
            "one of begin and end is a date, the other a duration from the log's start", "write both alike"
        )
    return draft.begin.unix_ms, draft.end.unix_ms


def _weeks(begin: Instant, end: Instant, trace: Trace) -> Duration:
    """By how much to move it into the period: whole weeks, so that weekdays stay; as late as it fits whole."""
    if trace.starts_at <= begin < trace.ends_at:
        return 0
    if begin >= trace.ends_at:
        weeks = -(-(end - trace.ends_at) // WEEK)
        moved = -weeks * WEEK
        return moved if begin + moved >= trace.starts_at else -((begin - trace.starts_at) // WEEK) * WEEK
    return -(-(trace.starts_at - begin) // WEEK) * WEEK
