"""Eighteen days of a small cluster, in the store of a live service: a log goes through the very scheduler.

Two teams of a quarter each always want more than they get; two more want about their share, and not every day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bench.month import lived

from mirab.model.accounts import Budget, Budgets
from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, WHOLE, AccountPath, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from tests.api.stage import Stage, stage
from tests.service.house import nodes

DAYS = 18
SHIFT = 20 * HOUR // SECOND
WANTED = {"vision/video": 12, "vision/image": 9, "llm": 14, "robots": 14}
"""Jobs a day, each a node for half an hour to three and a half; 4 nodes have about 48 of them."""
BUDGETS = Budgets(
    (
        Budget("vision", WHOLE // 2, (Budget("video", WHOLE // 2), Budget("image", WHOLE // 2))),
        Budget("llm", WHOLE // 4),
        Budget("robots", WHOLE // 4),
    )
)


def log(seed: int = 2) -> Trace:
    """The log, the same for the same seed."""
    chance = Random(seed)
    rows: list[tuple[int, str, int]] = []
    for day in range(DAYS):
        for account, usual in WANTED.items():
            for _ in range(round(usual * (0.3 + 1.4 * chance.random()))):
                at = day * DAY + round(chance.random() * SHIFT) * SECOND
                rows.append((at, account, round((0.5 + 3 * chance.random()) * HOUR / SECOND) * SECOND))
    arrivals = [_arrival(number, *row) for number, row in enumerate(sorted(rows), 1)]
    return Trace(arrivals, nodes(4), BUDGETS, ends_at=DAYS * DAY)


def _arrival(number: int, at: int, account: str, run: int) -> Arrival:
    shape = Shape(1, 4, min_runtime=30 * MINUTE)
    return Arrival(Workload(WorkloadId(str(number)), at, AccountPath(account), UserName(f"u-{account}"), shape), run)


@contextmanager
def lived_through(folder: Path) -> Iterator[Stage]:
    """A service that has been there for all of it, until now."""
    lived(folder, log())
    with stage(folder) as service:
        service.desk.portfolio.trials.folder = folder / "whatif"
        yield service
