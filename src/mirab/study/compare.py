"""The same arrivals under several policies: the reports, and how far each number is from the first one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import Instant
from mirab.study.catalogue import BY_KEY, INSTITUTE_REPAIRS, MEASURES, labels, repairs_against_priority
from mirab.study.replays import replay_report

Report = dict[str, Any]


def compare(
    trace: Trace,
    policies: Sequence[Policy],
    *,
    progress: Callable[[int, Instant], None] | None = None,
) -> Report:
    """Replay the trace under each policy, and compare with the first.

    Args:
        progress: called now and then with the number of the policy and the instant reached.

    Raises:
        ValueError: no policy, or see `replay_report`.
    """
    if not policies:
        raise ValueError("there is nothing to compare: name at least one policy")
    return comparison(
        [replay_report(trace, policy, progress=_numbered(progress, place)) for place, policy in enumerate(policies)]
    )


def _numbered(progress: Callable[[int, Instant], None] | None, place: int) -> Callable[[Instant], None] | None:
    return None if progress is None else lambda instant: progress(place, instant)


def comparison(reports: Sequence[Report]) -> Report:
    """The reports, what tells them apart, and how they stand beside what the institute reported.

    ``differences`` has a row for each number of `metrics`: its `key`, the `values` by report, `delta` = value minus
    the first report's, `change` = delta / first (None where that is 0), and `better`: +1, -1, or 0 by the catalogue.
    """
    return {
        "labels": labels(reports),
        "reports": list(reports),
        "differences": [_difference(key, values, reports) for key, values in _side_by_side(reports)],
        "institute": against_institute(reports),
    }


def _side_by_side(reports: Sequence[Report]) -> Iterator[tuple[str, list[float | None]]]:
    flat = [dict(numbers(report["metrics"])) for report in reports]
    keys = dict.fromkeys(key for each in flat for key in each)
    for key in keys:
        yield key, [each.get(key) for each in flat]


def numbers(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    """Every number of a nested report with its dotted key, in its order; None for what is not known."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, int | float):
            yield f"{prefix}{key}", value


def _difference(key: str, values: list[float | None], reports: Sequence[Report]) -> Report:
    first = values[0]
    delta = [None if value is None or first is None else _rounded(value - first) for value in values]
    change = [None if each is None or not first else _rounded(each / first) for each in delta]
    return {"key": key, "values": values, "delta": delta, "change": change, "better": _verdicts(key, reports)}


def _verdicts(key: str, reports: Sequence[Report]) -> list[int]:
    measure = BY_KEY.get(key)
    if measure is None:
        return [0] * len(reports)
    first = measure.judged(reports[0])
    return [measure.verdict(measure.judged(report), first) for report in reports]


def _rounded(value: float) -> float:
    return round(value, 6)


def against_institute(reports: Sequence[Report]) -> list[Report]:
    """Each number that the institute of DESIGN section 5 reported, with those of the replays.

    `as_good`: at least as good as the institute's, None where the number is not known or neither is better. Repairs
    that needed a human are compared with the report of policy ``priority``, as the institute did with its old regime.
    """
    rows = [
        _institute_row(measure.key, measure.institute, measure.institute_before, measure.better,
                       [measure.judged(report) for report in reports])
        for measure in MEASURES if measure.institute is not None
    ]  # fmt: skip
    priority = next((report for report in reports if report["policy"]["order"] == "priority"), None)
    if priority is not None:
        changes = [None if each is priority else repairs_against_priority(each, priority) for each in reports]
        rows.append(_institute_row("repairs_needing_human.change", INSTITUTE_REPAIRS, 0.0, -1, changes))
    return rows


def _institute_row(key: str, after: float, before: float | None, better: int, values: Sequence[float | None]) -> Report:
    return {
        "key": key,
        "institute": after,
        "institute_before": before,
        "values": [None if value is None else _rounded(value) for value in values],
        "as_good": [None if value is None or not better else better * (value - after) >= 0 for value in values],
    }
