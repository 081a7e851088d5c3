"""The end of a run whose shim is gone: what is left of it is killed, and the last word is written for it."""

from __future__ import annotations

import os
from typing import Any

from mirab.backends.local import endings, processes, rundir

PATIENCE_S = 1.0


def bury(directory: str, spec: dict[str, Any], why: str) -> bool:
    """Write the exit file of a run that has nobody to write it. False: not yet, somebody of it still lives.

    The machine, or what kept the run, has failed, not the run: NODE_FAIL, so that it goes back to the queue and its
    lost time is credited. A run that was told to stop before keeps the name of that end.

    Raises:
        OSError: the exit file cannot be written.
    """
    lock = rundir.take_lock(directory)
    if lock is None:
        return False
    try:
        if os.path.exists(os.path.join(directory, rundir.EXIT)):
            return True
        status = rundir.read_json(os.path.join(directory, rundir.STATUS)) or {}
        shim = rundir.read_json(os.path.join(directory, rundir.SHIM)) or {}
        same_boot = shim.get("boot") == rundir.boot_id()
        mark = f"MIRAB_RUN_DIR={spec['environment']['MIRAB_RUN_DIR']}"
        if same_boot and processes.kill_marked(mark, sessions(status), PATIENCE_S):
            return False
        at = rundir.now_ms() if same_boot else last_sign(directory, shim)
        rundir.write_exit(directory, obituary(spec, status, bool(shim), ordered(directory), at, why))
        return True
    finally:
        os.close(lock)


def sessions(status: dict[str, Any]) -> list[int]:
    """The session of the run's own process, unless another process has got its number since."""
    pid, start = status.get("pid"), status.get("pid_start")
    if pid is None or rundir.start_ticks(pid) not in (None, start):
        return []
    return [pid]


def last_sign(directory: str, shim: dict[str, Any]) -> int:
    """When a run was last seen alive before the machine went down."""
    try:
        beat = os.stat(os.path.join(directory, rundir.HEARTBEAT)).st_mtime_ns // 1_000_000
    except OSError:
        beat = int(shim.get("at", 0)) or rundir.now_ms()
    return min(beat, rundir.now_ms())


def ordered(directory: str) -> str:
    """How it had been told to end; "" = it had not."""
    order = rundir.read_json(os.path.join(directory, rundir.STOP)) or {}
    return str(order.get("outcome", ""))


def obituary(spec: dict[str, Any], status: dict[str, Any], begun: bool, wish: str, at: int, why: str) -> dict[str, Any]:
    started, safe = status.get("started_at"), status.get("checkpoint_at")
    ended_at = max(at, started or 0)
    outcome = wish or (endings.NODE_FAIL if begun else endings.LAUNCH_FAILED)
    return {
        "run_id": spec["run_id"],
        "outcome": outcome,
        "exit_code": None,
        "started_at": started,
        "ended_at": ended_at,
        "checkpoint_at": safe,
        "lost_ms": ended_at - max(started, safe or 0) if started is not None else 0,
        "why": why,
        "output": str(spec["output"])[:1024],
        "cpu_ms": None,
        "max_rss_kib": None,
    }


def stillborn(directory: str, spec: dict[str, Any], why: str) -> None:
    """The last word of a run that could not be begun, so that nobody begins it later; its owner finds a sentence.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(directory, rundir.OUTPUT)
    with open(path, "ab") as file:
        file.write(f"mirab: {why}\n".encode(errors="backslashreplace"))
    if spec.get("uid") is not None and os.geteuid() == 0:
        os.chown(path, spec["uid"], -1)
    told = obituary({**spec, "output": path}, {}, False, "", rundir.now_ms(), why[:512])
    rundir.write_exit(directory, told)
