"""Short ways to write a log and read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirab.logs.detect import load
from mirab.logs.options import LoadOptions
from mirab.model.trace import Trace
from mirab.model.units import HOUR, MINUTE, SECOND

FIXTURES = Path(__file__).parent / "fixtures"
S, M, H = SECOND, MINUTE, HOUR

SACCT = (
    "JobID|User|Account|Partition|Submit|Start|End|Elapsed|State|NNodes|NCPUS|ReqTRES|AllocTRES|Timelimit|NodeList"
    "|JobName"
)


def written(folder: Path, text: str | bytes, name: str = "log") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str | bytes, **options: Any) -> Trace:
    """The trace of a log of that text."""
    return load(written(folder, text), LoadOptions(**options))


def sacct_row(**fields: str) -> str:
    """One row in the columns of `SACCT`: a 2-hour job of 4 GPUs on one node, but for what is given."""
    usual = {
        "JobID": "1", "User": "eve", "Account": "fish", "Partition": "gpu", "Submit": "2024-03-01T08:00:00",
        "Start": "2024-03-01T08:00:10", "End": "2024-03-01T10:00:10", "Elapsed": "02:00:00", "State": "COMPLETED",
        "NNodes": "1", "NCPUS": "8", "ReqTRES": "cpu=8,gres/gpu=4,node=1", "AllocTRES": "cpu=8,gres/gpu=4,node=1",
        "Timelimit": "1-00:00:00", "NodeList": "g01", "JobName": "train",
    }  # fmt: skip
    assert set(fields) <= set(usual), "a column that SACCT has not"
    return "|".join((usual | fields).values())


def sacct(*rows: dict[str, str]) -> str:
    return "\n".join([SACCT, *(sacct_row(**row) for row in rows)]) + "\n"


NATIVE = "id,submit_s,account,user,nodes,gpus_per_node,run_s"


def native(*rows: str) -> str:
    return "\n".join([NATIVE, *rows]) + "\n"


def ids(trace: Trace) -> list[str]:
    return [arrival.workload.id for arrival in trace.arrivals]


def sizes(trace: Trace) -> list[tuple[int, int]]:
    return [(arrival.workload.shape.nodes, arrival.workload.shape.gpus_per_node) for arrival in trace.arrivals]


def dropped(trace: Trace) -> dict[str, int]:
    return {reason: number for reason, (number, _) in trace.dropped.items()}


def adds_up(trace: Trace) -> bool:
    """Every row is used or counted: nothing is dropped in silence."""
    return trace.rows == len(trace.arrivals) + sum(number for number, _ in trace.dropped.values())
