"""What a job depends on is done when the listing shows it; Slurm itself says so of a held job once a minute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.backends.slurm.dependencies import Done
from mirab.backends.slurm.records import SlurmJob
from mirab.backends.slurm.waiting import DEPENDENCY
from mirab.model import events as facts
from mirab.model.units import HOUR, SECOND, WorkloadId
from tests.slurm.test_errands import START, Desk
from tests.slurm.test_tracker import T0, Story, ended, job, kinds, runs, tracker


def task(number: int, state: SlurmJob) -> SlurmJob:
    return replace(state, id=f"5_{number}", job_id=5 + number, array_job=5, array_task=number)


def other(name: str, state: SlurmJob) -> SlurmJob:
    return replace(state, id=name, job_id=int(name))


LISTED = Done(
    {
        each.id: each
        for each in (
            other("2", ended("COMPLETED")),
            other("3", ended("FAILED")),
            other("4", runs()),
            task(1, ended("COMPLETED")),
            task(2, ended("COMPLETED")),
            *(replace(task(number, ended("COMPLETED")), id=f"7_{number}", array_job=7) for number in (1, 2)),
            replace(task(3, job()), id="7_3", array_job=7),
            other("9", replace(ended("COMPLETED"), flags=("COMPLETING",))),
            other("10", job()),
        )
    }
)


@pytest.mark.parametrize(
    ("dependency", "fulfilled"),
    [
        ("afterok:2(unfulfilled)", True),
        ("afterok:3(unfulfilled)", False),
        ("afternotok:3(unfulfilled)", True),
        ("afternotok:2(unfulfilled)", False),
        ("afterany:2:3", True),
        ("afterany:4(unfulfilled)", False),
        ("after:4(unfulfilled)", True),
        ("after:10(unfulfilled)", False),
        ("afterok:2(unfulfilled),afterany:3(unfulfilled)", True),
        ("afterok:2(unfulfilled),afterok:4(unfulfilled)", False),
        ("afterok:5_*(unfulfilled)", True),
        ("afterok:5_1(unfulfilled)", True),
        ("afterok:7_*(unfulfilled)", False),
        ("afterok:7", False),
        ("afterok:9(unfulfilled)", False),
        ("afterok:99(unfulfilled)", False),
        ("afterok:2(failed)", False),
        ("after:4+5(unfulfilled)", False),
        ("afterok:2(unfulfilled)?afterok:3(unfulfilled)", False),
        ("aftercorr:5_*(unfulfilled)", False),
        ("singleton(unfulfilled)", False),
        ("", False),
    ],
)
def test_only_what_is_certain_counts(dependency: str, fulfilled: bool) -> None:
    assert LISTED.fulfils(dependency) is fulfilled


def test_a_job_may_start_at_the_look_that_shows_the_end_of_what_it_depends_on() -> None:
    story = Story(tracker())
    first, then = other("2", runs()), job(dependency="afterok:2(unfulfilled)")
    assert [fact.why for fact in story.look(first, then) if isinstance(fact, facts.WorkloadHeld)] == [DEPENDENCY]
    told = story.look(other("2", ended()), then)
    assert kinds(told) == ["RunEnded", "WorkloadReleased"]


def test_if_slurm_sees_it_otherwise_its_word_is_waited_for() -> None:
    desk = Desk()
    over, then = replace(other("2", ended()), submitted_at=T0 - HOUR), job(dependency="afterok:2(unfulfilled)")
    desk.look(over, then)
    desk.errands.do([START])
    desk.now += 30 * SECOND
    desk.look(over, replace(then, held_by="", placed=True, reason="Dependency"))
    desk.look(over, replace(then, placed=True, reason="JobHeldAdmin"))
    assert [type(fact).__name__ for fact in desk.told] == ["RunEnded"], "no launch that failed"
    told = desk.tracker.take_in([over, replace(then, placed=True)], [], desk.now)
    assert facts.WorkloadHeld(desk.now, WorkloadId("1"), DEPENDENCY) in told
    told = desk.tracker.take_in([over, replace(then, placed=True, dependency="")], [], desk.now)
    assert kinds(told)[-1] == "WorkloadReleased"
