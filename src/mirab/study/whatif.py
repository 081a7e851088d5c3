"""What if the budgets were others: the present and a proposal on the same arrivals, account by account, luck set apart.

Both replays are cut into days, and the days are drawn again for both alike (`resampling`). A difference that the draws
explain is called noise. Nothing here replays: it is told the days and reports of two replays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, floor, log
from operator import mul
from typing import Any, TypeAlias

from mirab import __version__
from mirab.model.accounts import covers, ledger_of, ledger_path, plain
from mirab.model.units import AccountPath
from mirab.study.catalogue import Report
from mirab.study.days import AccountDays, Days, gathered, nothing, percentile, shares_of, summed
from mirab.study.reportparts import ledger_notes, ledgers_of, share_of_all
from mirab.study.resampling import (
    FEWEST_DAYS,
    LUCK,
    Draw,
    block_days,
    draw_days,
    freedom,
    spreads,
    standard_error,
)

Json: TypeAlias = dict[str, Any]

ALL = "*"
"""The name of all accounts together, which no account can have."""
_SMALLEST = {"kept": 0.001, "wait_p50_s": 5.0, "wait_p90_s": 5.0}
"""A difference smaller than this is none, whatever the spread: a tenth of a per cent, five seconds; else a GPU-hour."""
_MINUTE = 60.0
_DAY_S = 86_400
_GRID = tuple(1000 * 1.05**step for step in range(330))
"""Waits are counted up to each of these (milliseconds, 5 % apart, to 100 days) when their spread is worked out."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """One number of an account that is compared.

    Attributes:
        better: +1 more is better, -1 less is.
    """

    key: str
    name: str
    better: int
    kind: str


ASPECTS = (
    Aspect("delivered", "delivered", +1, "hours"),
    Aspect("used", "used", +1, "hours"),
    Aspect("kept", "kept", +1, "ratio"),
    Aspect("wait_p50_s", "median wait", -1, "span"),
    Aspect("wait_p90_s", "p90 wait", -1, "span"),
    Aspect("lost", "lost", -1, "hours"),
)
"""``kept``: the delivered part of what was owed, judged at each midnight over the window. ``delivered``: that part of
all that was owed in the log, unit-hours. ``used``: all that ran. Waits to the first start. ``lost``: slot-hours to
preemption."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two replays."""

    report: Report
    days: Days


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared, beside the replays.

    Attributes:
        heirs: account of the present -> the account of the proposal that goes on for it.
        changes: what differs in the budgets; `policy`: settings that differ, with both values; as records.
        exceptions: the exceptions that are tried, as records; empty where budgets are.
        notes: sentences for the reader.
    """

    heirs: Mapping[AccountPath, AccountPath] = field(default_factory=dict)
    changes: Sequence[Json] = ()
    policy: Sequence[Json] = ()
    exceptions: Sequence[Json] = ()
    notes: Sequence[str] = ()


def whatif(
    present: Side, proposed: Side, question: Question | None = None, *, draws: Sequence[Draw] | None = None
) -> Json:
    """Everything about the comparison as JSON with stable keys; see docs/howto/whatif.md."""
    question = question or Question()
    apart = ledgers_of(present.report) == ledgers_of(proposed.report)
    home, stays = _home(question.heirs, apart), _home({}, apart)
    before, after = gathered(present.days, home), gathered(proposed.days, stays)
    names = list(dict.fromkeys([*before.accounts, *after.accounts]))
    count = before.count
    draws = draw_days(count, len(names)) if draws is None else draws
    pairs = {name: (before.accounts.get(name) or nothing(count), after.accounts.get(name) or nothing(count))
             for name in names}  # fmt: skip
    pairs[ALL] = (summed(before), summed(after))
    judged = {aspect.key: _judged(aspect, pairs, count, draws) for aspect in ASPECTS}
    shares = _shares(present, home), _shares(proposed, stays)
    rows = [_row(name, pairs[name], shares, judged) for name in names]
    starts_s = present.report["input"]["starts_s"]
    return {
        "mirab": __version__,
        "log": present.report["input"]["name"],
        "unit": present.report["input"]["unit"],
        "changes": list(question.changes),
        "policy": list(question.policy),
        "exceptions": [each | {"cost": _cost(each, rows, pairs, starts_s)} for each in question.exceptions],
        "method": _method(count, len(draws)),
        "all": _row(ALL, pairs[ALL], shares, judged),
        "accounts": rows,
        "notes": [*question.notes, *_notes(present, proposed)],
        "reports": {"present": present.report, "proposed": proposed.report},
    }


def _notes(present: Side, proposed: Side) -> list[str]:
    """What is compared where pools have shares of their own."""
    before, after = ledgers_of(present.report), ledgers_of(proposed.report)
    if before == after:
        return ledger_notes(after)
    return ["The two sides have shares of different pools of their own: what an account has in all pools is put "
            "together, its share being that of the whole cluster."]  # fmt: skip


def _home(heirs: Mapping[AccountPath, AccountPath], apart: bool) -> Callable[[str], str]:
    """Where an account of the present stands in the proposal; own work of an inner account goes with it.

    `apart`: both have the same ledgers, and an account is compared in each; else all that it has is put together.
    """

    def home(path: str) -> str:
        account = plain(path)
        own = account.endswith("/*")
        account = AccountPath(account[:-2]) if own else account
        heir = heirs.get(account, account)
        return ledger_path(ledger_of(path) if apart else "", f"{heir}/*" if own else heir)

    return home


def _shares(side: Side, home: Callable[[str], str]) -> dict[str, float]:
    """The share of each account, and of all together."""
    by_account = side.report["by_account"]
    return {**shares_of(by_account, home), ALL: sum(map(share_of_all, by_account.values()))}


def _method(days: int, draws: int) -> Json:
    return {"days": days, "block_days": block_days(days), "draws": draws, "luck": LUCK, "enough": days >= FEWEST_DAYS}


# --- the numbers of all accounts --------------------------------------------------------------------------------------
Pair: TypeAlias = tuple[AccountDays, AccountDays]
Point: TypeAlias = tuple[float | None, float | None]


def _judged(aspect: Aspect, pairs: Mapping[str, Pair], days: int, draws: Sequence[Draw]) -> dict[str, Json]:
    """Before, after, difference, spread and verdict of one number of every account: one family of comparisons."""
    points = {name: (_point(aspect, one), _point(aspect, other)) for name, (one, other) in pairs.items()}
    widths = _widths(aspect, points, pairs, days, draws) if days >= FEWEST_DAYS else {}
    return {name: _verdict(aspect, *point, widths.get(name)) for name, point in points.items()}


def _widths(
    aspect: Aspect,
    points: Mapping[str, Point],
    pairs: Mapping[str, Pair],
    days: int,
    draws: Sequence[Draw],
) -> dict[str, float]:
    """How far each account may move by luck, on the scale that it is compared on (waits: their logarithm)."""
    differences, errors = {}, {}
    for name, (one, other) in points.items():
        if one is not None and other is not None:
            differences[name] = _scaled(aspect, other) - _scaled(aspect, one)
            errors[name] = standard_error(_sampled(aspect, pairs[name], draws), days)
    return spreads(differences, errors, freedom(days))


def _scaled(aspect: Aspect, value: float) -> float:
    """Waits are compared as ratios, a minute more or less being the same to all: a tail of days is no bell."""
    return log(value + _MINUTE) if aspect.kind == "span" else value


def _spread(aspect: Aspect, before: float, difference: float, width: float) -> float:
    """The width in the number's own unit, on the side to which it moved."""
    if aspect.kind != "span":
        return width
    return (before + _MINUTE) * (exp(width) - 1 if difference > 0 else 1 - exp(-width))


