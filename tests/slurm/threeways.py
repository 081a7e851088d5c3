"""One scenario file, three ways: a replay, real processes of this machine, a real Slurm.

`python -m tests.slurm.threeways FILE... [--hour 30]` plays files and shows the decisions side by side, as root.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirab.model import reasons
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.units import SECOND, Duration, Instant, NodeName, WorkloadId
from tests.scenarios import build
from tests.scenarios.bonds import at_most
from tests.scenarios.expect import DECISIONS, Decided, ReasonWanted, decisions_of, differences, expected
from tests.scenarios.fileform import Round, Scenario, ScenarioError, Statement, names_of, read_scenario
from tests.scenarios.runner import NotAsWrittenError, Play
from tests.slurm.cluster import PATIENCE_S, SlurmCluster, missing
from tests.slurm.worlds import Wish, World, local_world, slurm_world

HOUR_S = 30.0
"""Seconds that an hour of a file takes."""
COMPARED = frozenset({"beneficiary", "node"})
"""Numbers of reasons that do not depend on the exact instant."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decision, without its instant."""

    verb: str
    subject: str
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.verb, self.subject, *([f"on {','.join(self.nodes)}"] if self.nodes else [])])


def step_of(decided: Decided) -> Step:
    on = dict(decided.details).get("on") or ()
    return Step(decided.verb, decided.subject, tuple(on))  # type: ignore[arg-type]


class Replay(Play):
    """The way that needs no time."""

    def __init__(self, scenario: Scenario) -> None:
        self.steps: list[Step] = []
        super().__init__(scenario)

    def _note(self, plan: Plan) -> None:
        before = len(self.decided)
        super()._note(plan)
        self.steps += [step_of(found) for _, found in self.decided[before:]]


class ById(dict[str, WorkloadId]):
    """Workload of any run id of a live service."""

    def __missing__(self, run_id: str) -> WorkloadId:
        return WorkloadId(run_id.rpartition(".")[0])


@dataclass(eq=False)
class Way:
    """One scenario being played with real time. `heard`: all decisions, of which so many have been `compared`."""

    scenario: Scenario
    world: World
    scale: float
    names: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    heard: list[tuple[Instant, Decided]] = field(default_factory=list)
    compared: int = 0
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        live = self.world.service.live
        pool = max(live.state.cluster.pools, key=lambda each: each.gpus_per_node)
        (there,) = build.cluster_of(self.scenario).pools
        if (len(there.nodes), there.gpus_per_node) != (len(pool.nodes), pool.gpus_per_node):
            raise ScenarioError(
                f"{self.scenario.name}: played on {len(pool.nodes)} nodes with {pool.gpus_per_node} GPUs"
            )
        self.real = dict(zip(there.nodes, pool.nodes, strict=True))
        self.nodes = {real: name for name, real in self.real.items()}
        live.subscribe(lambda seq, facts, plan: self._hear(facts, plan))

    def _hear(self, facts: Sequence[Event], plan: Plan) -> None:
        cluster = self.world.service.live.state.cluster
        self.heard.extend((plan.at, found) for found in decisions_of(plan, cluster, ById()))

    # --- time
    def play(self) -> None:
        """Raises `NotAsWrittenError` where something else is decided, or not in its round.

        In which round a decision falls, its own instant says: this thread may be late. A slow machine gets more time
        than the round has, and what follows is as much later.
        """
        self.began = self._now()
        for turn in self.scenario.rounds:
            self._wait(turn.at)
            self._compare((), turn.at, f"{turn.where}: before it")
            for line in turn.facts:
                self._happen(line)
            self._wait(turn.until)
            self._wait_for(len(_wanted(turn.plan)), turn.until)
            self._compare(turn.plan, turn.until, turn.where)

    def _now(self) -> Instant:
        return self.world.service.live.now()

    def _due(self, at: Instant) -> Instant:
        return self.began + round(at * self.scale)

    def _wait(self, at: Instant) -> None:
        while (left := self._due(at) - self._now()) > 0:
            self._sleep(min(left / SECOND, 0.5))

    def _wait_for(self, decisions: int, until: Instant) -> None:
        """So many decisions, if not in the round then as long after it as they take."""
        give_up = time.monotonic() + PATIENCE_S
        while len(self._new(until)) < decisions and time.monotonic() < give_up:
            self._sleep(0.1)
            self.began += max(0, self._now() - self._due(until))

    def _sleep(self, seconds: float) -> None:
        pulse = self.world.service.live.pulse
        assert not pulse.failed, pulse.failed
        time.sleep(seconds)

    def _new(self, until: Instant) -> list[Decided]:
        """Decisions that have not been compared yet, up to an instant of the file."""
        due = self._due(until)
        return [found for at, found in self.heard[self.compared :] if at <= due]

    def _compare(self, plan: Sequence[Statement], until: Instant, where: str) -> None:
        heard = self._new(until)
        self.compared += len(heard)
        got = [self._named(found) for found in heard]
        self.steps += [step_of(found) for found in got]
        wrong = differences(_wanted(plan), got)
        if wrong:
            story = [f"  decided: {step}" for step in self.steps]
            raise NotAsWrittenError("\n".join([f"{type(self.world).__name__}, {where}", *wrong, *story]))

    def _named(self, found: Decided) -> Decided:
        """In the words of the file."""
        subject = self.names.get(found.subject) or str(self.nodes.get(NodeName(found.subject), found.subject))
        on = tuple(self.nodes[name] for name in dict(found.details).get("on", ()))  # type: ignore[attr-defined]
        details = [(key, value) for key, value in found.details if key == "resumed"]
        return Decided(found.verb, subject, (*([("on", on)] if on else []), *details), self._reason(found.reason))

    def _reason(self, reason: object) -> object:
        if isinstance(reason, reasons.PreemptedFor):
            return replace(reason, beneficiary=WorkloadId(self.names[reason.beneficiary]))
        if isinstance(reason, reasons.DrainedFrom):
            return replace(reason, node=self.nodes[NodeName(reason.node)])
        return reason

    # --- what happens
    def _happen(self, line: Statement) -> None:
        if line.verb == "submit":
            self._submit(line)
        elif line.verb == "cancel":
            for name in names_of(line.words[0], line.where):
                self.world.cancel(self.ids[name])
        elif line.verb in ("degraded", "up"):
            for node in build.node_names(line.words[0], line.where):
                real = self.real[NodeName(node)]
                if line.verb == "up":
                    self.world.resume(real)
                else:
                    self.world.drain(real, line.get("cause", "sick"))
        else:
            raise ScenarioError(f"{line.where}: {line.verb} cannot be played with real time")

    def _submit(self, line: Statement) -> None:
        names = names_of(line.words[0], line.where)
        limit = at_most(line)
        wishes = [self._wish(line, len(names), limit)] if limit else [self._wish(line, 1, 0)] * len(names)
        given = [job for wish in wishes for job in self.world.submit(wish)]
        self.ids |= dict(zip(names, given, strict=True))
        self.names |= dict(zip(given, names, strict=True))

    def _wish(self, line: Statement, count: int, limit: int) -> Wish:
        nodes, gpus = build.nodes_by_gpus(line.words[2], line.where)
        after = names_of(line.get("after"), line.where) if line.get("after") else []
        return Wish(
            count, line.words[1], line.get("user"), nodes, gpus,
            self._scaled(line.duration("min")), self._scaled(line.duration("grace", build.DEFAULT_GRACE)),
            self._scaled(line.duration("run")) if line.get("run") else None,
            tuple(self.ids[name] for name in after), limit,
        )  # fmt: skip

    def _scaled(self, span: Duration) -> Duration:
        return round(span * self.scale)


