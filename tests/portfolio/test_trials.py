"""What if on the journal of a service: the log that it makes, and the trial in the background."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.model.events import Outcome
from mirab.model.units import DAY, HOUR, MINUTE
from mirab.service.desk.errors import DeskError
from mirab.service.desk.exceptions import Wish
from mirab.service.desk.portfolio import Shares
from mirab.service.trials import DONE, REMEMBERED, STORE, Asked, Trials, Tried, tried
from mirab.store.beginning import beginning
from mirab.study.pastwork import past_trace
from tests.portfolio.conftest import Mirab
from tests.service.house import ADA, EVE, ROOT, Bench

PATIENCE = 180.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def fortnight(bench: Bench, days: int = 5) -> None:
    """Both teams want all 8 GPUs, in jobs of a node and 4 h, day after day; a node is sick for a day."""
    going: list[str] = []
    for day in range(days):
        if day == 1:
            bench.desk.node_drain(ROOT, "n0", "a fan")
        if day == 2:
            bench.desk.node_resume(ROOT, "n0", "mended")
        for _ in range(6):
            going += bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
            going += bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="1h")
            bench.wait(4 * HOUR)
            running = [job for job in going if bench.row(job).state.value == "RUNNING"]
            bench.end(*running)
            going = [job for job in going if job not in running]


def trace_of(bench: Bench, begin: int) -> Any:
    records = ((facts, plan) for _, facts, plan in bench.store.records())
    state = bench.state
    began = beginning(bench.store.meta)
    assert began is not None
    return past_trace(records, state.cluster, state.budgets, begin, bench.live.now(), began.policy)


def wait_for(trials: Trials, name: str) -> Tried:
    """The trial when it has ended."""
    until = time.monotonic() + PATIENCE
    while (found := trials.find(name)) is not None and found.state == "running":
        assert time.monotonic() < until
        time.sleep(0.01)
    assert found is not None
    return found


def test_the_journal_is_a_log_of_its_last_days(bench: Bench) -> None:
    began = bench.live.now()
    fortnight(bench, 3)
    whole = trace_of(bench, began)
    ended = [each for each in whole.arrivals if each.run == 4 * HOUR]
    assert len(ended) > 20
    assert whole.ends_at == 3 * DAY
    assert [(each.node, each.kind, each.at, each.repair) for each in whole.troubles] == [("n0", "degraded", DAY, DAY)]
    last = trace_of(bench, began + 2 * DAY)
    assert {each.workload.submitted_at for each in last.arrivals} <= set(range(0, DAY, 4 * HOUR))
    waiting_then = [each for each in last.arrivals if each.workload.submitted_at == 0]
    assert len(waiting_then) > 2, "those who waited when the period began come in at its beginning"


def test_what_had_begun_brings_what_was_left_of_it_and_what_goes_on_is_guessed(bench: Bench) -> None:
    began = bench.live.now()
    (long,) = bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
    (gone,) = bench.submit(EVE, account="llm", gpus_per_node=4, nodes=2)
    bench.wait(10 * HOUR)
    bench.desk.cancel(EVE, [gone])
    bench.wait(20 * HOUR)
    bench.end(long)
    (on,) = bench.submit(ADA, gpus_per_node=1, time_limit="9h")
    bench.wait(HOUR)
    runs = {each.workload.id: each.run for each in trace_of(bench, began + 12 * HOUR).arrivals}
    assert runs == {long: 18 * HOUR, on: 9 * HOUR}
    early = {each.workload.id: each for each in trace_of(bench, began).arrivals}
    assert (early[long].run, early[gone].cancel_after) == (30 * HOUR, 10 * HOUR)


def test_a_failure_of_hardware_repeats_what_was_lost(bench: Bench) -> None:
    began = bench.live.now()
    (job,) = bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
    bench.wait(2 * HOUR)
    bench.end(job, outcome=Outcome.NODE_FAIL)
    bench.wait(3 * HOUR)
    bench.end(job)
    (arrival,) = trace_of(bench, began).arrivals
    assert 3 * HOUR <= arrival.run <= 5 * HOUR + MINUTE


def test_more_share_for_one_is_delivered_to_it_and_taken_from_the_other(bench: Bench) -> None:
    fortnight(bench)
    portfolio = bench.desk.portfolio
    begun = portfolio.tried(Shares({"vision": "20%", "llm": "80%"}), 5)
    assert begun.state == "running"
    assert portfolio.tried(Shares({"vision": "20%", "llm": "80%"}), 5).id == begun.id, "the same question is one"
    found = wait_for(portfolio.trials, begun.id)
    assert found.found is not None, found
    rows = {row["account"]: row for row in found.found["accounts"]}
    assert rows["llm"]["owed"]["after"] > rows["llm"]["owed"]["before"]
    assert rows["llm"]["used"]["after"] > rows["llm"]["used"]["before"] + 8
    assert rows["vision/video"]["used"]["after"] < rows["vision/video"]["used"]["before"]
    assert {(each["account"], each["after"]) for each in found.found["changes"]} >= {("llm", "80%")}


def test_a_question_is_one_while_a_young_service_grows_older(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page asks every two seconds, and the journal is shorter than what it asks for: it must get to see an answer."""
    monkeypatch.setattr("mirab.service.trials._in_a_process", lambda url, name, asked: Tried(name, DONE, {"a": 1}))
    bench.submit(ADA)
    asked = Shares({"vision": "20%", "llm": "80%"})
    first = bench.desk.portfolio.tried(asked, 30).id
    for _ in range(59):
        bench.engine.at += MINUTE
        assert bench.desk.portfolio.tried(asked, 30).id == first
    assert bench.desk.portfolio.tried(asked, 14).id != first
    bench.engine.at += MINUTE
    assert bench.desk.portfolio.tried(asked, 30).id != first, "after an hour it is tried on what has happened since"


