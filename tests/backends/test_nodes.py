"""The operator's own commands: is a node well, and make it well."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mirab.backends.local.care import Commands
from mirab.model.events import NodeDegraded, NodeUp
from mirab.model.plans import CallHuman, Drain, Repair, Resume
from mirab.model.units import RunId
from tests.backends.rig import Rig, node, wait_for

CHECK = """
test "$MIRAB_NODE" != {sick} && exit 0
test -e well && exit 0
echo "fan $MIRAB_NODE stands still"; echo more; exit 9
"""


def checked(tmp_path: Path, **commands: object) -> Rig:
    rig = Rig(tmp_path / "root", commands=Commands(**commands))  # type: ignore[arg-type]
    rig.backend.adopt({})
    return rig


def checked_again(rig: Rig, asked: Path, size: int) -> bool:
    """Check now: of its own accord it does so after a minute, which is also what a check may take."""
    rig.backend.worker.do(rig.backend.care.begin)
    return asked.exists() and asked.stat().st_size > size


def test_a_health_check_that_fails_degrades_its_node_once_and_passing_again_brings_it_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "root")
    sick = node(rig, 1)
    rig.leave_nothing()
    rig = checked(tmp_path, health=f"cd {tmp_path}; echo x >> asked; {CHECK.format(sick=sick)}")
    try:
        assert rig.fact(NodeDegraded, sick).cause == f"fan {sick} stands still"
        before = (tmp_path / "asked").stat().st_size
        wait_for(lambda: checked_again(rig, tmp_path / "asked", before + 12), "more checks")
        assert [type(fact) for fact in rig.look()] == [NodeDegraded]
        (tmp_path / "well").touch()
        rig.restart()
        assert rig.fact(NodeUp, sick), "it remembers over a restart that it was the one who said so"
        assert len(rig.look()) == 1
    finally:
        rig.leave_nothing()


def test_a_health_check_that_hangs_is_a_sign_of_sickness(tmp_path: Path) -> None:
    rig = checked(tmp_path, health="sleep 1000", every_s=0.2)
    try:
        assert "did not end" in rig.fact(NodeDegraded, node(rig)).cause
    finally:
        rig.leave_nothing()


def test_a_check_that_passes_brings_back_no_node_that_an_operator_has_drained(tmp_path: Path) -> None:
    rig = checked(tmp_path, health=f"echo x >> {tmp_path}/asked")
    try:
        wait_for(lambda: checked_again(rig, tmp_path / "asked", 12), "checks")
        assert not rig.look()
    finally:
        rig.leave_nothing()


def test_a_repair_that_succeeds_brings_the_node_back_and_is_done_once_at_a_time(tmp_path: Path) -> None:
    rig = checked(tmp_path, repair=f"cd {tmp_path}; echo $MIRAB_NODE >> done; until [ -e go ]; do sleep 0.05; done")
    try:
        rig.backend.submit(Repair(node(rig)))
        rig.backend.submit(Repair(node(rig)))
        rig.backend.worker.do((tmp_path / "go").touch)
        assert rig.fact(NodeUp, node(rig))
        assert (tmp_path / "done").read_text() == f"{node(rig)}\n"
    finally:
        rig.leave_nothing()


@pytest.mark.parametrize(("command", "said"), [("", "waits for repair"), ("echo no screws; exit 3", "no screws")])
def test_what_is_not_repaired_waits_for_a_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, said: str
) -> None:
    rig = checked(tmp_path, repair=command)
    try:
        with caplog.at_level(logging.WARNING):
            rig.backend.submit(Repair(node(rig)))
            wait_for(lambda: said in caplog.text, said)
        assert not rig.look()
    finally:
        rig.leave_nothing()


def test_drains_and_resumes_need_nothing_here_and_a_call_for_a_person_is_said(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.backend.submit(Drain(node(rig), None))
    rig.backend.submit(Resume(node(rig)))
    with caplog.at_level(logging.ERROR):
        rig.backend.submit(CallHuman(node(rig), RunId("1.1"), "it does not stop"))
    assert "it does not stop" in caplog.text
    assert not rig.look()
