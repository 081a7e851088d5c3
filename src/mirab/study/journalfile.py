"""The record of a replay as a file: one JSON object a line, gzip where the name ends in ``.gz``.

The first line is the header: ``mirab_journal`` (the version of this form), ``mirab``, ``trace``, ``origin`` (Unix
milliseconds of instant 0, or null), ``starts_at``, ``ends_at``, ``policy``, ``cluster``, ``budgets``. Then each cycle
is a line ``{"facts": [...], "plan": {...}}`` in the form of `mirab.model.codec`, facts in the order in which they were
folded. The reasons of those who wait are most of a record, so they stand on a line of their own before the plan that
they belong to: ``{"waiting": [{"queue": 3, "workload_id": ..., "reason": ..., "again_at": ...}, ...]}``. Queues are
numbered from 0 in the order of their first mention, and described there: ``{"queues": [{"account": ..., "user": ...,
"shape": ...}], "waiting": ...}``. A cycle that a crash cut off is no record and is left out.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeAlias, cast

import mirab
from mirab.model.accounts import Budgets
from mirab.model.codec import decode, encode
from mirab.model.events import Event
from mirab.model.plans import Plan, Waiting
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Shape
from mirab.model.trace import Trace
from mirab.model.units import AccountPath, Instant, UserName

Json: TypeAlias = dict[str, Any]
_Queue: TypeAlias = tuple[AccountPath, UserName, Shape]

FORMAT = 1
_COMPACT = json.JSONEncoder(separators=(",", ":")).encode
_COMPRESSION = 4
"""Of nine: half the time of the default for a tenth more bytes."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the record is of."""

    trace: str
    policy: Policy
    cluster: Cluster
    budgets: Budgets
    origin: int | None
    starts_at: Instant
    ends_at: Instant
    version: str


class JournalFile:
    """A `Journal` that writes every cycle to a file. Same replay, same bytes."""

    def __init__(self, path: Path | str, trace: Trace, policy: Policy) -> None:
        self._raw = Path(path).open("wb")  # noqa: SIM115  # closed in `close`
        self._file = io.TextIOWrapper(_packed(self._raw, Path(path)), encoding="ascii", newline="\n")
        self._queues: dict[_Queue, int] = {}
        self._write(_header(trace, policy))

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        if plan.waiting:
            self._write(self._reasons(plan.waiting))
            plan = replace(plan, waiting=())
        self._write({"facts": [encode(fact) for fact in facts], "plan": encode(plan)})

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reasons(self, waiting: Sequence[Waiting]) -> Json:
        known = len(self._queues)
        reasons = [
            {
                "queue": self._queues.setdefault((each.account, each.user, each.shape), len(self._queues)),
                "workload_id": each.workload_id,
                "reason": encode(each.reason),
                "again_at": each.again_at,
            }
            for each in waiting
        ]
        if known == len(self._queues):
            return {"waiting": reasons}
        new = list(self._queues)[known:]
        queues = [{"account": account, "user": user, "shape": encode(shape)} for account, user, shape in new]
        return {"queues": queues, "waiting": reasons}

    def _write(self, record: Json) -> None:
        self._file.write(_COMPACT(record) + "\n")


def _packed(raw: BinaryIO, path: Path) -> BinaryIO:
    """The stream to write to: compressed, without a date or a name inside, where the name ends in ``.gz``."""
    if path.suffix != ".gz":
        return raw
    packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0)
    return cast(BinaryIO, packed)


def _header(trace: Trace, policy: Policy) -> Json:
    return {
        "mirab_journal": FORMAT,
        "mirab": mirab.__version__,
        "trace": trace.name,
        "origin": trace.origin,
        "starts_at": trace.starts_at,
        "ends_at": trace.ends_at,
        "policy": encode(policy),
        "cluster": encode(trace.cluster),
        "budgets": encode(trace.budgets),
    }


