"""What keeps workloads of a scenario out of the queue: unmet dependencies, tasks above the limit of an array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mirab.model.events import Event, Outcome, RunEnded, WorkloadHeld, WorkloadReleased, goes_back
from mirab.model.units import Instant, WorkloadId
from tests.pretend import PretendEngine
from tests.scenarios.fileform import ScenarioError, Statement, names_of


@dataclass(eq=False)
class Bonds:
    """Holds and releases workloads of `submit ... after=IDS at_most=N`.

    Attributes:
        after: whom each held workload waits for; lines: arrays whose tasks still wait, and how many may run at once.
    """

    engine: PretendEngine
    after: dict[WorkloadId, list[str]] = field(default_factory=dict)
    lines: list[tuple[list[str], int]] = field(default_factory=list)
    ended: dict[str, Outcome] = field(default_factory=dict)
    held: dict[str, None] = field(default_factory=dict)

    def submitted(self, line: Statement, at: Instant) -> None:
        names = names_of(line.words[0], line.where)
        first = at_most(line) or len(names)
        for place, name in enumerate(names):
            workload = WorkloadId(name)
            if line.get("after"):
                self.after[workload] = names_of(line.get("after"), line.where)
            if place >= first or line.get("after"):
                self.held[name] = None
                self.engine.fact(WorkloadHeld(at, workload, "it waits for others"))
        if first < len(names):
            self.lines.append((names, first))

    def hear(self, facts: Iterable[Event], now: Instant) -> None:
        """Ends let others go."""
        ends = [fact for fact in facts if isinstance(fact, RunEnded) and not goes_back(fact.outcome, True)]
        self.ended |= {fact.run_id.rpartition(".")[0]: fact.outcome for fact in ends}
        if ends:
            for name in [*self._met(), *self._next()]:
                del self.held[name]
                self.engine.fact(WorkloadReleased(now, WorkloadId(name)))

    def _met(self) -> list[str]:
        met = [
            workload
            for workload, others in self.after.items()
            if all(self.ended.get(other) is Outcome.COMPLETED for other in others)
        ]
        for workload in met:
            del self.after[workload]
        return list(met)

    def _next(self) -> list[str]:
        found: list[str] = []
        for names, most in self.lines:
            busy = sum(name not in self.held and name not in self.ended for name in names)
            found += [name for name in names if name in self.held][: most - busy]
        return found


def at_most(line: Statement) -> int:
    """How many of a line's workloads may run at once; 0 = all: they are no array."""
    text = line.get("at_most", "0")
    if not text.isdigit():
        raise ScenarioError(f"{line.where}: at_most={text}: write a whole number")
    return int(text)