def _verdict(aspect: Aspect, before: float | None, after: float | None, width: float | None) -> Json:
    """``better``, ``worse``, ``noise``, ``same``, or ``unknown`` where there are too few days or no numbers."""
    told: Json = {"before": _round(before), "after": _round(after), "difference": None, "spread": None}
    if before is None or after is None:
        return told | {"verdict": "same" if before == after else "unknown"}
    difference = after - before
    spread = None if width is None else _spread(aspect, before, difference, width)
    told |= {"difference": _round(difference), "spread": _round(spread)}
    if not difference:
        return told | {"verdict": "same"}
    if spread is None:
        return told | {"verdict": "unknown"}
    if abs(difference) <= max(spread, _SMALLEST.get(aspect.key, 1.0)):
        return told | {"verdict": "noise"}
    return told | {"verdict": "better" if difference * aspect.better > 0 else "worse"}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _point(aspect: Aspect, days: AccountDays) -> float | None:
    """The number of the whole log."""
    if aspect.kind == "span":
        return percentile(sorted(wait for day in days.waits for wait in day), _PERCENT[aspect.key])
    due, got = _midnights(days)
    if aspect.key in ("kept", "delivered"):
        kept = _kept(due, got, (1,) * len(due))
        return kept if aspect.key == "kept" else sum(days.owed) * (kept or 0.0)
    return float(sum(getattr(days, aspect.key)))


_PERCENT = {"wait_p50_s": 50, "wait_p90_s": 90}


def _kept(due: Sequence[float], got: Sequence[float], weights: Sequence[int]) -> float | None:
    """Delivered part of what was owed, over all midnights."""
    owed = sum(map(mul, weights, due))
    return sum(map(mul, weights, got)) / owed if owed > 0 else None


