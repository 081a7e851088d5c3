"""The service put together on a real store: what it begins with, what a restart finds, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from mirab.control.recover import take_in
from mirab.model.events import Event, NodeUp, WorkloadSubmitted
from mirab.model.records import Grant, JobSpec, JobState, TokenRow
from mirab.model.units import NodeName, UserName, WorkloadId
from mirab.service.api.server import ListenError
from mirab.service.config import ConfigError, ServeConfig, load_config
from mirab.service.doors import check_doors, describe_cluster, open_doors
from mirab.service.inbox import Entry, UnavailableError
from mirab.service.recover import DOUBTFUL
from mirab.service.runtime import LiveEngine, Service, assemble
from mirab.service.setup import EVERYONE
from mirab.service.snapshot import fingerprint, freeze, thaw
from mirab.store import LostLeadError, StoreBusyError, open_store
from tests.service.doubles import PATIENCE, job, until

CLUSTER = """
cluster:
  pools:
    gpu: {{nodes: "n[0-{last}]", gpus_per_node: 4}}
budgets:
  red: {{share: {red}%}}
  blue: {{share: 50%}}
policy: {{window: {window}}}
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services in one state folder, one after the other; the last is stopped at the end."""
    running: list[Service] = []

    def start(wrap: Any = lambda engine: engine, **flags: str) -> Service:
        while running:
            running.pop().stop(PATIENCE)
        service = assemble(configured(tmp_path, **flags), wrap)
        running.append(service)
        service.start()
        return service

    yield start
    while running:
        running.pop().stop(PATIENCE)


def configured(folder: Path, **flags: str) -> ServeConfig:
    return load_config({"state_dir": str(folder), "backend": "null", "coalesce": "0", **flags}, {})


def cluster_file(folder: Path, last: int = 1, red: int = 50, window: str = "7d") -> str:
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER.format(last=last, red=red, window=window))
    return str(path)


def submit(service: Service, number: int, account: str = EVERYONE, seconds: float = 3600) -> WorkloadId:
    workload = job(number, account)
    spec = JobSpec(workload.id, f"job {number}", ("sleep", str(seconds)))
    service.live.send(lambda _, now: Entry((WorkloadSubmitted(now, workload),), (spec,)))
    return workload.id


def state_of(service: Service, workload: WorkloadId) -> JobState:
    row = service.store.job(workload)
    assert row is not None
    return row.state


def test_a_laptop_user_gets_gpus_and_one_account_for_all(started: Callable[..., Service]) -> None:
    service = started(pretend_gpus="8")
    assert describe_cluster(service.live.cluster).startswith("8 GPUs on 1 node")
    assert service.live.state.budgets.leaves() == [EVERYONE]
    job_id = submit(service, 1, seconds=0.05)
    until(lambda: state_of(service, job_id) is JobState.COMPLETED)


def test_a_restart_finds_everything_and_needs_no_flags_again(started: Callable[..., Service]) -> None:
    service = started(pretend_gpus="2")
    ids = [submit(service, number) for number in range(1, 4)]
    until(lambda: len(service.live.state.runs) == 2)
    again = started()
    assert not again.recovered.first
    assert again.recovered.replayed == 0, "the snapshot of a graceful stop was not used"
    assert sorted(again.live.state.running) == ids[:2]
    assert [state_of(again, each) for each in ids] == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
    assert describe_cluster(again.live.cluster).startswith("2 GPUs")


def test_a_snapshot_is_made_beside_the_decisions(
    started: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a copy of the process: it is of one instant, and what comes after it is read from the journal."""
    monkeypatch.setattr("mirab.service.runtime.SNAPSHOT_RECORDS", 1)
    monkeypatch.setattr("mirab.service.runtime.SNAPSHOT_PAUSE", 0)
    service = started(pretend_gpus="2")
    ids = [submit(service, number) for number in range(1, 6)]
    until(lambda: kept_snapshot(service) >= 3)
    monkeypatch.setattr("mirab.service.runtime.SNAPSHOT_RECORDS", 1_000)
    ids.append(submit(service, 6))
    found = service.store.snapshot(fingerprint())
    assert found is not None
    state, intents = thaw(found[1])
    for _, facts, plan in service.store.records(after=found[0]):
        take_in(state, facts, plan)
        intents.take_in(facts, plan, observing=False)
    with service.live.reading() as present:
        assert sorted(state.running) == sorted(present.running) == ids[:2]
        assert sorted(state.pending) == sorted(present.pending) == ids[2:]
    until(lambda: not service.live.copies._alive)


def kept_snapshot(service: Service) -> int:
    """After which record the newest one is; 0 = there is none."""
    found = service.store.snapshot(fingerprint())
    return 0 if found is None else found[0]


def test_the_file_may_add_nodes_change_the_policy_and_the_budgets(
    started: Callable[..., Service], tmp_path: Path
) -> None:
    service = started(cluster=cluster_file(tmp_path))
    submit(service, 1, "red")
    service = started(cluster=cluster_file(tmp_path, last=3, red=20, window="3d"))
    state = service.live.state
    assert len(state.cluster.pools[0].nodes) == 4
    assert state.policy.window == 3 * 24 * 3_600_000
    assert [budget.share for budget in state.budgets.roots] == [200_000_000, 500_000_000]
    assert list(state.running) == ["1"]
    told = {entry.target: entry.who for entry in service.store.audit()[0]}
    assert told == dict.fromkeys(
        ("ClusterChanged", "PolicyChanged", "BudgetsChanged", "budgets version 2"), "cluster file"
    ), "who has his answer finds all of it recorded"
    seq = service.live.pulse.seq
    service = started(cluster=cluster_file(tmp_path, last=3, red=20, window="3d"))
    assert not service.recovered.changes, f"after record {seq} nothing is new"
    service.live.state.check()


