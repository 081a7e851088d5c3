"""Dry runs work on a copy of the process: it answers, it leaves nothing, and it cannot hurt."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from threading import Thread

import pytest

from mirab.service.desk import sandbox
from mirab.service.desk.errors import DeskError
from mirab.service.desk.sandbox import Sandbox
from mirab.study.copies import Copies
from tests.service.house import ADA, Bench, form


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_what_happens_in_the_copy_stays_there() -> None:
    kept = [1]
    before = children()
    with Sandbox(Copies()) as box:
        box.begin(lambda: (kept.append(2), kept)[1])  # type: ignore[func-returns-value]
        assert box.result() == [1, 2]
    assert kept == [1]
    assert children() == before


def test_a_large_answer_comes_whole() -> None:
    with Sandbox(Copies()) as box:
        box.begin(lambda: "x" * 1_000_000)
        assert len(box.result()) == 1_000_000


def test_it_answers_a_service_with_thousands_of_connections() -> None:
    """`select` refuses descriptors from 1,024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    open_ones = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert max(open_ones) >= 1_024
        with Sandbox(Copies()) as box:
            box.begin(lambda: "here")
            assert box.result() == "here"
    finally:
        for each in open_ones:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_copy_that_fails_is_told() -> None:
    with Sandbox(Copies()) as box:
        box.begin(lambda: os.environ["NO_SUCH_VARIABLE"])
        with pytest.raises(DeskError, match="KeyError") as caught:
            box.result()
    assert caught.value.kind == "unavailable"


def test_a_copy_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    monkeypatch.setattr(sandbox, "PATIENCE", 0.2)
    with Sandbox(Copies()) as box:
        box.begin(lambda: time.sleep(1_000))
        with pytest.raises(DeskError, match="took too long"):
            box.result()
    assert children() == before


def test_nothing_of_the_service_stays_open_in_the_copy(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file, Sandbox(Copies()) as box:
        box.begin(lambda: sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2))
        assert file.fileno() not in box.result()


def test_only_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PATIENCE", 0.1)
    boxes = [Sandbox(Copies()) for _ in range(sandbox.AT_ONCE)]
    with pytest.raises(DeskError, match="try again in a moment"):
        Sandbox(Copies())
    for box in boxes:
        box.close()
    Sandbox(Copies()).close()


def test_many_threads_may_ask_and_the_service_goes_on(bench: Bench) -> None:
    before = children()
    bench.submit(nodes=2, gpus_per_node=4)
    seq, folded = bench.store.last(), bench.state.folded
    told: list[str] = []
    threads = [Thread(target=lambda: told.append(bench.desk.dry_run(ADA, form()).reason["type"])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == ["NoFreeGpus"] * 6
    assert (bench.store.last(), bench.state.folded) == (seq, folded)
    assert children() == before