def _sampled(aspect: Aspect, pair: Pair, draws: Sequence[Draw]) -> list[float]:
    """The difference in each draw."""
    one, other = (_sampler(aspect, days) for days in pair)
    return [_scaled(aspect, other(draw)) - _scaled(aspect, one(draw)) for draw in draws]


def _sampler(aspect: Aspect, days: AccountDays) -> Callable[[Draw], float]:
    if aspect.kind == "span":
        return _wait_sampler(days, _PERCENT[aspect.key])
    due, got = _midnights(days)
    if aspect.key == "kept":
        return lambda draw: _kept(due, got, draw.weights) or 0.0
    if aspect.key == "delivered":
        return lambda draw: sum(map(mul, draw.weights, days.owed)) * (_kept(due, got, draw.weights) or 0.0)
    values: list[float] = getattr(days, aspect.key)
    return lambda draw: sum(map(mul, draw.weights, values))


def _midnights(days: AccountDays) -> tuple[list[float], list[float]]:
    """What was owed, and what was delivered of it, by day; see `AccountDays.judge`."""
    return [owed for owed, _ in days.judged], [got for _, got in days.judged]


def _wait_sampler(days: AccountDays, percent: int) -> Callable[[Draw], float]:
    """A percentile of the waits of drawn days, to the next step of the grid: by bisection over counts up to a step."""
    ascending = [sorted(day) for day in days.waits]
    sizes = [len(day) for day in ascending]
    rows: dict[int, list[int]] = {}

    def counts(step: int) -> list[int]:
        found = rows.get(step)
        if found is None:
            found = rows[step] = [bisect_right(day, _GRID[step]) for day in ascending]
        return found

    def sample(draw: Draw) -> float:
        rank = -(-percent * sum(map(mul, draw.weights, sizes)) // 100)
        low, high = 0, len(_GRID) - 1
        while low < high:
            middle = (low + high) // 2
            if sum(map(mul, draw.weights, counts(middle))) >= rank:
                high = middle
            else:
                low = middle + 1
        return _GRID[low] / 1000 if low else 0.0

    return sample


# --- one account ------------------------------------------------------------------------------------------------------
def _row(
    name: str,
    pair: Pair,
    shares: tuple[Mapping[str, float], Mapping[str, float]],
    judged: Mapping[str, dict[str, Json]],
) -> Json:
    """One account, or all of them."""
    found = {aspect.key: judged[aspect.key][name] for aspect in ASPECTS}
    before, after = (each.get(name, 0.0) for each in shares)
    owed = {"before": _round(sum(pair[0].owed)), "after": _round(sum(pair[1].owed))}
    count = {"before": sum(map(len, pair[0].waits)), "after": sum(map(len, pair[1].waits))}
    return {
        "account": name,
        "share": {"before": round(before, 9), "after": round(after, 9)},
        "owed": owed,
        "workloads": count,
        **found,
        "verdict": overall([found[aspect.key]["verdict"] for aspect in ASPECTS]),
    }


def overall(verdicts: Sequence[str]) -> str:
    """``gains``, ``loses``, ``both``, ``noise``, ``same`` or ``unknown``, from the verdicts of its numbers."""
    better, worse = "better" in verdicts, "worse" in verdicts
    if better or worse:
        return "both" if better and worse else "gains" if better else "loses"
    return next((word for word in ("noise", "unknown") if word in verdicts), "same")


def _cost(tried: Json, rows: Sequence[Json], pairs: Mapping[str, Pair], starts_s: float) -> list[Json]:
    """What others do not get because of an exception, those first who pay most while it lasts.

    ``during``: the difference in unit-hours used on the days that it touches; ``used``, ``delivered``: in the whole
    log, in which those who paid may have been paid back.
    """
    days = _touched(tried, starts_s)
    cost = []
    for row in rows:
        own = covers(tried["account"], plain(row["account"]))
        if own or row["used"]["difference"] is None:
            continue
        during = _round(_during(pairs[row["account"]], days)) or 0.0
        used, delivered = row["used"], row["delivered"]
        if min(during, used["difference"], delivered["difference"] or 0.0) < 0:
            cost.append({"account": row["account"], "during": during, "used": used["difference"],
                         "delivered": delivered["difference"],
                         "verdict": overall([used["verdict"], delivered["verdict"]])})  # fmt: skip
    return sorted(cost, key=lambda each: (each["during"], each["account"]))


def _touched(tried: Json, starts_s: float) -> range:
    """The numbers of the days on which it was in force."""
    begin, end = ((tried[key] - starts_s) / _DAY_S for key in ("begin_s", "end_s"))
    return range(max(0, floor(begin)), ceil(end))


def _during(pair: Pair, days: range) -> float:
    before, after = (sum(each.used[days.start : days.stop]) for each in pair)
    return after - before
