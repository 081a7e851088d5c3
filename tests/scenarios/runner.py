"""Drives the real `cycle` through a scenario file and compares, round by round."""

from __future__ import annotations

from collections.abc import Sequence

from mirab.control.cycle import cycle
from mirab.core.decide import decide
from mirab.core.state import State
from mirab.model.events import (
    BudgetsChanged,
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    NodeDegraded,
    NodeUp,
    Outcome,
    ReservationApproved,
    ReservationCancelled,
    WorkloadHeld,
    WorkloadReleased,
)
from mirab.model.plans import Plan, Waiting
from mirab.model.units import UNIT, WHOLE, Instant, NodeName, RunId, WorkloadId, format_duration, parse_share
from tests.driven import rebuilt
from tests.pretend import HandClock, PretendEngine, Recorder
from tests.scenarios import build
from tests.scenarios.bonds import Bonds
from tests.scenarios.expect import DECISIONS, Decided, decisions_of, differences, expected, reason_agrees, reason_text
from tests.scenarios.expect import wanted as reason_wanted
from tests.scenarios.fileform import Round, Scenario, ScenarioError, Statement, duration_of, names_of

SETTLES_WITHIN = 50
"""Cycles at one instant after which the scheduler is taken to run in circles."""


class NotAsWrittenError(AssertionError):
    """The scheduler did something else than the file says; the message is for people."""


class AuditedJournal:
    """Records, and asks at each decision what must always be true of one."""

    def __init__(self, state: State, clock: HandClock) -> None:
        self.state, self.clock, self.record = state, clock, Recorder()
        self.standing: dict[tuple[object, ...], Waiting] = {}

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.record.append(facts, plan)
        if decide(self.state, self.clock.now()) != plan:
            raise NotAsWrittenError(
                f"at {format_duration(plan.at)}: deciding again on the same state gives another plan"
            )
        if plan.wake_at is not None and plan.wake_at <= plan.at:
            raise NotAsWrittenError(f"at {format_duration(plan.at)}: wakes at {plan.wake_at}, which is not later")
        for waiting in plan.waiting:
            key = (waiting.account, waiting.user, waiting.shape)
            if self.standing.get(key) == waiting:
                raise NotAsWrittenError(
                    f"at {format_duration(plan.at)}: says again of {waiting.workload_id} what it has said"
                )
            self.standing[key] = waiting