def read_header(path: Path | str) -> Header:
    """The header of a record.

    Raises:
        ValueError: the file is no record of a replay, or of a form that this version does not read.
        OSError: it cannot be opened.
    """
    record = _first_line(Path(path))
    if not isinstance(record, dict) or "mirab_journal" not in record:
        raise ValueError(
            f"{path} is not a record of a replay: its first line is no header. `mirab sim --journal` writes one"
        )
    if record["mirab_journal"] != FORMAT:
        raise ValueError(
            f"{path} has form {record['mirab_journal']}; this version reads {FORMAT}: replay the log again"
        )
    return Header(
        trace=record["trace"],
        policy=decode(record["policy"]),
        cluster=decode(record["cluster"]),
        budgets=decode(record["budgets"]),
        origin=record["origin"],
        starts_at=record["starts_at"],
        ends_at=record["ends_at"],
        version=record["mirab"],
    )


def _first_line(path: Path) -> object:
    try:
        return json.loads(next(whole_lines(path), b"null"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def cycles(path: Path | str, of_queue: Callable[[Json], bool] | None = None) -> Iterator[Json]:
    """The recorded cycles one by one, as JSON objects with ``facts``, ``plan`` and ``waiting``; never more in memory.

    `of_queue`: keep only the reasons of queues for which this is true of their ``account``, ``user`` and ``shape``.
    """
    read_header(path)
    book = QueueBook(of_queue)
    reasons: list[Json] = []
    for line in whole_lines(Path(path), after=1):
        if line.startswith(REASONS):
            try:
                reasons = book.read(line)
            except (ValueError, LookupError) as error:
                raise _damaged(path) from error
        else:
            yield _parsed(line, path) | {"waiting": reasons}
            reasons = []


def facts_mentioning(path: Path | str, name: str) -> Iterator[Json]:
    """The recorded facts of all cycles whose line holds this text; the others are not even parsed."""
    read_header(path)
    wanted = json.dumps(name)[1:-1].encode()
    for line in whole_lines(Path(path), after=1):
        if wanted in line and not line.startswith(REASONS):
            yield from _parsed(line, path)["facts"]


def _parsed(line: bytes, path: Path | str) -> Json:
    try:
        cycle = json.loads(line)
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(cycle, dict) or not {"facts", "plan"}.issubset(cycle):
        raise _damaged(path)
    return cycle


def _damaged(path: Path | str) -> ValueError:
    return ValueError(f"{path} is a damaged record: a line of it is no cycle. Record it again with --journal")


def is_cut_short(path: Path | str) -> bool:
    """Whether the record ends in the middle of a line or of its compression, as after a crash."""
    ended = True
    with Path(path).open("rb") as raw:
        try:
            for line in _unpacked(raw):
                ended = line.endswith(b"\n")
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return True
    return not ended


def records(path: Path | str) -> Iterator[tuple[tuple[Event, ...], Plan]]:
    """The recorded cycles one by one, as facts and plan."""
    for cycle in cycles(path):
        waiting = tuple(decode({"type": "Waiting"} | reason) for reason in cycle["waiting"])
        yield tuple(decode(fact) for fact in cycle["facts"]), replace(decode(cycle["plan"]), waiting=waiting)


REASONS = (b'{"queues":', b'{"waiting":')
"""How a line of those who wait begins."""


class QueueBook:
    """Turns the numbers of queues back into what they stand for, and passes over those that nobody asked for."""

    def __init__(self, of_queue: Callable[[Json], bool] | None) -> None:
        self._of_queue = of_queue
        self._queues: list[Json] = []
        self._wanted: dict[int, bytes] = {}

    def read(self, line: bytes) -> list[Json]:
        """The reasons of a line that are wanted, with their queues."""
        new = line.startswith(REASONS[0])
        if self._of_queue is not None and not new and not any(mark in line for mark in self._wanted.values()):
            return []
        told = json.loads(line)
        for queue in told.get("queues", ()):
            if self._of_queue is not None and self._of_queue(queue):
                self._wanted[len(self._queues)] = b'"queue":%d,' % len(self._queues)
            self._queues.append(queue)
        return [
            self._queues[number] | reason
            for reason in told["waiting"]
            if (number := reason.pop("queue")) in self._wanted or self._of_queue is None
        ]


def whole_lines(path: Path, after: int = 0) -> Iterator[bytes]:
    """The lines after number `after`, up to the end or to where the file was cut off."""
    number = 0
    with path.open("rb") as raw:
        try:
            for line in _unpacked(raw):
                number += 1
                if not line.endswith(b"\n"):
                    return
                if number > after:
                    yield line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return


def _unpacked(raw: BinaryIO) -> BinaryIO:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
