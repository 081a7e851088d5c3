"""What happened, as plain lists: every run, every spell of waiting, every change of a node, of budgets, of holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mirab.model import events
from mirab.model.accounts import Budgets
from mirab.model.events import Event, Outcome
from mirab.model.plans import Hold, HoldReleased, Plan, Start
from mirab.model.resources import Pool
from mirab.model.trace import Trace
from mirab.model.units import NodeName
from mirab.model.workloads import Workload

Cycle = tuple[Sequence[Event], Plan]
NEVER = 10**15


@dataclass
class Span:
    """Something that holds from one instant up to, and not at, another."""

    begin: int
    end: int = NEVER

    def covers(self, at: int) -> bool:
        return self.begin <= at < self.end


@dataclass
class Waits(Span):
    """A workload in the queue, free to start."""

    workload: Workload | None = None


@dataclass
class Ran(Span):
    """A run, from the action that gave it its nodes until its GPUs were free."""

    id: str = ""
    workload: Workload | None = None
    pool: int = 0
    nodes: tuple[int, ...] = ()
    width: int = 0
    minimum: int = 0
    resumed: bool = False
    started: int = NEVER
    outcome: Outcome | None = None
    lost: int = 0

    @property
    def asked(self) -> Workload:
        assert self.workload is not None
        return self.workload


@dataclass
class Held(Span):
    """Nodes kept for a workload."""

    holder: str = ""
    pool: int = 0
    nodes: tuple[int, ...] = ()
    width: int = 0


@dataclass
class Fate:
    """What became of a workload."""

    workload: Workload
    held_since: int | None = None
    aside: int = 0
    first_start: int | None = None
    gone_at: int | None = None
    rejected: bool = False


@dataclass
class History:
    """All of it. `now` is the last instant that was seen."""

    trace: Trace
    runs: list[Ran] = field(default_factory=list)
    waits: list[Waits] = field(default_factory=list)
    holds: list[Held] = field(default_factory=list)
    down: dict[tuple[int, int], list[Span]] = field(default_factory=dict)
    budgets: list[tuple[int, Budgets]] = field(default_factory=list)
    fates: dict[str, Fate] = field(default_factory=dict)
    gave_up: list[tuple[int, str]] = field(default_factory=list)
    now: int = 0
    cuts: list[int] | None = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        return self.trace.cluster.pools

    def instants(self) -> list[int]:
        """Every instant at which anything may have changed; worked out once, when all has been told."""
        if self.cuts is not None:
            return self.cuts
        spans: list[Span] = [*self.runs, *self.waits, *self.holds]
        for downs in self.down.values():
            spans += downs
        found = {each.begin for each in spans} | {each.end for each in spans}
        found |= {run.started for run in self.runs} | {at for at, _ in self.budgets}
        self.cuts = sorted(at for at in found if at < NEVER)
        return self.cuts


def told(trace: Trace, cycles: Iterable[Cycle]) -> History:
    """The history of a replay from what its journal was told."""
    history = History(trace, budgets=[(-NEVER, trace.budgets)])
    for facts, plan in cycles:
        for fact in facts:
            history.now = max(history.now, fact.at)
            _take_in(history, fact)
        history.now = max(history.now, plan.at)
        for action in plan.actions:
            if isinstance(action, Start):
                _start(history, action, plan.at)
        for change in plan.holds:
            _end_hold(history, change.workload_id, plan.at)
            if isinstance(change, Hold):
                history.holds.append(
                    Held(plan.at, NEVER, change.workload_id, change.pool, _bits(change.mask), change.slots_per_node)
                )
            else:
                assert isinstance(change, HoldReleased)
    return history


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _take_in(history: History, fact: Event) -> None:  # noqa: C901 - one case for each kind of fact
    match fact:
        case events.WorkloadSubmitted(at, workload):
            history.fates[workload.id] = Fate(workload, held_since=at if workload.held else None)
            if not workload.held:
                history.waits.append(Waits(at, NEVER, workload))
        case events.WorkloadCancelled(at, workload_id):
            if not _running(history, workload_id):
                history.gave_up.append((at, workload_id))
                _end_wait(history, workload_id, at)
                _end_hold(history, workload_id, at)
                history.fates[workload_id].gone_at = at
        case events.WorkloadHeld(at, workload_id):
            _end_wait(history, workload_id, at)
            _end_hold(history, workload_id, at)
            history.fates[workload_id].held_since = at
        case events.WorkloadReleased(at, workload_id):
            fate = history.fates[workload_id]
            if fate.first_start is None and fate.held_since is not None:
                fate.aside += at - fate.held_since
            fate.held_since = None
            history.waits.append(Waits(at, NEVER, fate.workload))
        case events.RunStarted(at, run_id):
            run = _run(history, run_id)
            run.started = at
            fate = history.fates[run.asked.id]
            if fate.first_start is None:
                fate.first_start = at
        case events.RunEnded(at, run_id, outcome, lost):
            _end_run(history, _run(history, run_id), at, outcome, lost or 0)
        case events.ActionRefused(at, run_id, "start"):
            _end_run(history, _run(history, run_id), at, Outcome.LAUNCH_FAILED, 0)
        case events.NodeDegraded(at, node) | events.NodeDown(at, node):
            downs = history.down.setdefault(_place(history, node), [])
            if not any(span.covers(at) for span in downs):
                downs.append(Span(at))
        case events.NodeUp(at, node):
            for span in history.down.get(_place(history, node), []):
                span.end = min(span.end, at)
        case events.BudgetsChanged(at, budgets):
            history.budgets.append((at, budgets))


def _start(history: History, action: Start, now: int) -> None:
    workload = history.fates[action.workload_id].workload
    given = action.allocation
    _end_wait(history, workload.id, now)
    _end_hold(history, workload.id, now)
    history.runs.append(
        Ran(now, NEVER, action.run_id, workload, given.pool, _bits(given.mask), given.slots_per_node,
            action.min_runtime, action.resumed)
    )  # fmt: skip


def _end_run(history: History, run: Ran, at: int, outcome: Outcome, lost: int) -> None:
    run.end, run.outcome, run.lost = at, outcome, lost
    again = outcome is Outcome.LAUNCH_FAILED or (outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL) and run.asked.resume)
    if again:
        history.waits.append(Waits(at, NEVER, run.asked))
    else:
        history.fates[run.asked.id].gone_at = at


def _run(history: History, run_id: str) -> Ran:
    return next(run for run in history.runs if run.id == run_id)


def _running(history: History, workload_id: str) -> bool:
    return any(run.asked.id == workload_id and run.end == NEVER for run in history.runs)


def _end_wait(history: History, workload_id: str, at: int) -> None:
    for wait in history.waits:
        if wait.workload is not None and wait.workload.id == workload_id:
            wait.end = min(wait.end, at)


def _end_hold(history: History, holder: str, at: int) -> None:
    for hold in history.holds:
        if hold.holder == holder:
            hold.end = min(hold.end, at)


def _place(history: History, node: str) -> tuple[int, int]:
    for number, pool in enumerate(history.pools):
        if node in pool.nodes:
            return number, pool.nodes.index(NodeName(node))
    raise AssertionError(node)
