"""The share tree, the nodes, what is broken up, who is silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirab.model.units import DAY, HOUR, MINUTE, WorkloadId
from mirab.service.forms.machines import Node
from mirab.service.forms.sharing import ShareAccount
from mirab.service.views import Views
from mirab.service.views.moments import iso
from mirab.service.views.squatters import Silence
from tests.service.house import ADA, BOB, EPOCH, EVE, OPS, ROOT, Bench, viewed

WINDOW = 7 * DAY


@pytest.fixture
def views(bench: Bench) -> Iterator[Views]:
    with viewed(bench) as made:
        yield made


def account(views: Views, path: str) -> ShareAccount:
    found = views.shares(None)
    assert found is not None
    return next(each for each in found.accounts if each.path == path)


def node(views: Views, name: str) -> Node:
    found = views.node(name)
    assert found is not None
    return found


# --- shares ---------------------------------------------------------------------------------------------------------
def test_the_tree_sums_up_what_lies_below(bench: Bench, views: Views) -> None:
    bench.submit(gpus_per_node=4, min_runtime="1h")
    bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="1h")
    bench.submit(gpus_per_node=4, min_runtime="1h")
    bench.submit(gpus_per_node=0)
    bench.wait(HOUR)
    video, vision, llm = (account(views, path) for path in ("vision/video", "vision", "llm"))
    assert (video.share, vision.share) == (0.25, 0.5)
    assert (video.running_gpus, video.waiting_jobs, video.waiting_gpus) == (4, 1, 4)
    assert (vision.running_gpus, vision.waiting_gpus) == (4, 4)
    assert (llm.running_gpus, llm.waiting_jobs) == (4, 0)
    assert [each.borrowed_gpus for each in (video, vision, llm)] == [2.0, 0.0, 0.0], "of 8 GPUs its quarter is 2"
    assert video.owed_h == pytest.approx(2.04, abs=0.001), "a quarter of 8 GPUs and of 16 cores of weight 0.01"
    assert video.delivered_h == video.owed_h
    assert (vision.owed_h, vision.debt_h) == (video.owed_h, 0)
    assert llm.owed_h == pytest.approx(4.0, abs=0.001)
    assert llm.ratio == pytest.approx(1.0, abs=0.01), "the days before the first count as delivered"
    assert [(user.user, user.running_gpus, user.waiting_jobs) for user in video.users] == [("ada", 4, 1)]
    assert video.users[0].used_h == pytest.approx(4.01, abs=0.001)
    assert video.users[0].committed_h == 0


def test_commitment_settles_as_it_runs(bench: Bench, views: Views) -> None:
    bench.submit(gpus_per_node=4, min_runtime="1h")
    assert account(views, "vision/video").committed_h == pytest.approx(4.0)
    bench.engine.at += 15 * MINUTE
    assert account(views, "vision/video").committed_h == pytest.approx(3.0), "without a decision in between"
    bench.engine.at += 2 * HOUR
    assert account(views, "vision/video").committed_h == 0


def test_a_debt_is_what_was_owed_and_not_delivered(bench: Bench, views: Views) -> None:
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="8h")
    bench.submit(gpus_per_node=4)
    bench.wait(HOUR)
    video = account(views, "vision/video")
    assert video.owed_h == pytest.approx(2.04, abs=0.001)
    assert video.delivered_h == 0
    assert video.debt_h == video.owed_h
    assert video.debt_from == iso(EPOCH + WINDOW), "one window after the first hour in which it was short began"
    assert video.debt_gone_by == iso(EPOCH + WINDOW + HOUR)
    assert account(views, "vision").debt_gone_by == video.debt_gone_by, "with all below it"
    assert account(views, "vision/image").debt_gone_by is None


def test_an_account_knows_its_next_start_its_owner_and_its_review(bench: Bench, views: Views) -> None:
    """The first of its waiting jobs, by the newest forecasts, where they know one."""
    tree = {"llm": {"share": "50%", "owner": "Eva", "review": "2026-12-01", "hypothesis": "better models"},
            "vision": {"share": "50%", "children": {"video": {"share": "100%"}}}}  # fmt: skip
    bench.desk.set_budgets(ROOT, tree, "*", "owners")
    llm = account(views, "llm")
    assert (llm.owner, llm.review, llm.hypothesis) == ("Eva", "2026-12-01", "better models")
    assert (llm.next_start, llm.next_job) == (None, "")
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h", time_limit="1h")
    later, first = (bench.submit(nodes=nodes, gpus_per_node=4, min_runtime="1h")[0] for nodes in (2, 1))
    assert account(views, "vision").next_job == "", "nobody has looked forward yet"
    batch = views.answers.forecaster.refresh()
    starts = {each: batch.forecasts[WorkloadId(each)].p50 for each in (later, first)}
    for path in ("vision", "vision/video"):
        told = account(views, path)
        assert told.next_job == min(starts, key=lambda each: (starts[each], each))
        assert told.next_start == iso(min(starts.values()))  # type: ignore[type-var, arg-type]
        assert told.next_start_p90 is not None
    assert account(views, "llm").next_start is None


def test_a_subtree_and_what_is_not_there(bench: Bench, views: Views) -> None:
    found = views.shares("vision")
    assert found is not None
    assert [each.path for each in found.accounts] == ["vision", "vision/video", "vision/image"]
    assert views.shares("visio") is None
    bench.submit(BOB, account="vision")
    found = views.shares("vision")
    assert found is not None
    assert "vision/*" in [each.path for each in found.accounts], "what children leave is shown when it is used"


def test_a_closed_account_is_shown_while_it_has_something(bench: Bench, views: Views) -> None:
    bench.submit(EVE, account="llm", min_runtime="1h")
    bench.wait(HOUR)
    bench.desk.set_budgets(ROOT, {"vision": {"share": "50%"}}, "*", "over")
    llm = account(views, "llm")
    assert (llm.share, llm.running_gpus) == (0, 1)
    assert llm.used_h > 0


def test_owed_is_absent_until_it_is_known(bench: Bench, views: Views) -> None:
    views.ledger.ready = False
    llm = account(views, "llm")
    assert (llm.owed_h, llm.delivered_h, llm.debt_h) == (None, None, None)
    assert llm.entitled_h > 0


# --- nodes ----------------------------------------------------------------------------------------------------------
def test_nodes_and_what_is_on_them(bench: Bench, views: Views) -> None:
    bench.submit(gpus_per_node=4)
    bench.submit(gpus_per_node=1, min_runtime="1h")
    bench.submit(gpus_per_node=0)
    told = {each.name: (each.state, each.gpus_used, each.jobs) for each in views.nodes().nodes}
    assert told == {"n0": ("allocated", 4, ["1"]), "n1": ("mixed", 1, ["2"]), "c0": ("mixed", 0, ["3"])}
    assert (node(views, "n0").gpus, node(views, "n0").gpu_type, node(views, "c0").cpus) == (4, "H100", 16)
    assert views.node("n9") is None


def test_a_draining_node_says_until_when_and_why(bench: Bench, views: Views) -> None:
    bench.submit(min_runtime="1h")
    bench.desk.node_drain(OPS, "n0", "new cable")
    bench.desk.node_report(OPS, "n1", 79)
    bench.settle()
    found = node(views, "n0")
    assert (found.state, found.reason, found.drain_until) == ("draining", "ops: new cable", "2023-11-14T23:13:20Z")
    assert (node(views, "n1").state, node(views, "n1").drain_until) == ("drained", None)
    assert "no longer found on the bus" in node(views, "n1").reason


def test_free_gpus_that_lie_apart(bench: Bench, views: Views) -> None:
    bench.submit(gpus_per_node=3, min_runtime="8h")
    bench.submit(gpus_per_node=3, min_runtime="8h")
    bench.submit(gpus_per_node=2, min_runtime="1h")
    bench.submit(gpus_per_node=3, min_runtime="1h")
    (pool,) = views.fragmentation()
    assert (pool["free_gpus"], pool["stranded_gpus"], pool["largest_whole"]) == (2, 2, 0)
    assert pool["nodes_by_free_gpus"] == {"1": 2}
    assert pool["waiting_fits_by_count"] == 1, "2 GPUs are free, and not on one node; for 3 there are too few"


def test_holds_name_their_nodes(bench: Bench, views: Views) -> None:
    bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="2h", time_limit="2h")
    bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="1h", time_limit="1h")
    bench.wait(HOUR // 2)
    bench.submit(BOB, account="vision", nodes=2, gpus_per_node=4, min_runtime="1h")
    held = views.holds()
    assert [(each["job"], each["nodes"], each["due"]) for each in held] == [("3", ["n0", "n1"], False)]
    assert views.job("3").reason == "NodesHeld"  # type: ignore[union-attr]


# --- progress -------------------------------------------------------------------------------------------------------
def flags(views: Views) -> dict[str, str]:
    return {each.run: each.flag for each in views.squatters().runs}


def test_a_run_without_a_sign_of_progress_is_flagged(bench: Bench, views: Views) -> None:
    heard: list[Silence] = []
    views.watch.on_flag.append(heard.append)
    bench.submit(gpus_per_node=2, progress="30m", min_runtime="2h")
    bench.submit(gpus_per_node=1, min_runtime="2h")
    bench.wait(30 * MINUTE - 1)
    assert flags(views) == {}
    bench.wait(1)
    assert flags(views) == {
        "1.1": "holds 2 GPUs and has shown no checkpoint for 30 min; it declared one at least every 30 min"
    }
    assert [(each.run_id, each.user) for each in heard] == [("1.1", "ada")]
    bench.wait(30 * MINUTE)
    (found,) = views.squatters().runs
    assert (found.silent_s, found.gpu_hours, found.since) == (3600, 2.0, "2023-11-14T22:13:20Z")
    assert (found.activity, found.account, found.gpus) == (None, "vision/video", 2)
    assert views.job("1").progress_flag == found.flag  # type: ignore[union-attr]
    assert views.job("2").progress_flag == "", "who declares nothing cannot be held to it"  # type: ignore[union-attr]
    assert len(heard) == 1, "once for each silence"
    assert account(views, "vision/video").users[0].used_h == pytest.approx(3.0, abs=0.1), "charged like any other"


def test_a_checkpoint_ends_the_silence_and_a_new_one_is_told_again(bench: Bench, views: Views) -> None:
    heard: list[Silence] = []
    views.watch.on_flag.append(heard.append)
    bench.submit(progress="30m", min_runtime="2h")
    bench.wait(31 * MINUTE)
    bench.desk.checkpoint(ADA, "1")
    assert flags(views) == {}
    for _ in range(31):
        bench.wait(MINUTE)
    assert "has shown no further checkpoint for 31 min" in flags(views)["1.1"]
    assert len(heard) == 2
    bench.end("1")
    assert flags(views) == {}
    assert not views.watch._declared, "nothing is kept of what has ended"


def test_declared_checkpoints_are_a_declaration_too(bench: Bench, views: Views) -> None:
    bench.submit(checkpoint="45m", min_runtime="4h")
    bench.wait(89 * MINUTE)
    assert flags(views) == {}
    bench.wait(MINUTE)
    assert list(flags(views)) == ["1.1"], "two intervals"


def test_a_watch_goes_on_after_a_restart(bench: Bench) -> None:
    bench.submit(progress="30m", min_runtime="2h")
    bench.crash()
    views = Views(bench.live, bench.desk)
    bench.wait(30 * MINUTE)
    assert list(flags(views)) == ["1.1"]
    bench.live.stopping.set()


def test_the_alarm_is_set_for_the_instant_of_the_flag(bench: Bench, views: Views) -> None:
    bench.submit(progress="20m", min_runtime="2h")
    assert views.watch._timer() == bench.engine.at + 20 * MINUTE
    bench.submit(gpus_per_node=0, progress="10m", min_runtime="2h")
    bench.wait(12 * MINUTE)
    assert flags(views) == {}, "cores alone are nobody's GPUs"


def test_measured_activity_stands_beside_it(bench: Bench) -> None:
    views = Views(bench.live, bench.desk, activity={"1.1": 0.02}.get)
    bench.submit(progress="1m", min_runtime="2h")
    bench.wait(2 * MINUTE)
    assert views.squatters().runs[0].activity == 0.02
    bench.live.stopping.set()