def _wanted(plan: Sequence[Statement]) -> list[Decided]:
    return [_loosened(each) for line in plan if line.verb in DECISIONS for each in expected(line)]


def _loosened(want: Decided) -> Decided:
    """Without the instants, which real time does not keep to the millisecond."""
    details = tuple((key, value) for key, value in want.details if key in ("on", "resumed"))
    reason = want.reason
    if isinstance(reason, ReasonWanted):
        reason = replace(reason, numbers=tuple(pair for pair in reason.numbers if pair[0] in COMPARED))
    return Decided(want.verb, want.subject, details, reason)


def three_ways(scenario: Scenario, slurm: SlurmCluster, folder: Path, hour: float = HOUR_S) -> dict[str, list[Step]]:
    """The decisions of each way.

    Raises:
        NotAsWrittenError: a way departs from the file; the message says which and where.
    """
    replay = Replay(scenario)
    replay.play()
    found = {"replay": replay.steps}
    scale, wrong = hour / 3600, list[BaseException]()

    def play(name: str, world: World) -> None:
        way = Way(scenario, world, scale)
        found[name] = way.steps
        try:
            way.play()
        except BaseException as error:
            wrong.append(error)

    with (
        local_world(scenario, folder / "local", scale) as local,
        slurm_world(scenario, slurm, folder / "slurm", scale) as there,
    ):
        threads = [threading.Thread(target=play, args=each) for each in (("local", local), ("slurm", there))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if wrong:
        raise NotAsWrittenError("\n".join(str(error) for error in wrong)) from wrong[0]
    return found


def same_order(scenario: Scenario, found: Mapping[str, Sequence[Step]]) -> list[str]:
    """How the ways differ, for people; nodes count where the file names them, which each round has compared."""
    orders = {name: [(step.verb, step.subject) for step in steps] for name, steps in found.items()}
    return [
        f"{scenario.name}: {name} decided {[' '.join(each) for each in order]}, the replay "
        f"{[' '.join(each) for each in orders['replay']]}"
        for name, order in orders.items()
        if order != orders["replay"]
    ]


def last(rounds: Sequence[Round]) -> Instant:
    return rounds[-1].until


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--hour", type=float, default=HOUR_S, help="Seconds that an hour of a file takes.")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    absent = missing()
    if absent:
        raise SystemExit(f"skipped: {absent}")
    folder, wrong = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp")), []
    try:
        with SlurmCluster(folder, nodes=3) as slurm:
            for number, file in enumerate(asked.files):
                scenario = read_scenario(file)
                print(f"{file.stem}: {last(scenario.rounds) / 3_600_000 * asked.hour:.0f} s")
                found = three_ways(scenario, slurm, folder / f"ways{number}", asked.hour)
                for row in zip(*found.values(), strict=False):
                    print("".join(f"  {step!s:32}" for step in row))
                wrong += same_order(scenario, found)
    except NotAsWrittenError as error:
        wrong.append(str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(wrong) or "the same decisions in the same order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
