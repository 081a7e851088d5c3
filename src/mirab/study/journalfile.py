"""The record of a replay as a file: one JSON object a line, gzip where the name ends in ``.gz``.

The first line is the header: ``mirab_journal`` (the version of this form), ``mirab``, ``trace``, ``origin`` (Unix
milliseconds of instant 0, or null), ``starts_at``, ``ends_at``, ``policy``, ``cluster``, ``budgets``. Each further line
is one cycle: ``{"facts": [...], "plan": {...}}`` in the form of `mirab.model.codec`, facts in the order in which they
were folded. A last line that was cut off by a crash is no record and is left out.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import mirab
from mirab.model.accounts import Budgets
from mirab.model.codec import decode, encode
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import Instant

FORMAT = 1
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
        self._write(_header(trace, policy))

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
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

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")


def _packed(raw: BinaryIO, path: Path) -> BinaryIO:
    """The stream to write to: compressed, without a date or a name inside, where the name ends in ``.gz``."""
    if path.suffix != ".gz":
        return raw
    packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0)
    return cast(BinaryIO, packed)


def _header(trace: Trace, policy: Policy) -> dict[str, Any]:
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
    record = next(_lines(Path(path)), None)
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


def cycles(path: Path | str, mentioning: str = "") -> Iterator[dict[str, Any]]:
    """The recorded cycles one by one, as JSON objects with ``facts`` and ``plan``. Never more than one in memory.

    `mentioning`: only those whose line holds this text somewhere in a string; the others are not even parsed.
    """
    read_header(path)
    yield from _lines(Path(path), after=1, mentioning=json.dumps(mentioning)[1:-1].encode())


def records(path: Path | str) -> Iterator[tuple[tuple[Event, ...], Plan]]:
    """The recorded cycles one by one, as facts and plan."""
    for cycle in cycles(path):
        yield tuple(decode(fact) for fact in cycle["facts"]), decode(cycle["plan"])


def _lines(path: Path, after: int = 0, mentioning: bytes = b"") -> Iterator[dict[str, Any]]:
    """The JSON objects on the lines after number `after`, up to the end or to where the file was cut off."""
    number = 0
    with path.open("rb") as raw:
        try:
            for line in _unpacked(raw):
                number += 1
                if not line.endswith(b"\n"):
                    return
                if number > after and mentioning in line:
                    yield json.loads(line)
        except (EOFError, zlib.error):
            return
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None


def _unpacked(raw: BinaryIO) -> BinaryIO:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
