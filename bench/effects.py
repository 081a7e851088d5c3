"""An account's lot when it is sly against when it is honest, and the tables of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from statistics import fmean

from bench.outcomes import ORIGIN_MARK, Outcomes
from mirab.model.units import AccountPath

NOISE = "noise"


@dataclass(frozen=True, slots=True)
class Effect:
    """Changes in parts of what it was (0.02 = 2 % more), where nothing else is said. None = cannot be compared."""

    adversary: str
    account: str
    repeat: int
    useful: float
    """Its GPU-hours of work that lasts."""
    turnaround: float
    """Its mean time to the end of what was done both times; less is a gain."""
    wait_mean: float
    wait_p50_s: float
    """In seconds more: a median of a few seconds has no useful ratio."""
    wait_p90: float
    lost: float
    """Its lost GPU-hours in parts of its useful ones: points more."""
    delivered: float | None
    """Its delivered ratio: points more."""
    others_useful: float
    others_turnaround: float
    others_wait_p90: float


HEADS = {
    "useful": "its useful work",
    "turnaround": "its turnaround",
    "wait_mean": "its mean wait",
    "wait_p50_s": "its p50",
    "wait_p90": "its p90",
    "lost": "its lost work",
    "delivered": "its delivered ratio",
    "others_useful": "others' useful work",
    "others_turnaround": "others' turnaround",
    "others_wait_p90": "others' p90",
}
Values = dict[str, float | None]


def compare(
    name: str, account: AccountPath, repeat: int, honest: Outcomes, sly: Outcomes, delivered: float | None
) -> Effect:
    """The account and all others, in two replays of what is in truth the same log."""

    def mine(path: AccountPath) -> bool:
        return path.partition(ORIGIN_MARK)[0] == account

    def theirs(path: AccountPath) -> bool:
        return not mine(path)

    before, after = honest.got(mine), sly.got(mine)
    others_before, others_after = honest.got(theirs), sly.got(theirs)
    return Effect(
        adversary=name,
        account=account,
        repeat=repeat,
        useful=_more(before.useful, after.useful),
        turnaround=_turnaround(honest, sly, mine),
        wait_mean=_more(before.wait_mean, after.wait_mean),
        wait_p50_s=after.wait_p50 - before.wait_p50,
        wait_p90=_more(before.wait_p90, after.wait_p90),
        lost=after.lost / max(1, after.useful) - before.lost / max(1, before.useful),
        delivered=delivered,
        others_useful=_more(others_before.useful, others_after.useful),
        others_turnaround=_turnaround(honest, sly, theirs),
        others_wait_p90=_more(others_before.wait_p90, others_after.wait_p90),
    )


def _more(before: float, after: float) -> float:
    return after / before - 1 if before else 0.0


def _turnaround(honest: Outcomes, sly: Outcomes, belongs: Callable[[AccountPath], bool]) -> float:
    before, after = honest.turnarounds(belongs), sly.turnarounds(belongs)
    both = sorted(before.keys() & after.keys())
    return _more(sum(before[each] for each in both), sum(after[each] for each in both))


def means(effects: Sequence[Effect]) -> Values:
    """Field by field the mean of what could be compared."""
    found: Values = {}
    for field in HEADS:
        known = [value for each in effects if (value := getattr(each, field)) is not None]
        found[field] = fmean(known) if known else None
    return found


def noise_band(effects: Sequence[Effect]) -> Values:
    """The largest mean over the accounts that came of moving submissions by a minute: a gain below it is luck."""
    noise = sorted((each for each in effects if each.adversary == NOISE), key=lambda each: each.repeat)
    bands = [means(list(group)) for _, group in groupby(noise, key=lambda each: each.repeat)]
    return {field: max((abs(band[field] or 0.0) for band in bands), default=None) for field in HEADS}


def by_adversary(effects: Sequence[Effect], names: Sequence[str]) -> dict[str, Values]:
    return {name: means([each for each in effects if each.adversary == name]) for name in names}


def cells(values: Values) -> list[str]:
    return [_cell(field, values[field]) for field in HEADS]


def _cell(field: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.0f} s" if field == "wait_p50_s" else f"{100 * value:+.1f} %"


def effect_rows(effects: Sequence[Effect], names: Sequence[str]) -> list[list[str]]:
    """One row an adversary and account (means over the repeats), then the means of all, then the noise."""
    rows = [["adversary", "account", *HEADS.values()]]
    for name in names:
        mine = [each for each in effects if each.adversary == name]
        rows += [
            [name, account, *cells(means([each for each in mine if each.account == account]))]
            for account in dict.fromkeys(each.account for each in mine)
        ]
    rows += [[name, "mean", *cells(values)] for name, values in by_adversary(effects, names).items()]
    rows.append([NOISE, "largest mean", *(cell.replace("+", "±") for cell in cells(noise_band(effects)))])
    return rows


def markdown_rows(effects: Sequence[Effect], does: dict[str, str]) -> list[list[str]]:
    """One row an adversary in words, means over accounts and repeats, and the noise last."""
    rows = [["adversary", *HEADS.values()]]
    rows += [[does[name], *cells(values)] for name, values in by_adversary(effects, list(does)).items()]
    noise = [cell.replace("+", "±") for cell in cells(noise_band(effects))]
    rows.append(["*noise: honest, each submission up to a minute later*", *noise])
    return rows


def as_json(effects: Sequence[Effect]) -> list[dict[str, object]]:
    assert set(HEADS) <= {field.name for field in fields(Effect)}
    return [asdict(each) for each in effects]
