"""From the journal to the state of a restarted service, and to what its engine still has to be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mirab.core.state import State
from mirab.model.accounts import Budgets
from mirab.model.events import ActionRefused, BudgetsChanged, Event, NodeUp, RunEnded, RunStarted
from mirab.model.plans import Action, Cancel, Drain, Plan, Preempt, Repair, Resume, Start
from mirab.model.units import NodeName, RunId

FILE = "cluster file"
"""Author of changes that come from the file with which the service was started."""


def take_in(state: State, facts: Sequence[Event], plan: Plan) -> None:
    """One record of the journal: what the cycle that made it did to the state."""
    for fact in facts:
        state.fold(fact)
    state.advance(plan.at)
    state.commit(plan)


class Intents:
    """The actions whose outcome is not known yet: an engine that lost its memory, or never heard, is told them again.

    Attributes:
        starts: of every run that has not ended, running or not; begun: those of them that are known to run.
        stops: of every run that was told to stop and has not ended.
        nodes: the last action for each node that is not simply up.
        last: the actions of the last plan, of every kind: the crash may have come before they were applied.
        filed: the budgets that the cluster file stated last; None = those that the ledger began with.
    """

    __slots__ = ("begun", "filed", "last", "nodes", "starts", "stops")

    def __init__(self) -> None:
        self.starts: dict[RunId, Start] = {}
        self.begun: dict[RunId, None] = {}
        self.stops: dict[RunId, Preempt | Cancel] = {}
        self.nodes: dict[NodeName, Drain | Repair] = {}
        self.last: tuple[Action, ...] = ()
        self.filed: Budgets | None = None

    def take_in(self, facts: Iterable[Event], plan: Plan, observing: bool = False) -> None:
        """One record of the journal. What was decided while `observing` was advice, and nobody is to act on it."""
        for fact in facts:
            self._hear(fact)
        actions = () if observing else plan.actions
        for action in actions:
            self._mean(action)
        self.last = actions

    def _hear(self, fact: Event) -> None:
        if isinstance(fact, RunStarted):
            if fact.run_id in self.starts:
                self.begun[fact.run_id] = None
        elif isinstance(fact, RunEnded):
            self._forget(fact.run_id)
        elif isinstance(fact, ActionRefused):
            if fact.action == "start":
                self._forget(fact.run_id)
            else:
                self.stops.pop(fact.run_id, None)
        elif isinstance(fact, NodeUp) and isinstance(self.nodes.get(fact.node), Repair):
            del self.nodes[fact.node]
        elif isinstance(fact, BudgetsChanged) and fact.author == FILE:
            self.filed = fact.budgets

    def _forget(self, run_id: RunId) -> None:
        self.starts.pop(run_id, None)
        self.begun.pop(run_id, None)
        self.stops.pop(run_id, None)

    def _mean(self, action: Action) -> None:
        if isinstance(action, Start):
            self.starts[action.run_id] = action
        elif isinstance(action, Preempt | Cancel):
            self.stops[action.run_id] = action
        elif isinstance(action, Drain | Repair):
            self.nodes[action.node] = action
        elif isinstance(action, Resume):
            self.nodes.pop(action.node, None)

    def outstanding(self) -> Iterator[Action]:
        """What to submit again after a restart, each once: starts, stops, nodes, and the rest of the last plan.

        Runs that had begun are not started again: an engine that cannot find one says how it ended.
        """
        starts = [start for run_id, start in self.starts.items() if run_id not in self.begun]
        told: dict[Action, None] = dict.fromkeys((*starts, *self.stops.values(), *self.nodes.values(), *self.last))
        yield from told
