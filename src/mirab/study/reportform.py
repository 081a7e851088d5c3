"""Whether a file of reports is of their form: asked only where it could not be used.

The form is that of a report that is made here and now, of a replay of two jobs: nothing has to be kept in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

import mirab
from mirab.model.accounts import Budget, Budgets
from mirab.model.policy import POLICIES, Exemption
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, WHOLE, AccountPath, NodeName, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.study.replays import replay_report

Json: TypeAlias = Any

BY_NAME = frozenset(
    ["dropped", "by_account", "accounts", "preemptions_by_cause", "fragmentation_by_shape", "distributions"]
)
"""Objects whose keys are names of the log or of what happened: each value has the form of any other."""


def wrong_in_reports(found: Json) -> str | None:
    """The first thing in a report, a comparison or a what-if that is not as this version writes it; None = nothing."""
    wrong = (wrong for place, report in _reports(found) for wrong in _wrong(report, place))
    return next(wrong, None) or _odd_rows(found)


def _reports(found: Json) -> list[tuple[str, Json]]:
    """Each report of a file, with its place."""
    reports = found.get("reports") if isinstance(found, dict) else None
    if isinstance(reports, dict):
        return [(f"reports.{name}", report) for name, report in reports.items()]
    if isinstance(reports, list):
        return [(f"reports[{number}]", report) for number, report in enumerate(reports)]
    return [("", found)]


def _wrong(report: Json, place: str) -> Iterator[str]:
    made_by = report.get("mirab", mirab.__version__) if isinstance(report, dict) else mirab.__version__
    if made_by != mirab.__version__:
        yield f"mirab {made_by} made it, and this is {mirab.__version__}"
    yield from _differences(report, _model(), place)


def _odd_rows(found: Json) -> str | None:
    """What is wrong with the part that only a what-if or a comparison has."""
    if "reports" not in found:
        return None
    if isinstance(found["reports"], list):
        labels = found.get("labels")
        sound = isinstance(labels, list) and len(labels) == len(found["reports"])
        return None if sound else "labels are not one for each report"
    rows = found.get("accounts")
    sound = isinstance(rows, list) and all(isinstance(row, dict) and "account" in row and _flat(row) for row in rows)
    return None if sound else "accounts is not a list of accounts with numbers"


def _flat(row: Json) -> bool:
    return all(_flat(held) if isinstance(held, dict) else not isinstance(held, list) for held in row.values())


def _differences(found: Json, model: Json, place: str) -> Iterator[str]:
    if isinstance(model, dict):
        if not isinstance(found, dict):
            yield f"{place or 'it'} is {_kind(found)}, not an object"
            return
        named = place.rpartition(".")[2] in BY_NAME
        for key in found if named else model:
            within = f"{place}.{key}" if place else str(key)
            if named:
                yield from _differences(found[key], next(iter(model.values()), None), within)
            elif key in found:
                yield from _differences(found[key], model[key], within)
            else:
                yield f"it has no {within}"
    elif isinstance(model, list):
        if not isinstance(found, list):
            yield f"{place} is {_kind(found)}, not a list"
        elif model:
            yield from (wrong for each in found for wrong in _differences(each, model[0], f"{place}[]"))
    elif found is not None and (model is not None or isinstance(found, dict | list)) and _kind(found) != _kind(model):
        yield f"{place} is {_kind(found)}, not {'a number' if model is None else _kind(model)}"


def _kind(value: Json) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    kinds = ((str, "a text"), (int | float, "a number"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")


@cache
def _model() -> Json:
    """A report of two jobs for one GPU, long enough that each measure has a value, with an exception."""
    arrivals = [_arrival("a", "red"), _arrival("b", "blue")]
    budgets = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))
    cluster = Cluster("small", (Pool("gpu", (NodeName("n0"),), 1),))
    excepted = Exemption("x", "longer-minimum", "red", 0, DAY, "ann", "bob", "to see one", cap=DAY)
    trace = Trace(
        arrivals, cluster, budgets, exemptions=[excepted], ends_at=2 * DAY, dropped={"reason": (1, (1,))}, rows=3
    )
    return replay_report(trace, POLICIES["budget"])


def _arrival(name: str, account: str) -> Arrival:
    shape = Shape(1, 1, min_runtime=HOUR)
    workload = Workload(WorkloadId(name), 0, AccountPath(account), UserName("ann"), shape, checkpoint=HOUR, resume=True)
    return Arrival(workload, DAY + HOUR)