def test_what_is_remembered_is_forgotten_at_its_end_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.service.trials._in_a_process", lambda url, name, asked: Tried(name, DONE, {"a": 1}))
    state, trials = bench.state, Trials("sqlite:///nowhere")
    names = []
    for number in range(REMEMBERED + 3):
        asked = Asked(state.budgets, state.budgets, state.policy, state.cluster, DAY + number, 0)
        names.append(trials.begin(asked, bench.live.now()).id)
        wait_for(trials, names[-1])
    assert [trials.find(name) is None for name in names] == [True] * 3 + [False] * REMEMBERED


def test_what_a_proposal_closes_is_named_with_what_that_refuses(bench: Bench) -> None:
    fortnight(bench, 3)
    wanted = (
        "budgets: {vision: {share: 50%, children: {video: {share: 50%}, image: {share: 25%}}}, "
        "llm: {share: 0%, closed: 2023-11-14}}"
    )
    found = wait_for(bench.desk.portfolio.trials, bench.desk.portfolio.tried(wanted, 5).id).found
    assert found is not None
    count = next(row["workloads"]["before"] for row in found["accounts"] if row["account"] == "llm")
    (told,) = (note for note in found["notes"] if "closed" in note)
    assert told == f"llm is closed in the proposal: {count} workloads that came in for it are refused there."
    assert count > 10


def test_an_exception_is_tried_on_the_journal_before_it_is_approved(bench: Bench) -> None:
    """A node for four days next week, put into the five days that there are: the others pay for it."""
    fortnight(bench)
    portfolio, now = bench.desk.portfolio, bench.live.now()
    wish = Wish("reservation", "vision/video", "a demo", now + 11 * DAY, now + 7 * DAY, nodes=1, gpus_per_node=4)
    case = portfolio.exceptions.request(ADA, wish)
    found = wait_for(portfolio.trials, portfolio.tried_exception(case.id, 5).id).found
    assert found is not None
    (tried_,) = found["exceptions"]
    assert (tried_["id"], tried_["owner"], tried_["unit_hours"]) == (case.id, "ada", 4 * 24 * 4)
    assert tried_["placed"].startswith("from ")
    assert {each["account"]: each["during"] < 0 for each in tried_["cost"]}["llm"]
    assert found["changes"] == []
    assert case.id not in bench.state.reservations, "nothing was approved"
    with pytest.raises(DeskError, match="there is no exception x99"):
        portfolio.tried_exception("x99", 5)


