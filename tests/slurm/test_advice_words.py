"""What `mirab slurm advice` says of the starts and stops that it compared."""

from __future__ import annotations

from mirab.cli.slurmadvice import as_table, as_values
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, RunId, WorkloadId
from mirab.service.advice import Difference, Stop

NODE, OTHER = Allocation(0, 0b01, 8), Allocation(0, 0b10, 8)
SOONER = Difference(WorkloadId("7"), 0, NODE, started_at=HOUR, given=OTHER)
STOP = Stop(RunId("3.1"), MINUTE)


def test_one_of_a_kind_is_told_as_one() -> None:
    lines = as_table([SOONER], [STOP]).splitlines()
    assert lines[0] == "1 start" and lines[-1].startswith("1 run that mirab would have stopped for others; 0 of them")
    assert "       1 mirab would have started it sooner" in lines and "       1 of them on other nodes" in lines
    assert "       7 would have begun 1 h sooner" in lines


def test_programs_get_each() -> None:
    told = as_values([SOONER], [STOP])
    assert [(each["id"], each["sooner_s"], each["on_other_nodes"]) for each in told["starts"]] == [("7", 3600.0, True)]
    assert told["stops"] == [{"run": "3.1", "advised_at_ms": MINUTE, "ended_at_ms": None}]
