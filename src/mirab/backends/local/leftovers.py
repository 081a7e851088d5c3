"""What the folders of runs tell to a ledger that may know nothing of them: a new one, or one restored from a backup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mirab.backends.local import rundir
from mirab.backends.local.watching import shim_pidfd
from mirab.model.units import RunId


def last_number(root: Path) -> int:
    """The highest job number that has left a folder here; 0 = none has.

    A number that is given again would find that folder, and with it the end of another job.
    """
    names = (name for folder in ("runs", "state") for name in _names(root / folder))
    return max((int(head) for head in (name.partition("_")[0] for name in names) if _is_number(head)), default=0)


def living(root: Path) -> Iterator[tuple[RunId, int]]:
    """Runs that go on here, each with the process that keeps it."""
    runs = root / "runs"
    for workload in _names(runs):
        for attempt in _names(runs / workload):
            directory = str(runs / workload / attempt)
            if os.path.exists(os.path.join(directory, rundir.EXIT)):
                continue  # it is over; its shim is about to go
            pidfd = shim_pidfd(directory)
            if pidfd is None:
                continue
            os.close(pidfd)
            shim = rundir.read_json(os.path.join(directory, rundir.SHIM)) or {}
            yield RunId(f"{workload}.{attempt}"), int(shim.get("pid", 0))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