def test_files_that_cannot_be_used_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep one"):
        assemble(configured(tmp_path, cluster=cluster_file(tmp_path), pretend_gpus="8"))
    with pytest.raises(ConfigError, match="no policy 'bugdet'"):
        assemble(configured(tmp_path, policy="bugdet"))


def test_there_is_never_a_second_decider(started: Callable[..., Service], tmp_path: Path) -> None:
    started(pretend_gpus="1")
    with pytest.raises(StoreBusyError):
        assemble(configured(tmp_path, wait="0"))


class Telling:
    """An engine that also tells what a test wants."""

    def __init__(self, inner: LiveEngine) -> None:
        self.inner = inner
        self.more: list[Any] = []

    def observe(self) -> list[Event]:
        told, self.more = self.more, []
        return [*self.inner.observe(), *told]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _has_failed(service: Service) -> bool:
    return bool(service.live.pulse.failed) and service.keeper.ended_by is not None


def test_a_fault_stops_it_and_the_same_fault_again_and_again_gets_advice(started: Callable[..., Service]) -> None:
    for count in range(1, 4):
        service = started(Telling, pretend_gpus="1")
        with capture_logs() as lines:
            cast(Telling, service.engine).more.append(NodeUp(0, NodeName("no such node")))
            service.live.bell.ring()
            until(partial(_has_failed, service))
        assert service.exit_code == 1
        assert not service.live.pulse.ready
        hints = [str(line["hint"]) for line in lines if line["event"] == "crashing.again_and_again"]
        assert len(hints) == (count == 3), "advice comes with the third"
        assert all("no such node" in hint and "db backup" in hint for hint in hints)


def test_a_snapshot_that_stops_it_again_and_again_is_left_aside(
    started: Callable[..., Service], tmp_path: Path
) -> None:
    """It only saves time: the journal has everything."""
    service = started(pretend_gpus="1")
    first = submit(service, 1)
    service.stop(PATIENCE)
    spoil_snapshot(f"sqlite:///{tmp_path}/mirab.db")
    for _ in range(DOUBTFUL):
        service = started()
        with pytest.raises(UnavailableError):
            submit(service, 2)
        until(partial(_has_failed, service))
    with capture_logs() as lines:
        service = started()
    assert "snapshot.left_aside" in [line["event"] for line in lines]
    second = submit(service, 2)
    assert service.live.pulse.ready
    assert [state_of(service, each) for each in (first, second)] == [JobState.RUNNING, JobState.PENDING]


def spoil_snapshot(url: str) -> None:
    """As a program would leave it whose state has other parts, under the name of this one."""
    store = open_store(url)
    found = store.snapshot(fingerprint())
    assert found is not None
    state, intents = thaw(found[1])
    state.banks = []
    store.put_snapshot(found[0], fingerprint(), freeze((state, intents)))
    store.dispose()


def test_who_lost_the_lead_stops_and_says_so(started: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    service = started(pretend_gpus="1")

    def lost(*_: object) -> int:
        raise LostLeadError("process 7 on b leads: this service may not decide any more")

    monkeypatch.setattr(service.store, "append", lost)
    service.live.bell.ring()
    until(lambda: service.keeper.ended_by)
    assert service.live.pulse.why_not_ready == "process 7 on b leads: this service may not decide any more"
    assert service.exit_code == 5


def test_store_trouble_shows_and_passes(started: Callable[..., Service]) -> None:
    service = started(pretend_gpus="1")
    service.store.on_trouble("the disk is full")
    assert service.live.pulse.why_not_ready == "the disk is full"
    service.store.on_trouble("")
    assert service.live.pulse.ready


def test_no_open_door_without_a_key(started: Callable[..., Service], tmp_path: Path) -> None:
    store = started(pretend_gpus="1").store
    open_to_all = configured(tmp_path, listen="0.0.0.0:7077")
    with pytest.raises(ConfigError, match="no valid token"):
        check_doors(open_to_all, store, 0)
    check_doors(configured(tmp_path), store, 0)
    store.write([TokenRow("t", "d" * 64, UserName("ada"), (Grant("admin"),), 0, "test")])
    check_doors(open_to_all, store, 0)
    with pytest.raises(ConfigError, match="no way in"):
        check_doors(configured(tmp_path, listen="none", socket="none"), store, 0)


def test_a_first_start_that_cannot_listen_spends_no_token(started: Callable[..., Service], tmp_path: Path) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        service = assemble(configured(tmp_path, pretend_gpus="1", listen=listen), lambda engine: engine)
        with pytest.raises(ListenError):
            open_doors(service, said.append)
    assert said == []
    assert started(pretend_gpus="1").store.tokens() == []


@pytest.mark.parametrize("path", ["missing/x.sock", "x" * 200 + ".sock"])
def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path, path: str) -> None:
    place = str(tmp_path / path)
    config = configured(tmp_path, pretend_gpus="1", listen="127.0.0.1:0", socket=place)
    with pytest.raises(ListenError, match=r"x\.sock"):
        open_doors(assemble(config, lambda engine: engine), lambda text: None)
