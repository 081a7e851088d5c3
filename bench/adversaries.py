"""Ways to get more than one's share by saying or doing what an honest user would not. Each changes one account's work.

What really has to be done stays the same: the same GPU-time, the same real checkpoints, the same people. Where a way
needs extra work (a flood), the honest counterpart hands in that work too, honestly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.outcomes import ORIGIN_MARK, RESUBMITTED_MARK, Outcomes, origin_of
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import BudgetsChanged, Event, Outcome, RunEnded, WorkloadSubmitted
from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, WHOLE, AccountPath, Duration, Instant, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.sim.backend import SimBackend

Change = Callable[[Trace, AccountPath], Trace]
Acts = Callable[[Trace, AccountPath, list[Instant]], Trace]
Foresees = Callable[[Trace, AccountPath, Outcomes], Trace]


@dataclass(frozen=True, slots=True)
class Adversary:
    """One way: `honest` and `sly` make the two logs to compare; `acts` changes the sly one when it has had most, and
    `foresees` by what came of each workload in the honest one.
    """

    name: str
    does: str
    sly: Change
    honest: Change
    resubmits: bool = False
    acts: Acts | None = None
    foresees: Foresees | None = None
    keeps_name: bool = True


def _each(trace: Trace, path: AccountPath, change: Callable[[Arrival], list[Arrival]]) -> Trace:
    made: list[Arrival] = []
    for arrival in trace.arrivals:
        made.extend(change(arrival) if arrival.workload.account == path else [arrival])
    made.sort(key=lambda each: (each.workload.submitted_at, each.workload.id))
    return replace(trace, arrivals=made)


def _reshaped(arrival: Arrival, shape: Shape) -> Arrival:
    return replace(arrival, workload=replace(arrival.workload, shape=shape))


def _as_it_is(trace: Trace, path: AccountPath) -> Trace:
    return trace


def _minimum(span: Duration, of: Callable[[Shape], bool]) -> Change:
    """This minimum for the work with such a shape."""

    def changed(arrival: Arrival) -> list[Arrival]:
        shape = arrival.workload.shape
        return [_reshaped(arrival, shape._replace(min_runtime=span)) if of(shape) else arrival]

    return lambda trace, path: _each(trace, path, changed)


def _any(shape: Shape) -> bool:
    return True


def _charged(shape: Shape) -> bool:
    return shape.charged


def _uncharged(shape: Shape) -> bool:
    return not shape.charged


def _never_saves(trace: Trace, path: AccountPath) -> Trace:
    """It checkpoints as before and says that it does not."""
    return _each(
        trace,
        path,
        lambda arrival: [
            replace(arrival, checkpoint=arrival.saves_every, workload=replace(arrival.workload, checkpoint=0))
        ],
    )


def _splits(trace: Trace, path: AccountPath) -> Trace:
    """Every gang as single GPUs, as if the work needed no communication."""
    return _split(trace, path, lambda work: True)


def _splits_what_runs(trace: Trace, path: AccountPath, honest: Outcomes) -> Trace:
    """Only the gangs that would have started anyway: what then is gained does not come from those that never would."""
    return _split(trace, path, lambda work: honest.stories[work.id].first_start is not None)


def _split(trace: Trace, path: AccountPath, chosen: Callable[[Workload], bool]) -> Trace:
    def change(arrival: Arrival) -> list[Arrival]:
        work = arrival.workload
        if work.shape.nodes == 1 or not chosen(work):
            return [arrival]
        single = work.shape._replace(nodes=1, gpus_per_node=1)
        return [
            replace(arrival, workload=replace(work, id=WorkloadId(f"{work.id}{ORIGIN_MARK}{part:04d}"), shape=single))
            for part in range(work.shape.gpus)
        ]

    return _each(trace, path, change)


def _flood(hour: int, minimum: Duration) -> Change:
    """Gangs of four nodes for eight hours each, as many a day as make half of what the account is owed a day."""

    def change(trace: Trace, path: AccountPath) -> Trace:
        pool = trace.cluster.pools[0]
        share = next(part for account, _, part in trace.budgets.walk() if account == path)
        nodes = min(4, len(pool.nodes))
        gang = nodes * pool.gpus_per_node * 8 * HOUR
        count = max(1, round(trace.cluster.slots * share * DAY / WHOLE / 2 / gang))
        user = UserName(f"{path}:flood")
        more = [
            Arrival(
                Workload(
                    id=WorkloadId(f"flood-{day:03d}-{number:03d}"),
                    submitted_at=day * DAY + hour * HOUR + number * SECOND,
                    account=path,
                    user=user,
                    shape=Shape(nodes, pool.gpus_per_node, min_runtime=minimum, time_limit=12 * HOUR, grace=MINUTE),
                    label="large",
                    checkpoint=30 * MINUTE,
                    restart=3 * MINUTE,
                    priority=2,
                ),
                8 * HOUR,
                2 * DAY,
            )
            for day in range((trace.ends_at - hour * HOUR) // DAY)
            for number in range(count)
        ]
        arrivals = sorted([*trace.arrivals, *more], key=lambda each: (each.workload.submitted_at, each.workload.id))
        return replace(trace, arrivals=arrivals)

    return change


def _no_resume(trace: Trace, path: AccountPath) -> Trace:
    return _each(trace, path, lambda arrival: [replace(arrival, workload=replace(arrival.workload, resume=False))])


class Resubmitter(SimBackend):
    """The pretend engine, and users who hand in again, as new, what was stopped and does not resume by itself.

    The new workload has what the old one had saved, and the restart that a resumed run has.
    """

    def observe(self) -> list[Event]:
        facts = super().observe()
        again: list[Event] = []
        for fact in facts:
            if isinstance(fact, RunEnded) and fact.outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL):
                stopped = self._arrivals[WorkloadId(fact.run_id.rpartition(".")[0])]
                if not stopped.workload.resume:
                    again.append(self._resubmit(stopped, self._clock.now()))
        return [*facts, *again]

    def _resubmit(self, stopped: Arrival, now: Instant) -> WorkloadSubmitted:
        old = stopped.workload
        number = int(old.id.rpartition(RESUBMITTED_MARK)[2] or 0) + 1 if RESUBMITTED_MARK in old.id else 1
        identity = WorkloadId(f"{origin_of(old.id)}{RESUBMITTED_MARK}{number}")
        work = replace(old, id=identity, submitted_at=now)
        self._arrivals[identity] = replace(stopped, workload=work)
        self._kept[identity] = self._kept[old.id]
        return WorkloadSubmitted(now, work)


def _edited(budgets: Budgets, path: AccountPath, change: Callable[[Budget], tuple[Budget, ...]]) -> Budgets:
    """The tree with something else in the place of one account; its siblings keep their shares."""

    def edit(siblings: tuple[Budget, ...], names: list[str]) -> tuple[Budget, ...]:
        made: list[Budget] = []
        for each in siblings:
            if each.name != names[0]:
                made.append(each)
            elif len(names) == 1:
                made.extend(change(each))
            else:
                made.append(replace(each, children=edit(each.children, names[1:])))
        return tuple(made)

    return Budgets(edit(budgets.roots, path.split("/")))


def close_and_open(trace: Trace, path: AccountPath, instants: list[Instant]) -> Trace:
    """At each instant the account is closed, and opened again a second later (at an instant without arrivals)."""
    busy = {each.workload.submitted_at // SECOND for each in trace.arrivals if each.workload.account == path}
    without = _edited(trace.budgets, path, lambda budget: ())
    changes = []
    for instant in instants:
        second = instant // SECOND
        while busy & {second, second + 1, second + 2}:
            second += 1
        changes.append(BudgetsChanged(second * SECOND, without, "sly", "closed"))
        changes.append(BudgetsChanged((second + 1) * SECOND, trace.budgets, "sly", "opened again"))
    return replace(trace, budget_changes=changes)


def rename(trace: Trace, path: AccountPath, instants: list[Instant]) -> Trace:
    """At each instant the account is closed and another with its share opened, for all work that comes from then on.

    What waits or runs by then stays with the closed account.
    """
    changes = []
    for number, instant in enumerate(instants, start=2):
        name = f"{path.rpartition('/')[2]}{ORIGIN_MARK}{number}"

        def under(budget: Budget, name: str = name) -> tuple[Budget, ...]:
            return (replace(budget, name=name),)

        changes.append(BudgetsChanged(instant, _edited(trace.budgets, path, under), "sly", "a new name"))

    def named(arrival: Arrival) -> list[Arrival]:
        work = arrival.workload
        number = 1 + sum(instant <= work.submitted_at for instant in instants)
        account = path if number == 1 else AccountPath(f"{path}{ORIGIN_MARK}{number}")
        return [replace(arrival, workload=replace(work, account=account))]

    return replace(_each(trace, path, named), budget_changes=changes)


ADVERSARIES = (
    Adversary("cap", "declares the cap of 8 h for everything", _minimum(8 * HOUR, _any), _as_it_is),
    Adversary("cap-charged", "the cap for what is charged anyway", _minimum(8 * HOUR, _charged), _as_it_is),
    Adversary("charge", "an hour for what it could run uncharged", _minimum(HOUR, _uncharged), _as_it_is),
    Adversary("no-checkpoint", "says that it never checkpoints", _never_saves, _as_it_is),
    Adversary(
        "night-flood", "floods gangs at 22:00 under 8 h (honest: the same gangs under 1 h)",
        _flood(22, 8 * HOUR), _flood(22, HOUR),
    ),
    Adversary("split", "splits its gangs into single GPUs", _splits, _as_it_is),
    Adversary(
        "split-started", "splits only the gangs that would have started anyway",
        _as_it_is, _as_it_is, foresees=_splits_what_runs,
    ),
    Adversary("second", "a second for everything", _minimum(SECOND, _any), _as_it_is),
    Adversary("second-charged", "a second for what is charged anyway", _minimum(SECOND, _charged), _as_it_is),
    Adversary("resubmit", "resubmits instead of resuming", _no_resume, _as_it_is, resubmits=True),
    Adversary(
        "reopen", "closes its account and opens it again each time it stands highest above its share",
        _as_it_is, _as_it_is, acts=close_and_open,
    ),
    Adversary(
        "rename", "takes a new name with the same share each time it stands highest above its share",
        _as_it_is, _as_it_is, acts=rename, keeps_name=False,
    ),
)  # fmt: skip
