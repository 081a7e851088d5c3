"""Accounts out of HTCondor history are paths without empty parts, whichever attribute they come from."""

from __future__ import annotations

from pathlib import Path

from mirab.logs.detect import load
from mirab.logs.options import LoadOptions

AD = """ClusterId = {id}
ProcId = 0
Owner = "{owner}"
QDate = 1700000000
JobStartDate = 1700000100
CompletionDate = 1700003700
RemoteWallClockTime = 3600.0
RequestCpus = 2
JobStatus = 4
*** Offset = 0 ClusterId = {id} ProcId = 0 Owner = "{owner}" CompletionDate = 1700003700
"""


def test_an_owner_with_slashes_becomes_an_account_without_empty_parts(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text(AD.format(id=1, owner="a/b//c"))
    trace = load(history, LoadOptions(form="htcondor"))
    assert [arrival.workload.account for arrival in trace.arrivals] == ["a/b/c"]
