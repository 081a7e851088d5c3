"""Why: every blocker with what would remove it, who goes before, what a changed request would get; and stories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mirab.cli.why import lines_of
from mirab.model.events import Outcome
from mirab.model.units import HOUR, MINUTE, SECOND
from mirab.service.evidence import WhyAnswer
from mirab.service.views.answers import Answers
from mirab.service.views.moments import iso
from mirab.service.views.views import Views
from tests.service.house import ADA, BOB, EVE, OPS, Bench, form


@pytest.fixture
def answers(bench: Bench) -> Iterator[Answers]:
    yield Answers(bench.live, bench.desk)


def why(answers: Answers, job: str, whatif: bool = True) -> WhyAnswer:
    answer = answers.why(job, whatif)
    assert answer is not None
    return answer


def text(answer: WhyAnswer) -> str:
    return "\n".join(lines_of(json.loads(answer.model_dump_json())))


def full(bench: Bench, minimum: str = "8h") -> str:
    """One job has both nodes."""
    return bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime=minimum)[0]


def test_the_blocker_with_its_numbers_and_what_would_remove_it(bench: Bench, answers: Answers) -> None:
    full(bench)
    (job,) = bench.submit(ADA, gpus_per_node=4, min_runtime="2h")
    answer = why(answers, job)
    (blocker,) = answer.blockers
    assert blocker.code == "Resources"
    assert blocker.reason["type"] == "NoFreeGpus"
    assert answer.headline == blocker.fact
    assert "needs 1 node with 4 free GPUs; 0 are" in blocker.fact
    assert "1 more node must come free" in blocker.action
    assert (blocker.about, answer.story) == (job, None)
    assert "no help: with a minimum of 1 h instead of 2 h" in text(answer)


def test_who_lacks_cores_and_no_gpus_is_told_so(bench: Bench, answers: Answers) -> None:
    for _ in range(2):
        bench.submit(EVE, account="llm", gpus_per_node=1, cpus_per_node=32, min_runtime="2h")
    (job,) = bench.submit(ADA, gpus_per_node=1, cpus_per_node=8, min_runtime="2h")
    (blocker,) = why(answers, job).blockers
    assert (
        "needs 1 node with 1 free GPU; 2 have them (6 GPUs free in all), but not the cores or the mem" in blocker.fact
    )
    assert blocker.action == "Cores or memory must come free there; asking for less of them may start it before"


def test_work_without_gpus_waits_for_cores(bench: Bench, answers: Answers) -> None:
    for cores in (16, 32, 32):
        (ran,) = bench.submit(EVE, account="llm", gpus_per_node=0, cpus_per_node=cores, min_runtime="2h")
    (job,) = bench.submit(ADA, gpus_per_node=0, cpus_per_node=8, min_runtime="2h")
    (blocker,) = why(answers, job).blockers
    assert "needs 1 node with 8 free cores" in blocker.fact
    told = bench.desk.dry_run(ADA, form(gpus_per_node=0, cpus_per_node=9, min_runtime="2h"))
    listed = Views(bench.live, bench.desk).job(job)
    assert listed is not None
    sentences = [blocker.fact, listed.why, told.sentence]
    assert all("GPU" not in each for each in sentences), sentences
    bench.end("1")
    bench.wait(SECOND)
    assert "started as 1.1 with 16 cores on c0" in why(answers, "1").text
    assert ran == "3"


def test_ones_own_come_first_with_their_numbers(bench: Bench, answers: Answers) -> None:
    full(bench)
    jobs = [bench.submit(ADA, gpus_per_node=4, min_runtime="2h")[0] for _ in range(3)]
    first, second = why(answers, jobs[2]).blockers
    assert (first.code, first.removes) == ("Behind", jobs[:2])
    assert (second.code, second.about) == ("Resources", jobs[0])
    assert f"of {jobs[0]}, first of its queue" in text(why(answers, jobs[2]))


def test_a_change_that_starts_it_now_is_told_and_labelled(bench: Bench, answers: Answers) -> None:
    """One node is free: a gang of two waits, half of it would not."""
    bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="8h")
    (job,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="2h")
    seq = bench.store.last()
    answer = why(answers, job)
    found = {each.change: each for each in answer.whatif}
    assert found["with 1 node instead of 2"].decision == "start"
    assert found["with 1 node instead of 2"].sentence == "it would start now"
    assert "Rehearsed now on a copy of the scheduler, not promised" in text(answer)
    assert bench.store.last() == seq
    assert bench.states()[job] == "PENDING"


def test_the_recorded_alone_for_those_in_a_hurry(bench: Bench, answers: Answers) -> None:
    full(bench)
    (job,) = bench.submit(ADA, gpus_per_node=4)
    answer = why(answers, job, whatif=False)
    assert answer.blockers[0].reason["type"] == "NoFreeGpus"
    assert (answer.whatif, answer.in_vain, answer.level) == ([], [], "")


def test_what_keeps_it_out_of_the_queue(bench: Bench, answers: Answers) -> None:
    (before,) = bench.submit(ADA)
    (held,) = bench.submit(ADA, hold=True)
    (after,) = bench.submit(ADA, dependency=f"afterok:{before}")
    assert [(each.code, each.action) for each in why(answers, held).blockers] == [
        ("Held", "`mirab release` lets it go")
    ]
    (blocker,) = why(answers, after).blockers
    assert (blocker.code, f"afterok:{before}" in blocker.fact) == ("Dependency", True)
    bench.desk.release(ADA, [held])
    bench.desk.hold(OPS, [after], "a test")
    assert "operator ops holds it back: a test" in why(answers, after).headline


def test_who_goes_before_and_what_put_them_there(bench: Bench, answers: Answers) -> None:
    """vision/video has run for a day, llm for nothing: both wait, llm first."""
    (mine,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="8h")
    bench.wait(7 * HOUR)
    (theirs,) = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="2h")
    (job,) = bench.submit(ADA, gpus_per_node=4, min_runtime="4h")
    answer = why(answers, job)
    assert [each.account for each in answer.ahead] == ["llm", "vision/video"]
    ahead, own = answer.ahead
    assert (ahead.mine, own.mine, ahead.first_job, own.first_job) == (False, True, theirs, job)
    assert ahead.ratio is not None and own.ratio is not None
    assert ahead.ratio < own.ratio
    ((entry,), runs) = own.entries, own.runs
    assert (entry.run, entry.user, entry.gpu_h, entry.running, runs) == (f"{mine}.1", "ada", 56.0, True, 1)
    assert ahead.runs == 0
    assert "vision/video stands at" in answer.level and "llm at" in answer.level
    assert "1 run: 1.1 of ada 56 h" in text(answer)


def test_when_accounts_are_level_at_the_present_mix(bench: Bench, answers: Answers) -> None:
    """vision/video had both nodes for two hours; llm, with twice its share, has them now: level in two hours more."""
    (old,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="15m")
    bench.wait(2 * HOUR)
    bench.end(old)
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="15m")
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="15m")
    (job,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="15m")
    answer = why(answers, job)
    assert answer.level_at == iso(bench.engine.at + 2 * HOUR)
    assert answer.level.startswith(
        "vision/video stands at 1.03 of its share, llm at 0.99 goes first; at the present mix"
    )
    assert [each.account for each in answer.ahead] == ["llm", "vision/video"]


def test_the_story_of_one_that_was_stopped_for_another(bench: Bench, answers: Answers) -> None:
    """eve's uncharged job is stopped for ada's, waits with its seniority, and runs again."""
    (lost,) = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="0")
    bench.wait(HOUR)
    (winner,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="15m")
    bench.settle()
    bench.wait(20 * SECOND)
    assert bench.states() == {lost: "PENDING", winner: "RUNNING"}
    answer = why(answers, lost)
    assert answer.story is not None
    assert answer.story["runs"][0]["stop"]["reason"]["beneficiary"] == winner
    assert answer.blockers
    told = text(answer)
    for words in (
        f"stopped for {winner} of vision/video",
        "its minimum was 0",
        "back in the queue",
        f"{lost} is waiting",
    ):
        assert words in told
    assert "replay of" not in told
    bench.wait(HOUR)
    bench.end(winner)
    bench.wait(30 * MINUTE)
    bench.end(lost)
    told = why(answers, lost).headline
    assert told.startswith("finished: waited") and "was preempted once" in told


def test_the_story_of_a_held_one_tells_who_held_it(bench: Bench, answers: Answers) -> None:
    (job,) = bench.submit(ADA, hold=True)
    bench.wait(HOUR)
    bench.desk.release(ADA, [job])
    bench.settle()
    assert "ada holds it back" in text(why(answers, job))


def test_a_long_life_is_told_from_its_own_records(
    bench: Bench, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirab.service.views.why.STORY_RECORDS", 1)
    (job,) = bench.submit(ADA)
    for _ in range(5):
        bench.submit(BOB, account="llm", gpus_per_node=0, cpus_per_node=1)
    bench.end(job)
    assert "finished" in text(why(answers, job))


def test_there_never_was_such_a_job(answers: Answers) -> None:
    assert answers.why("4711") is None


def test_the_story_of_one_that_failed_tells_how(bench: Bench, answers: Answers) -> None:
    """The exit code, and what it means; what was lost is not called repeated, since nobody repeats it."""
    codes = {3: "failed with exit code 3 after", 137: "failed with exit code 137 (ended by SIGKILL) after",
             127: "failed with exit code 127 (no such command) after"}  # fmt: skip
    for code, words in codes.items():
        (job,) = bench.submit(ADA)
        bench.wait(MINUTE)
        bench.engine.end(job, Outcome.FAILED, code)
        bench.settle()
        answer = why(answers, job)
        assert words in text(answer)
        assert answer.headline.startswith(words.removesuffix(" after") + ": waited 0 s in all, ran 1 min")
        assert "repeated" not in text(answer)


def test_one_that_runs_has_run_until_now(bench: Bench, answers: Answers) -> None:
    (job,) = bench.submit(ADA)
    bench.wait(30 * MINUTE)
    assert "still running: waited 0 s in all, ran 30 min in 1 attempt" in text(why(answers, job))


def test_those_that_waited_before_it_are_in_its_story(bench: Bench, answers: Answers) -> None:
    """Its own that came before it, and the accounts of others that started meanwhile though they came before."""
    full(bench, "1h")
    whole: dict[str, Any] = {"gpus_per_node": 4, "nodes": 2, "min_runtime": "1h"}
    (before,) = bench.submit(ADA, **whole)
    bench.submit(EVE, account="llm", **whole)
    (job,) = bench.submit(ADA, **whole)
    while bench.states()[job] == "PENDING":
        bench.wait(10 * MINUTE)
        bench.end(*(start.workload_id for start in bench.engine.running.values()))
    told = text(why(answers, job))
    assert f"1 of the same user and shape stood before it ({before} next)" in told
    assert "an account not in the record" not in told


def test_a_single_gpu_can_be_no_fewer(bench: Bench, answers: Answers) -> None:
    full(bench)
    (job,) = bench.submit(ADA, gpus_per_node=1, min_runtime="2h")
    (blocker,) = why(answers, job).blockers
    assert blocker.action == "1 GPU must come free for it"
