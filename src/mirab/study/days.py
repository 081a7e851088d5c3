"""What each account was owed, got, lost and waited, day by day: what a comparison is resampled from."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mirab.model.accounts import ledger_of
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, UNIT, WHOLE, Duration, Instant
from mirab.study.measures import Measures
from mirab.study.owed import Leaf, Mark
from mirab.study.period import FIRST_MIDNIGHT

_SCALED_HOUR = WHOLE * UNIT * HOUR
_UNIT_HOUR = UNIT * HOUR


@dataclass(slots=True)
class AccountDays:
    """One account, a value for each day.

    Attributes:
        owed, charged, used: unit-hours; `used` is all that ran, charged or not.
        lost: slot-hours lost to preemption.
        waits: those of the workloads that were submitted on the day, in milliseconds.
        judged: the day's part of what was owed and delivered, summed over the windows of all midnights; see `judge`.
    """

    owed: list[float]
    charged: list[float]
    used: list[float]
    lost: list[float]
    waits: list[array[int]]
    judged: list[tuple[float, float]] = field(default_factory=list)

    def judge(self, window: int) -> AccountDays:
        """Work out `judged` anew, by windows of so many days.

        At each midnight from the third on, min(charged, owed) of the window is what was charged in it or what was owed
        in it: the days of the window take their part of the one that counts. So the sums are those over all midnights,
        and yet each day stands for itself and can be drawn again.
        """
        owed, charged = [0.0, *accumulate(self.owed)], [0.0, *accumulate(self.charged)]
        due, got = [0.0] * len(self.owed), [0.0] * len(self.owed)
        for midnight in range(min(FIRST_MIDNIGHT, len(self.owed)), len(owed)):
            begin = max(0, midnight - window)
            had = charged[midnight] - charged[begin]
            counts = self.charged if 0 <= had < owed[midnight] - owed[begin] else self.owed if had > 0 else None
            for day in range(begin, midnight):
                due[day] += self.owed[day]
                got[day] += 0.0 if counts is None else counts[day]
        self.judged = list(zip(due, got, strict=True))
        return self


@dataclass(slots=True)
class Days:
    """A replay by days.

    Attributes:
        count: days; what is left over after the last whole one belongs to it.
        window: days over which what was owed and delivered is judged.
    """

    count: int
    window: int
    accounts: dict[str, AccountDays] = field(default_factory=dict)


def days_of(seen: Measures) -> Days:
    """The days of a replay that has ended."""
    begins = day_begins(seen.trace)
    found = Days(len(begins), max(1, round(seen.policy.window / DAY)))
    for leaf in seen.ledger.leaves.values():
        found.accounts[leaf.path] = _account(leaf, begins, seen.now).judge(found.window)
    for job in seen.jobs.values():
        if not job.started:
            day = _day(job.workload.submitted_at, begins)
            found.accounts[job.leaf.path].waits[day].append(job.waited(seen.now))
    return found


def day_begins(trace: Trace) -> list[Instant]:
    """When each day of the period begins; a period shorter than a day is one."""
    whole = max(1, (trace.ends_at - trace.starts_at) // DAY)
    return [trace.starts_at + day * DAY for day in range(whole)]


def _day(at: Instant, begins: Sequence[Instant]) -> int:
    return min(max(0, (at - begins[0]) // DAY), len(begins) - 1)


def _account(leaf: Leaf, begins: Sequence[Instant], now: Instant) -> AccountDays:
    steps = _steps(leaf, begins, now)
    waits: list[array[int]] = [array("q") for _ in begins]
    for asked, waited in zip(leaf.asked, leaf.waits, strict=True):
        waits[_day(asked, begins)].append(waited)
    return AccountDays(
        owed=[step.owed / _SCALED_HOUR for step in steps],
        charged=[step.charged / _UNIT_HOUR for step in steps],
        used=[(step.charged + step.uncharged) / _UNIT_HOUR for step in steps],
        lost=[step.lost / HOUR for step in steps],
        waits=waits,
    )


def _steps(leaf: Leaf, begins: Sequence[Instant], now: Instant) -> list[Mark]:
    """What was added on each day; a leaf, or a replay, that ended early has nothing on the days after."""
    known = Mark()
    steps = []
    for end in [*begins[1:], None]:
        total = leaf.so_far() if end is None or end > now else leaf.marks.get(end, known)
        steps.append(Mark(*(after - before for after, before in zip(total, known, strict=True))))
        known = total
    return steps


def gathered(days: Days, home: Callable[[str], str]) -> Days:
    """The same with accounts put together: `home` says where each belongs.

    What is owed in one ledger is not paid in another: those of several are judged each by itself, and added up.
    """
    by_ledger: dict[tuple[str, str], AccountDays] = {}
    for path, account in days.accounts.items():
        key = home(path), ledger_of(path)
        known = by_ledger.get(key)
        by_ledger[key] = account if known is None else _together(known, account).judge(days.window)
    made = Days(days.count, days.window)
    for (name, _), account in by_ledger.items():
        known = made.accounts.get(name)
        made.accounts[name] = account if known is None else _together(known, account)
    return made


def summed(days: Days) -> AccountDays:
    """All accounts together; each is judged by itself."""
    total = nothing(days.count)
    for account in days.accounts.values():
        total = _together(total, account)
    return total


def nothing(count: int) -> AccountDays:
    """An account that asked for nothing."""
    none = [0.0] * count
    return AccountDays(none, none, none, none, [array("q") for _ in range(count)], [(0.0, 0.0)] * count)


def _together(one: AccountDays, other: AccountDays) -> AccountDays:
    def added(name: str) -> list[float]:
        return [a + b for a, b in zip(getattr(one, name), getattr(other, name), strict=True)]

    waits = [a + b for a, b in zip(one.waits, other.waits, strict=True)]
    judged = [(a + c, b + d) for (a, b), (c, d) in zip(one.judged, other.judged, strict=True)]
    return AccountDays(added("owed"), added("charged"), added("used"), added("lost"), waits, judged)


def percentile(waits: Sequence[Duration], percent: int) -> float | None:
    """Nearest rank, in seconds, of ascending waits; None where there are none."""
    if not waits:
        return None
    return waits[max(1, -(-percent * len(waits) // 100)) - 1] / 1000


def shares_of(by_account: Mapping[str, Mapping[str, float]], home: Callable[[str], str]) -> dict[str, float]:
    """The share that each account holds in a report, put together likewise.

    Of one ledger it is a share of that ledger; of accounts put together from several it is of all pools.
    """
    ledgers: dict[str, set[str]] = {}
    for path in by_account:
        ledgers.setdefault(home(path), set()).add(ledger_of(path))
    shares: dict[str, float] = {}
    for path, account in by_account.items():
        name = home(path)
        whole = len(ledgers[name]) > 1 or ledger_of(name) not in ledgers[name]
        share = account.get("share_of_all", account["share"]) if whole else account["share"]
        shares[name] = shares.get(name, 0.0) + share
    return shares
