"""Accounts that a proposal closes or leaves out: told by name, since what they ask for is refused from then on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirab.model.accounts import Budgets, covers
from mirab.model.units import AccountPath
from mirab.model.workloads import Arrival
from mirab.study.formats import plural


def left_out(present: Budgets, wanted: Budgets, after: Budgets) -> list[AccountPath]:
    """Accounts of the present that a proposal does not name, the uppermost of each.

    Args:
        after: the tree that would follow if they were closed.
    """
    gone = [path for path, budget, _ in after.walk()
            if budget.closed and wanted.find(path) is None and not _closed(present, path)]  # fmt: skip
    return _uppermost(gone)


def _uppermost(paths: Sequence[AccountPath]) -> list[AccountPath]:
    return [path for path in paths if not any(above != path and covers(above, path) for above in paths)]


def dropped_told(present: Budgets, proposed: Budgets) -> list[str]:
    """Which accounts a file leaves out that no work of a log asks for; nothing if it leaves out none."""
    heirs = proposed.heirs()
    gone = [path for path, budget, _ in present.walk()
            if not budget.closed and proposed.find(path) is None and path not in heirs]  # fmt: skip
    names = _uppermost(gone)
    if not names:
        return []
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return [
        f"{', '.join(names)} {verb} left out of the proposal: as a change of budgets this is refused until it says "
        f"what is to become of {them}."
    ]


def left_out_told(names: Sequence[AccountPath], today: str) -> str:
    """Why such a proposal is not tried, and what to do."""
    it = "it" if len(names) == 1 else "each of them"
    return (
        f"the proposal leaves out {', '.join(names)}: to close an account is a decision, so say of {it} what is to "
        f"become of it. Give it its share, or close it (share: 0%, closed: {today}), or name it under formerly: in the "
        "account that goes on for it"
    )


def closed_told(present: Budgets, proposed: Budgets, arrivals: Iterable[Arrival]) -> list[str]:
    """Which accounts a proposal closes, and how much of what came in for them is refused; nothing if it closes none."""
    known = [path for path, budget, _ in proposed.walk() if budget.closed and not _closed(present, path)]
    if not known:
        return []
    count = sum(any(covers(path, each.workload.account) for path in known) for each in arrivals)
    verb = "is" if len(known) == 1 else "are"
    return [
        f"{', '.join(known)} {verb} closed in the proposal: {plural(count, 'workload')} that came in for "
        f"{'it' if len(known) == 1 else 'them'} {'is' if count == 1 else 'are'} refused there."
    ]


def _closed(budgets: Budgets, path: str) -> bool:
    found = budgets.find(path)
    return found is not None and bool(found.closed)
