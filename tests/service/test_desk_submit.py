"""Submitting: what is accepted as asked, what is accepted otherwise and says so, what is refused with a sentence."""

from __future__ import annotations

import os
from threading import Thread
from typing import Any

import pytest

from mirab.model.policy import Policy
from mirab.model.records import Grant
from mirab.model.units import HOUR, MINUTE, SECOND
from mirab.service.auth.principal import Principal
from mirab.service.desk.errors import DeskError
from mirab.service.desk.forms import USUAL_MINIMUM, SubmitForm
from tests.service.house import ADA, BOB, EVE, Bench, form


def refused(bench: Bench, who: Principal = ADA, **fields: Any) -> DeskError:
    before = bench.states()
    with pytest.raises(DeskError) as caught:
        bench.desk.submit(who, form(**fields))
    assert bench.states() == before, "a refusal leaves nothing behind"
    return caught.value


def test_a_job_is_numbered_recorded_and_started(bench: Bench) -> None:
    assert bench.submit(name="train", min_runtime="2h", time_limit="1d", label="paper") == ["1"]
    row = bench.row("1")
    assert (row.name, row.user, row.account, row.label) == ("train", "ada", "vision/video", "paper")
    assert (row.state.value, row.min_runtime, row.time_limit) == ("RUNNING", 2 * HOUR, 24 * HOUR)
    assert bench.submit() == ["2"]


def test_what_is_executed_is_kept_word_for_word(bench: Bench) -> None:
    hostile = "a'b\"c\nd $(rm -rf /) `id` \\ é 漢 \t"
    bench.submit(argv=("prog", hostile), environment={"X": hostile, "A": ""}, signal="SIGUSR1", grace="2m", cwd="/srv")
    spec = bench.store.spec("1")
    assert spec.argv == ("prog", hostile)
    assert spec.environment == (("A", ""), ("X", hostile))
    assert (spec.signal, spec.grace, spec.cwd, spec.output) == ("USR1", 2 * MINUTE, "/srv", "mirab-%j.out")


def test_the_account_must_exist_and_the_nearest_is_named(bench: Bench) -> None:
    error = refused(bench, account="vision/vidoe")
    assert error.kind == "not-found"
    assert "did you mean vision/video?" in error.detail


def test_nobody_submits_for_an_account_without_the_right(bench: Bench) -> None:
    error = refused(bench, account="llm")
    assert error.kind == "denied"
    assert "ada may not submit for llm (may for: vision/video)" in error.detail


def test_the_only_account_need_not_be_named(bench: Bench) -> None:
    bench.submit(account="")
    assert bench.row("1").account == "vision/video"
    error = refused(bench, BOB, account="")
    assert "yours are vision, llm" in error.detail