class Play:
    """One scenario being played."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = build.cluster_of(scenario)
        self.budgets = build.budgets_of(scenario.budgets)
        self.policy = build.policy_of(scenario.policy)
        self.clock = HandClock()
        self.engine = PretendEngine(self.cluster, self.clock)
        self.bonds = Bonds(self.engine)
        self.state = State(self.cluster, self.budgets, self.policy)
        self.journal = AuditedJournal(self.state, self.clock)
        self.wake_at: Instant | None = None
        self.looked = False
        self.decided: list[tuple[Instant, Decided]] = []
        self.workload_of: dict[str, WorkloadId] = {}

    def play(self) -> None:
        for turn in self.scenario.rounds:
            self._run_until(turn.at - 1, f"before {turn.where}")
            self._expect_nothing(f"{turn.where}: before it")
            self.clock.instant = turn.at
            self.looked = any(line.verb == "look" for line in turn.facts)
            self._happen(turn)
            self._run_until(turn.until, turn.where)
            self._compare(turn)
        self._last_round()

    # --- time
    def _run_until(self, end: Instant, where: str) -> None:
        """Every instant up to `end` at which a fact is due, the plan wants to wake, or somebody asks for a look."""
        for _ in range(100_000):
            at = self._next_instant()
            if at is None or at > end:
                return
            self.clock.instant = at
            self._settle(where)
        raise NotAsWrittenError(f"{where}: more than 100,000 decisions before {format_duration(end)}")

    def _next_instant(self) -> Instant | None:
        wanted = [at for at in (self.engine.next_due(), self.wake_at) if at is not None]
        if self.looked:
            wanted.append(self.clock.instant)
        return min(wanted, default=None)

    def _settle(self, where: str) -> None:
        """Cycles at this instant until no fact is due any more."""
        self.looked = False
        for _ in range(SETTLES_WITHIN):
            plan = cycle(self.state, self.clock, self.engine, self.journal)
            self.state.check()
            self.wake_at = plan.wake_at
            self._note(plan)
            self.bonds.hear(self.journal.record.entries[-1][0], self.clock.instant)
            due = self.engine.next_due()
            if due is None or due > self.clock.instant:
                return
        raise NotAsWrittenError(f"{where}: runs in circles at {format_duration(self.clock.instant)}")

    def _note(self, plan: Plan) -> None:
        for action in plan.actions:
            run_id = getattr(action, "run_id", None)
            if run_id is not None and hasattr(action, "workload_id"):
                self.workload_of[run_id] = action.workload_id
        self.decided += [(plan.at, found) for found in decisions_of(plan, self.cluster, self.workload_of)]

    def _last_round(self) -> None:
        """Nothing has changed, so nothing happens; and a restarted service would go on in the same way."""
        before = self.state
        fresh = rebuilt(self.cluster, self.budgets, self.policy, self.journal.record.entries)
        fresh.advance(self.clock.instant)
        fresh.check()
        before.advance(self.clock.instant)
        if decide(fresh, self.clock.instant) != decide(before, self.clock.instant):
            raise NotAsWrittenError(f"{self.scenario.name}: a state rebuilt from the journal decides something else")
        self.looked = True
        self._run_until(self.clock.instant, "last round")
        self._expect_nothing(f"{self.scenario.name}: last round, nothing changed")

    # --- comparing
    def _expect_nothing(self, where: str) -> None:
        if self.decided:
            lines = [f"  at {format_duration(at)}({at}): {found}" for at, found in self.decided]
            raise NotAsWrittenError("\n".join([f"{where} nothing was to be decided:", *lines]))

    def _compare(self, turn: Round) -> None:
        want = [item for line in turn.plan if line.verb in DECISIONS for item in expected(line)]
        wrong = differences(want, [found for _, found in self.decided])
        self.decided.clear()
        for line in turn.plan:
            if line.verb not in DECISIONS and line.verb != "nothing":
                wrong += [f"  {line.where}: {said}" for said in self._look_at(line)]
        if wrong:
            raise NotAsWrittenError("\n".join([f"{turn.where}: at {format_duration(turn.at)}", *wrong, *self._story()]))

    def _look_at(self, line: Statement) -> list[str]:
        """What the state says other than the line."""
        if line.verb in ("ratio", "usage", "commitment", "entitled", "share"):
            return self._account(line)
        if line.verb == "wake":
            return self._wake(line)
        found = []
        for name in names_of(line.words[0], line.where):
            found += self._workload(line, WorkloadId(name))
        return found

    def _account(self, line: Statement) -> list[str]:
        name, text = line.words
        account = next((found for path, found in self.state.accounts.items() if path == name), None)
        if account is None:
            raise ScenarioError(f"{line.where}: there is no account {name}")
        now = self.clock.instant
        if line.verb == "ratio":
            got = account.ratio(now)
            return [] if abs(got - float(text)) < 0.0005 else [f"ratio {name} is {got:.4f}, not {text}"]
        if line.verb == "share":
            return [] if account.share == parse_share(text) else [f"share {name} is {account.share}, not {text}"]
        amounts = {
            "usage": account.used(now),
            "commitment": account.committed(now),
            "entitled": account.promised(now) // WHOLE,
        }
        amount, want = amounts[line.verb], duration_of(text, line.where) * UNIT
        return [] if amount == want else [f"{line.verb} {name} is {format_duration(amount // UNIT)}, not {text}"]

    def _wake(self, line: Statement) -> list[str]:
        want = None if line.words[0] == "never" else duration_of(line.words[0], line.where)
        return [] if self.wake_at == want else [f"wakes at {self.wake_at}, not {line.words[0]}"]

    def _workload(self, line: Statement, name: WorkloadId) -> list[str]:
        run = next((run for run in self.state.runs.values() if run.workload.id == name), None)
        pending = name in self.state.pending
        if line.verb in ("running", "queued", "gone"):
            got = "running" if run else "queued" if pending else "gone"
            return [] if got == line.verb else [f"{name} is {got}"]
        if line.verb == "protected":
            want = line.duration("until")
            got_until = run.protected_until if run else None
            return [] if got_until == want else [f"{name} is protected until {got_until}, not {want}"]
        standing = [waiting for waiting in self.journal.standing.values() if waiting.workload_id == name]
        if line.verb == "no-reason":
            return [f"{name} still has a reason"] if standing and pending else []
        if not pending or not standing:
            return [f"{name} is not waiting with a reason (pending: {pending})"]
        if line.reason is None or reason_agrees(reason_wanted(*line.reason, line.where), standing[-1].reason):
            return []
        want_text = reason_wanted(*line.reason, line.where)
        return [f"{name} waits for {reason_text(standing[-1].reason)}, not {want_text}"]

    def _story(self) -> list[str]:
        """Where things stand, for the person who reads the failure."""
        lines = ["  -- running:"]
        for run in self.state.runs.values():
            nodes = ",".join(self.engine.nodes_of(run.allocation))
            lines.append(f"     {run.workload.id} on {nodes}, protected until {run.protected_until}")
        lines.append("  -- waiting:")
        lines += [
            f"     {waiting.workload_id}: {reason_text(waiting.reason)}"
            for waiting in self.journal.standing.values()
            if waiting.workload_id in self.state.pending
        ]
        return lines

    # --- the timeline
    def _happen(self, turn: Round) -> None:
        budget_lines = [line for line in turn.facts if line.verb == "budget"]
        if budget_lines:
            self.engine.fact(BudgetsChanged(turn.at, build.budgets_of(budget_lines), "manager", "scenario"))
        for line in turn.facts:
            if line.verb in ("budget", "look"):
                continue
            if line.verb == "rebuild":
                self._rebuild()
            elif line.verb == "submit":
                for workload, conduct in build.workloads_of(line, turn.at):
                    self.engine.arrive(workload, conduct)
                self.bonds.submitted(line, turn.at)
            elif line.verb in ("degraded", "down", "up"):
                for node in build.node_names(line.words[0], line.where):
                    self._node(line, NodeName(node), turn.at)
            elif line.verb in ("reserve", "unreserve", "exempt", "revoke"):
                self.engine.fact(_approval(line, turn.at))
            else:
                for name in names_of(line.words[0], line.where):
                    self._workload_fact(line, WorkloadId(name), turn.at)

    def _rebuild(self) -> None:
        """The service was killed and started again."""
        self.state = rebuilt(self.cluster, self.budgets, self.policy, self.journal.record.entries)
        self.journal.state = self.state

    def _node(self, line: Statement, node: NodeName, at: Instant) -> None:
        if "repair" in line.settings:
            self.engine.repairs[node] = line.duration("repair")
        if line.verb == "degraded":
            self.engine.fact(NodeDegraded(at, node, line.get("cause")))
        elif line.verb == "down":
            self.engine.down(node, line.get("cause"))
        else:
            self.engine.fact(NodeUp(at, node))

    def _workload_fact(self, line: Statement, name: WorkloadId, at: Instant) -> None:
        if line.verb == "cancel":
            self.engine.cancel(name)
        elif line.verb == "requeue":
            self.engine.requeue(name)
        elif line.verb == "keep":
            self.engine.fact(WorkloadHeld(at, name, line.get("because", "its user keeps it")))
        elif line.verb == "let-go":
            self.engine.fact(WorkloadReleased(at, name))
        else:
            run_id = self.engine.run_of(name)
            if run_id is None:
                raise NotAsWrittenError(f"{line.where}: {name} is not running then")
            self._run_fact(line, run_id)

    def _run_fact(self, line: Statement, run_id: RunId) -> None:
        if line.verb == "end":
            self.engine.end(run_id, Outcome[line.get("outcome", "COMPLETED")])
        elif line.verb == "checkpoint":
            self.engine.checkpoint(run_id)
        elif line.verb == "suspend":
            self.engine.suspend(run_id)
        else:
            self.engine.resume(run_id)


def _approval(line: Statement, at: Instant) -> Event:
    if line.verb == "reserve":
        return ReservationApproved(at, build.reservation_of(line))
    if line.verb == "unreserve":
        return ReservationCancelled(at, line.words[0])
    if line.verb == "exempt":
        return ExemptionGranted(at, build.exemption_of(line))
    return ExemptionRevoked(at, line.words[0])


def play(scenario: Scenario) -> None:
    """Raises `NotAsWrittenError` where the scheduler departs from the file."""
    Play(scenario).play()
