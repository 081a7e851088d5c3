"""From observing to enforcing: past the gates, or with an exception that ends, and back with one command."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mirab.backends.slurm.governed import read_governed
from mirab.control.recover import FILE
from mirab.model.events import PolicyChanged
from mirab.model.policy import Policy
from mirab.model.units import DAY
from mirab.service.desk.errors import DeskError
from mirab.service.desk.exceptions import Wish
from mirab.service.inbox import Entry
from mirab.study.gatekeeping import kept
from tests.service.house import ADA, EPOCH, ROOT, Bench


@pytest.fixture
def observing(tmp_path: Path) -> Any:
    bench = Bench(tmp_path, policy=Policy(mode="observe"))
    bench.settle()
    yield bench
    bench.close()


def signed(met: bool = True, by: str | None = "ada", age_days: int = 1) -> dict[str, Any]:
    at = datetime.fromtimestamp(EPOCH / 1_000, UTC) - timedelta(days=age_days)
    return kept({"met": met, "reports": []}, {}, None if by is None else (by, at.isoformat()))


def put(bench: Bench, mode: str = "enforce", account: str = "*", **grounds: Any) -> dict[str, Any]:
    found: dict[str, Any] = bench.desk.portfolio.rollout.set(ROOT, account, mode, "the pilot", **grounds)
    bench.settle()
    return found


def excepted(bench: Bench, *, lasts: int = DAY, kind: str = "rollout", account: str = "vision/video") -> str:
    exceptions = bench.desk.portfolio.exceptions
    case = exceptions.request(ADA, Wish(kind, account, "a pilot", bench.live.now() + lasts))
    return exceptions.approve(ROOT, case.id).id


def test_the_gates_open_the_way_and_one_command_leads_back(observing: Bench) -> None:
    waits = observing.submit()[0]
    assert observing.states()[waits] == "PENDING", "only observed"
    report = signed()
    told = put(observing, report=report)
    assert told["accounts"] == [{
        "account": "*", "mode": "enforce", "by": "root", "at": observing.live.now(), "why": "the pilot",
        "gates": report["digest"], "exception": "", "until": None,
    }]  # fmt: skip
    assert observing.states()[waits] == "RUNNING"
    observing.crash()
    assert observing.state.policy.mode == "enforce"
    assert observing.desk.portfolio.rollout.status() == told
    assert put(observing, "observe")["mode"] == "observe"
    assert [entry.target for entry in observing.audit(action="rollout.set")] == ["*", "*"]


@pytest.mark.parametrize(
    ("grounds", "says"),
    [
        ({}, "takes grounds"),
        ({"report": signed(), "exception": "x1"}, "takes grounds"),
        ({"report": signed(met=False)}, "not every gate is met"),
        ({"report": signed(by=None)}, "nobody signed"),
        ({"report": signed(age_days=31)}, "more than 30 days ago"),
        ({"report": {**signed(met=False), "met": True}}, "was changed after it was kept"),
        ({"report": {"met": True}}, "no kept gate report"),
        ({"report": signed(), "account": "vision"}, "no other scheduler"),
        ({"exception": "x9"}, "there is no exception x9"),
    ],
)  # fmt: skip
def test_without_good_grounds_nothing_is_enforced(observing: Bench, grounds: dict[str, Any], says: str) -> None:
    with pytest.raises(DeskError, match=says):
        put(observing, **grounds)
    assert observing.state.policy.mode == "observe"
    assert not observing.audit(action="rollout.set")


def test_an_exception_for_everybody_at_once_is_told_what_will_do(observing: Bench) -> None:
    with pytest.raises(DeskError, match=r"for one account: name one; without Slurm, one for .* any account is ground"):
        observing.desk.portfolio.exceptions.request(ROOT, Wish("rollout", "*", "all", observing.live.now() + DAY))


def test_an_exception_carries_it_until_it_ends(observing: Bench) -> None:
    with pytest.raises(DeskError, match="of kind guaranteed"):
        put(observing, exception=excepted(observing, kind="guaranteed"))
    case = excepted(observing)
    told = put(observing, exception=case)["accounts"][0]
    assert (told["exception"], told["until"]) == (case, observing.live.now() + DAY)
    observing.wait(DAY - 1)
    observing.crash()
    observing.settle()
    assert observing.state.policy.mode == "enforce"
    observing.wait(1)
    assert observing.state.policy.mode == "observe"
    assert observing.desk.portfolio.rollout.status()["accounts"][0]["why"].endswith("has ended")
    with pytest.raises(DeskError, match="is over"):
        put(observing, exception=case)


def test_one_that_is_revoked_ends_it_at_once(observing: Bench) -> None:
    case = excepted(observing)
    put(observing, exception=case)
    observing.desk.portfolio.exceptions.revoke(ROOT, case, "trouble")
    observing.settle()
    assert observing.state.policy.mode == "observe"


def restart(bench: Bench, mode: str) -> None:
    """A start whose settings name this mode, as `recover` finds it."""
    changed = replace(bench.state.policy, mode=mode)
    if changed != bench.state.policy:
        bench.live.send(lambda state, now: Entry((PolicyChanged(now, changed, FILE, "the settings say so"),)))
    bench.settle()


def test_a_restart_with_the_same_settings_undoes_nothing_an_edit_does(observing: Bench) -> None:
    put(observing, report=signed())
    observing.crash()
    restart(observing, "observe")
    assert observing.state.policy.mode == "enforce", "the file says what it said when it was decided"
    put(observing, "observe")
    restart(observing, "enforce")
    assert observing.state.policy.mode == "enforce", "the file was edited"
    observing.crash()
    restart(observing, "enforce")
    assert observing.state.policy.mode == "enforce"
    assert observing.desk.portfolio.rollout.status()["accounts"][0]["by"] == FILE


def test_with_slurm_accounts_are_governed_by_the_one_file(bench: Bench, tmp_path: Path) -> None:
    path = bench.desk.portfolio.rollout.governed = tmp_path / "governed"
    put(bench, account="video", report=signed())
    put(bench, account="llm", report=signed())
    assert read_governed(path) == ("video", "llm")
    told = {each["account"]: each["mode"] for each in bench.desk.portfolio.rollout.status()["accounts"]}
    assert told == {"video": "enforce", "llm": "enforce", "vision": "observe"}
    put(bench, "observe", account="video")
    assert read_governed(path) == ("llm",)
    put(bench, account="*", report=signed())
    with pytest.raises(DeskError, match="all accounts are governed"):
        put(bench, "observe", account="llm")
    put(bench, "observe", account="*")
    assert read_governed(path) == ()
    put(bench, account="video", exception=excepted(bench))
    assert read_governed(path) == ("video",)
    bench.wait(DAY)
    assert read_governed(path) == (), "the exception has ended"
    assert bench.state.policy.mode == "enforce", "the policy as a whole is the settings' affair"
