"""A replay as text: one line for each decision, readable and comparable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirab.logs.detect import load
from mirab.logs.options import LoadOptions
from mirab.model.events import Event
from mirab.model.plans import Plan, Start
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, Instant, WorkloadId
from mirab.sim.engine import replay
from tests.scenarios.expect import decisions_of, reason_text

TRACES = Path(__file__).parent / "traces"


class DecisionLog:
    """A journal that writes lines. Of reasons to wait only a new kind is written, not each new number."""

    def __init__(self, cluster: Cluster) -> None:
        self.lines: list[str] = []
        self._cluster = cluster
        self._workload_of: dict[str, WorkloadId] = {}
        self._why: dict[str, type] = {}

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Start):
                self._workload_of[action.run_id] = action.workload_id
        at = stamp(plan.at)
        for decided in decisions_of(plan, self._cluster, self._workload_of):
            self.lines.append(f"{at}  {decided}")
            self._why.pop(decided.subject, None)
        for waiting in plan.waiting:
            if self._why.get(waiting.workload_id) is not type(waiting.reason):
                self._why[waiting.workload_id] = type(waiting.reason)
                self.lines.append(f"{at}  wait {waiting.workload_id} why {reason_text(waiting.reason)}")


def stamp(at: Instant) -> str:
    """``0d04:30:10.000``, of one width so that lines line up."""
    days, rest = divmod(at, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    seconds, thousandths = divmod(rest, SECOND)
    return f"{days}d{hours:02}:{minutes:02}:{seconds:02}.{thousandths:03}"


def decision_log(name: str, policy: Policy) -> list[str]:
    """All decisions of a bundled small trace under a policy."""
    events = TRACES / f"{name}.nodes.csv"
    options = LoadOptions(cluster=TRACES / f"{name}.yaml", node_events=events if events.exists() else None)
    trace = load(TRACES / f"{name}.csv", options)
    journal = DecisionLog(trace.cluster)
    replay(trace, policy, journals=[journal])
    return journal.lines