def test_the_same_file_is_refused_as_a_change_and_as_a_what_if(bench: Bench, mirab: Mirab, tmp_path: Path) -> None:
    present, proposal = tmp_path / "present.yaml", tmp_path / "proposal.yaml"
    present.write_text("budgets: {vision: {share: 50%}, llm: {share: 50%}}\n")
    proposal.write_text("budgets: {vision: {share: 60%}}\n")
    refused = mirab("budget", "set", present, "--with", proposal, "--reason", "x", "--author", "ann")
    assert (refused.code, "account llm would vanish" in refused.err) == (1, True)
    with pytest.raises(DeskError, match=r"leaves out .*llm"):
        bench.desk.portfolio.tried(proposal.read_text(), 5)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Shares({"vision": "50%"}), "changes nothing"),
        (Shares({"vision": "60%"}), "110%|more than 100"),
        (Shares({"nobody": "1%"}), "there is no account nobody"),
        ("budgets: {vision: }", "holds nothing"),
        ("budgets: {vision: {share: 60%}}", "leaves out vision/video, vision/image, llm: .*closed: 2023-11-14"),
        (
            "budgets: {vision: {share: 60%, children: {video: {share: 9%}}}, llm: {share: 40%}}",
            "leaves out vision/image",
        ),
    ],
)
def test_what_is_no_division_is_told(bench: Bench, wanted: Any, says: str) -> None:
    bench.submit(ADA)
    with pytest.raises(DeskError, match=says):
        bench.desk.portfolio.tried(wanted, 5)


def test_a_trial_that_fails_says_why_and_can_be_asked_for_again(tmp_path: Path, bench: Bench) -> None:
    trials = Trials(f"sqlite:///{tmp_path}/none/mirab.db", tmp_path / "kept")
    state = bench.state
    now = bench.live.now()
    asked = Asked(state.budgets, state.budgets, state.policy, state.cluster, DAY, now)
    begun = trials.begin(asked, now)
    found = wait_for(trials, begun.id)
    assert (found.state, bool(found.problem)) == ("failed", True)
    assert trials.begin(asked, now).state == "running"


def test_what_was_kept_is_found_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "w0123456789abcdef.json").write_text('{"a": 1}')
    trials = Trials("sqlite:///nowhere", tmp_path)
    assert trials.find("w0123456789abcdef").found == {"a": 1}  # type: ignore[union-attr]
    assert trials.find("w0000000000000000") is None
    assert trials.find("../w0123456789abcdef") is None


def test_the_answer_is_the_same_for_the_same_journal(bench: Bench) -> None:
    from mirab.model.codec import encode

    fortnight(bench, 3)
    state, now = bench.state, bench.live.now()
    asked = {"present": encode(state.budgets), "proposed": encode(state.budgets), "policy": encode(state.policy),
             "cluster": encode(state.cluster), "length": 3 * DAY, "since": 0, "now": now}  # fmt: skip
    one = tried(bench.store.url, asked)
    assert all(row["verdict"] in ("same", "unknown") for row in one["accounts"])
    assert one["all"]["used"]["difference"] == 0


MAKER = """
import os, subprocess, sys
trial = subprocess.Popen([sys.executable, "-m", "mirab.service.trials", str(os.getpid())], stdin=int(sys.argv[1]))
print(trial.pid, flush=True)
trial.wait()
"""


def test_a_trial_ends_with_its_service_however_that_ends() -> None:
    """It may take half an hour, and would hold the store open for all of it. This one waits for its question."""
    question, asker = os.pipe()
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(question)],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[question],
        env={**os.environ, STORE: "sqlite://"},
    )
    try:
        assert maker.stdout is not None
        trial = os.pidfd_open(int(maker.stdout.readline()))
        os.set_blocking(trial, False)
        assert not select.select([trial], [], [], 1.0)[0], "it waits for its question"
        maker.kill()
        maker.wait()
        assert select.select([trial], [], [], PATIENCE)[0], "it ended although nobody asked"
        os.close(trial)
    finally:
        maker.kill()
        maker.wait()
        os.close(question)
        os.close(asker)


def test_a_trial_whose_service_is_gone_does_not_begin() -> None:
    done = subprocess.run([sys.executable, "-m", "mirab.service.trials", "1"], input=b"{}", capture_output=True,
                          timeout=PATIENCE, check=False)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
