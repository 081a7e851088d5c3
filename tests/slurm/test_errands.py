"""What is written to Slurm, and when not, with a runner that only notes it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.errands import Errands
from mirab.backends.slurm.runner import Runner
from mirab.backends.slurm.tracker import Known
from mirab.model.events import Event
from mirab.model.plans import Preempt, Repair, Start
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, SECOND, AccountPath, RunId, WorkloadId
from tests.slurm.test_tracker import NAMES, NODES, T0, job, runs, tracker

START = Start(
    RunId("1.1"), WorkloadId("1"), Allocation(0, 1, 8), HOUR, InOrder(AccountPath("red"), 0.0, False)
)  # fmt: skip
STOP = Preempt(RunId("1.1"), 2 * SECOND, DrainedFrom(NAMES[0], ""))


class Notes(Runner):
    """Runs nothing. `refuses`: what is said to every change of a job."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Command] = []
        self.refuses = ""

    def write(self, commands: Sequence[Command]) -> list[str]:
        self.written += commands
        return [self.refuses] * len(commands)

    @property
    def words(self) -> list[str]:
        return [" ".join(command) for command in self.written]


class Desk:
    """An errand boy, a clock, and what he told."""

    def __init__(self, known: Known | None = None) -> None:
        self.now, self.told, self.notes = T0, list[Event](), Notes()
        self.tracker = tracker(known)
        self.errands = Errands(self.notes, self.tracker, lambda: self.now, self.told.extend)

    def look(self, *jobs) -> None:  # type: ignore[no-untyped-def]
        self.tracker.take_in(jobs, NODES, self.now)
        self.errands.tidy(jobs)


def test_a_held_job_is_let_go_to_its_nodes_once() -> None:
    desk = Desk()
    desk.look(job())
    desk.errands.do([START])
    assert [word for words in desk.notes.words for word in words.split() if "Node" in word] == ["ReqNodeList=n0"]
    desk.look(job(held_by="", placed=True))
    assert len(desk.notes.written) == 3


def test_what_no_look_has_shown_yet_is_neither_judged_nor_touched() -> None:
    desk = Desk(Known(expected={RunId("1.1"): NAMES[:1]}, at=T0))
    desk.errands.do([START])
    assert not desk.notes.written and not desk.told
    desk.look(runs())
    assert not desk.notes.written and not desk.told, "it runs: nodes written to it would resize it"
    desk = Desk(Known(expected={RunId("1.1"): NAMES[:1]}, at=T0))
    desk.errands.do([START])
    desk.look(job())
    assert any("ReqNodeList=n0" in words for words in desk.notes.words)


def test_a_stop_is_told_before_it_is_done_and_never_to_a_later_run() -> None:
    desk = Desk()
    desk.look(runs())
    desk.errands.do([STOP])
    assert desk.notes.words == ["scancel --signal=TERM --batch 1", "scancel --signal=TERM 1"]
    assert desk.errands.next_due() == T0 + 2 * SECOND
    desk.now += 2 * SECOND
    desk.errands.do([])
    assert desk.notes.words[-1] == "scontrol requeuehold 1"
    again = Desk()
    again.look(runs())
    again.errands.do([STOP])
    again.now += 9 * SECOND
    again.look(runs(T0 + 5 * SECOND, restarts=1))
    again.errands.do([])
    assert not any("requeuehold" in words for words in again.notes.words)


def test_a_job_that_may_have_ended_before_its_notice_is_looked_at_before_it_is_requeued() -> None:
    """Slurm requeues what has completed, too: it would run a second time."""
    for after, requeued in ((runs(), True), (replace(runs(), state="COMPLETED", ended_at=T0 + SECOND), False)):
        desk = Desk()
        desk.look(runs())
        desk.now += 3 * SECOND
        desk.errands.do([STOP])
        desk.now += 2 * SECOND
        desk.errands.do([])
        assert not any("requeuehold" in words for words in desk.notes.words), "nobody has looked since"
        desk.look(after)
        desk.now += SECOND
        desk.errands.do([])
        assert any("requeuehold" in words for words in desk.notes.words) is requeued


@pytest.mark.parametrize(
    ("reason", "told"),
    [("Resources", "RunEnded"), ("ReqNodeNotAvail, UnavailableNodes:n2", "RunEnded"), ("None", "RunEnded"),
     ("QOSMaxGRESPerUser", "ActionRefused"), ("AssocGrpGRES", "ActionRefused")],
)  # fmt: skip
def test_what_hangs_is_held_before_it_is_taken_back(reason: str, told: str) -> None:
    """Only what Slurm will not let run is a launch that failed, after three of which a job is held for its owner."""
    desk = Desk()
    desk.look(job())
    desk.errands.do([START])
    desk.now += 30 * SECOND
    desk.look(job(held_by="", placed=True, reason=reason))
    assert desk.notes.words[-1].startswith("scontrol update JobId=1 Priority=0") and not desk.told
    desk.look(job(placed=True, reason="JobHeldAdmin"))
    assert [type(fact).__name__ for fact in desk.told] == [told]


BUSY = "scontrol update JobId=1: Job update not available right now, the DB index is being set, try again in a bit"


@pytest.mark.parametrize(
    ("refusal", "told"),
    [(BUSY, "ActionRefused"), ("scontrol did not answer within 30 s", "RunEnded")],
)
def test_a_job_of_which_slurm_takes_no_change_gives_its_nodes_back(refusal: str, told: str) -> None:
    """As when the controller was killed while it asked its database for the job: it never gets over that."""
    desk = Desk()
    desk.notes.refuses = refusal
    desk.look(job())
    desk.errands.do([START])
    assert [words.split()[1] for words in desk.notes.words] == ["update"], "not let go without its nodes"
    desk.look(job())
    assert not desk.told and len(desk.notes.written) == 2
    desk.now += 21 * SECOND
    desk.notes.refuses = "" if told == "RunEnded" else refusal
    desk.look(job())
    assert [type(fact).__name__ for fact in desk.told] == [told]
    assert ("Priority=0" in desk.notes.words[-1]) is (told == "RunEnded"), "what may have been heard is taken back"


def test_a_node_that_is_only_reserved_is_not_repaired() -> None:
    desk = Desk()
    desk.errands = Errands(desk.notes, desk.tracker, lambda: desk.now, desk.told.extend, ("repair",))
    desk.tracker.take_in([], [replace(NODES[0], flags=("RESERVED",)), replace(NODES[1], flags=("DRAIN",))], desk.now)
    desk.errands.do([Repair(NAMES[0]), Repair(NAMES[1])])
    assert desk.notes.words == ["repair n1"]


def test_a_start_that_came_to_nothing_is_not_made_when_it_is_asked_for_again() -> None:
    """A storm found it: taken back at the first look after a restart, then let go as the run that was over."""
    desk = Desk(Known(expected={RunId("1.1"): NAMES[:1]}, ordered={RunId("1.1"): T0 - HOUR}, at=T0))
    desk.look(job())
    assert [type(fact).__name__ for fact in desk.told] == ["RunEnded"]
    written = len(desk.notes.written)
    desk.errands.do([START])
    assert len(desk.notes.written) == written and not desk.tracker.expected()
    desk.errands.do([replace(START, run_id=RunId("1.2"))])
    assert len(desk.notes.written) > written
