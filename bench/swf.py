"""The Standard Workload Format, written: what AccaSim and other simulators read."""

from __future__ import annotations

from pathlib import Path

from mirab.model.trace import Trace
from mirab.model.units import SECOND


def write_swf(trace: Trace, path: Path) -> None:
    """One line a workload, 18 columns; a processor is a GPU, a group is an account, unknown columns are -1."""
    users: dict[str, int] = {}
    accounts: dict[str, int] = {}
    pool = trace.cluster.pools[0]
    lines = [
        "; Version: 2.2",
        f"; Computer: {trace.name}",
        f"; MaxJobs: {len(trace.arrivals)}",
        "; UnixStartTime: 0",
        f"; MaxNodes: {len(pool.nodes)}",
        f"; MaxProcs: {trace.cluster.slots}",
    ]
    for number, arrival in enumerate(trace.arrivals, start=1):
        work = arrival.workload
        user = users.setdefault(work.user, len(users) + 1)
        account = accounts.setdefault(work.account, len(accounts) + 1)
        run = arrival.run // SECOND
        limit = (work.shape.time_limit or arrival.run) // SECOND
        columns = (
            number, work.submitted_at // SECOND, -1, run, work.shape.gpus, -1, -1, work.shape.gpus, limit, -1,
            1, user, account, -1, -1, -1, -1, -1,
        )  # fmt: skip
        lines.append(" ".join(map(str, columns)))
    path.write_text("\n".join(lines) + "\n")