def test_a_closed_account_takes_nothing_new(bench: Bench) -> None:
    from tests.service.house import ROOT

    tree = bench.desk.budgets()
    bench.desk.set_budgets(ROOT, {"vision": {"share": "50%"}}, tree.version, "llm is over")
    error = refused(bench, EVE, account="llm")
    assert "llm is closed" in error.detail


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"nodes": 3, "gpus_per_node": 4}, "3 nodes x 4 GPUs; the most that is installed for it is 2 nodes x 4 GPUs"),
        ({"gpus_per_node": 5}, "1 node x 5 GPUs"),
        ({"gpu_types": ("H10",)}, "did you mean H100?"),
        ({"cpus_per_node": 33}, "asks for 33 cores on a node, and the largest that would do has 32"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_numbers(bench: Bench, fields: dict[str, Any], says: str) -> None:
    assert says in refused(bench, **fields).detail


def test_work_without_gpus_goes_to_the_cores(bench: Bench) -> None:
    bench.submit(gpus_per_node=0)
    assert (bench.row("1").node_names, bench.row("1").cpus_per_node) == (("c0",), 1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"min_runtime": "90"}, "min_runtime: '90' is not a duration"),
        ({"min_runtime": "900000d"}, "more than ten years"),
        ({"time_limit": "0"}, "below one second"),
        ({"checkpoint": "soon"}, "checkpoint: 'soon'"),
        ({"deadline": "tomorrow"}, "is no instant"),
        ({"deadline": "2030-01-01T00:00:00"}, "no time zone"),
        ({"deadline": "2001-01-01T00:00:00Z"}, "over already"),
        ({"priority": 101}, "from 0 to 100"),
        ({"nodes": 0}, "at least one"),
        ({"gpus_per_node": -1}, "from 0 on"),
        ({"signal": "USR9"}, "there is no signal 'USR9'"),
        ({"signal": "KILL"}, "no time to save"),
        ({"argv": ()}, "nothing to run"),
        ({"cwd": "work"}, "absolute path"),
        ({"argv": ("a\0b",)}, "argument 0 holds a NUL"),
        ({"name": "a\0"}, "name holds a NUL"),
        ({"name": "a\nb"}, "name holds a line end"),
        ({"name": "a\u202eb"}, "does not show"),
        ({"name": "x" * 257}, "256 bytes are allowed"),
        ({"label": "\ud800"}, "lone surrogate"),
        ({"environment": {"A=B": "c"}}, "is not the name of an environment variable"),
        ({"environment": {"A": "\0"}}, "environment variable A holds a NUL"),
        ({"script": "#!/bin/sh\n" + "x" * (10 << 20)}, "script has 10.0 MiB, and 1.0 MiB are allowed"),
        ({"argv": ("x", "y" * (10 << 20))}, "10.0 MiB"),
        ({"argv": ("y" * 1000,) * 2000}, "the arguments together"),
        ({"environment": {f"V{n}": "y" * 1000 for n in range(2000)}}, "the environment has"),
        ({"output": "x" * 5000}, "output has"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(bench: Bench, fields: dict[str, Any], says: str) -> None:
    error = refused(bench, **fields)
    assert error.kind == "invalid"
    assert says in error.detail
    assert len(error.detail) < 500, "a sentence, whatever was handed in"


def test_what_is_cut_is_told(bench: Bench) -> None:
    reply = bench.desk.submit(ADA, form(min_runtime="12h", grace="1h"))
    assert reply.notes == (
        "its minimum is cut from 12h to 8h, the longest that vision/video may declare",
        "its notice before a stop is cut from 1h to 10m, the longest there is",
    )
    reply = bench.desk.submit(ADA, form(min_runtime="2h", time_limit="10m"))
    assert reply.notes == ("its minimum is cut to its time limit, 10m: it cannot run longer",)
    assert bench.row("2").min_runtime == 10 * MINUTE
    assert bench.desk.submit(ADA, form(min_runtime=USUAL_MINIMUM, time_limit="5m")).notes == (), "nobody asked for it"
    reply = bench.desk.submit(ADA, form(min_runtime="7200s", time_limit="3600s"))
    assert reply.notes == ("its minimum is cut to its time limit, 1h: it cannot run longer",), "as people write it"


def test_a_deadline_and_a_priority_order_ones_own_jobs(bench: Bench) -> None:
    bench.submit(nodes=2, gpus_per_node=4)
    later = bench.submit(gpus_per_node=4, nodes=2, priority=1)
    sooner = bench.submit(gpus_per_node=4, nodes=2, priority=2)
    due = bench.submit(gpus_per_node=4, nodes=2, deadline="2030-01-01T00:00:00Z")
    queue = next(iter(bench.state.pending[due[0]].queue.user.queues.values()))  # type: ignore[union-attr,index]
    assert [pending.workload.id for pending in queue.entries] == [*due, *sooner, *later]


# --- idempotency ----------------------------------------------------------------------------------------------------
def test_the_same_request_with_the_same_key_is_one_job(bench: Bench) -> None:
    first = bench.desk.submit(ADA, form(array="0-2%1"), "k1")
    again = bench.desk.submit(ADA, form(array="0-2%1"), "k1")
    assert (again.ids, again.job, again.notes) == (first.ids, first.job, first.notes)
    assert again.repeated and not first.repeated
    assert len(bench.states()) == 3
    assert bench.desk.submit(EVE, form(account="llm"), "k1").ids != first.ids, "a key is its user's own"


def test_another_request_with_the_same_key_is_a_conflict(bench: Bench) -> None:
    bench.desk.submit(ADA, form(), "k1")
    with pytest.raises(DeskError, match="was used for another request") as caught:
        bench.desk.submit(ADA, form(gpus_per_node=2), "k1")
    assert caught.value.kind == "conflict"


def test_a_key_outlives_the_service(bench: Bench) -> None:
    first = bench.desk.submit(ADA, form(), "k1")
    bench.crash()
    assert bench.desk.submit(ADA, form(), "k1").ids == first.ids
    assert bench.submit() != list(first.ids), "numbers are never given twice"


def test_a_key_is_known_before_the_store_shows_it(bench: Bench) -> None:
    """A first try that timed out on its way, and its repetition, may meet in one cycle."""
    entries = []

    def held_back(build: Any, timeout: float = 30) -> int:
        entries.append(build(bench.state, bench.engine.at))
        return 0

    bench.live.send = held_back  # type: ignore[method-assign]
    first = bench.desk.submit(ADA, form(), "k1")
    again = bench.desk.submit(ADA, form(), "k1")
    assert first.ids == again.ids
    assert [len(entry.facts) for entry in entries] == [1, 0]


def test_many_at_once_with_one_key_are_one_job(bench: Bench) -> None:
    replies = []

    def ask() -> None:
        replies.append(bench.desk.submit(ADA, form(), "k1").ids)

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert replies == [("1",)] * 8
    assert len(bench.states()) == 1


# --- dry run --------------------------------------------------------------------------------------------------------
def test_a_dry_run_says_where_it_would_start_and_leaves_nothing(bench: Bench) -> None:
    told = bench.desk.dry_run(ADA, form(gpus_per_node=4, min_runtime="1h"))
    assert (told.decision, told.nodes) == ("start", ("n0",))
    assert told.protected_until == bench.live.now() + HOUR
    assert "its turn came" in told.sentence
    assert bench.states() == {}
    assert bench.submit() == ["1"], "no number was taken"


def test_a_dry_run_says_what_it_would_wait_for(bench: Bench) -> None:
    bench.submit(nodes=2, gpus_per_node=4, min_runtime="1h")
    told = bench.desk.dry_run(ADA, form(min_runtime="10m"))
    assert (told.decision, told.reason["type"]) == ("wait", "NoFreeGpus")
    assert "needs 1 node with 1 free GPU; 0 are" in told.sentence
    bench.submit()
    told = bench.desk.dry_run(ADA, form())
    assert told.reason == {"type": "BehindOwn", "ahead": 1, "first": "2"}
    told = bench.desk.dry_run(ADA, form(dependency="afterok:1"))
    assert "it waits for other jobs (afterok:1)" in told.sentence
    told = bench.desk.dry_run(ADA, form(hold=True))
    assert told.reason["type"] == "HeldByUser"


def test_a_dry_run_says_when_it_would_be_refused(bench: Bench) -> None:
    told = bench.desk.dry_run(ADA, form(nodes=9))
    assert (told.decision, told.reason["type"]) == ("reject", "NeverFits")
    assert bench.desk.dry_run(ADA, form(account="vision/vidoe")).decision == "reject"
    with pytest.raises(DeskError, match="nothing to run"):
        bench.desk.dry_run(ADA, form(argv=()))


def test_a_form_takes_any_request_with_its_fields() -> None:
    from mirab.service.forms.jobs import SubmitRequest

    request = SubmitRequest(account="llm", argv=["true"], gpus_per_node=2, progress="30m")
    made = SubmitForm.of(request)
    assert (made.account, list(made.argv), made.gpus_per_node, made.progress) == ("llm", ["true"], 2, "30m")
    assert set(SubmitRequest.model_fields) == set(SubmitForm.__dataclass_fields__)


def test_a_service_of_root_runs_nobodys_job_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    from mirab.service.desk import identity

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert identity.run_as(Principal("x", (), "unix", uid=1001, gid=100)) == (1001, 100)
    with pytest.raises(DeskError, match="is no user of this machine"):
        identity.run_as(Principal("no such user \0", ()))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert identity.run_as(Principal("x", (Grant("admin"),), uid=0, gid=0)) == (None, None)


def test_under_a_policy_that_admits_strangers_they_have_share_0(tmp_path: Any) -> None:
    bench = Bench(tmp_path, policy=Policy(unknown_accounts="zero", cadence=SECOND))
    zoe = Principal("zoe", (Grant("researcher", ""),))
    bench.submit(zoe, account="new/team")
    assert bench.row("1").account == "new/team"
    assert refused(bench, zoe, account="new//team").kind == "invalid"
    bench.close()


def test_the_audit_log_names_cores_where_no_gpu_was_asked_for(bench: Bench) -> None:
    bench.submit(gpus_per_node=2)
    bench.submit(gpus_per_node=0, cpus_per_node=3, nodes=2)
    told = [entry.after for entry in bench.audit(action="job.submit")]
    assert told == ["vision/video: 2 x 3 cores", "vision/video: 1 x 2 GPUs"]
