"""One record of the journal: facts and a plan as text, with a checksum; written and read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from sqlalchemy import Connection, select

from mirab.model.codec import decode
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.units import Instant
from mirab.store.errors import CorruptStoreError
from mirab.store.rows import Columns, Stored, to_json
from mirab.store.tables import journal

BATCH = 1_000
"""Records that are read at once."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row of the journal. `at`: the latest instant that it or any record before it names."""

    seq: int
    at: Instant
    epoch: int
    facts: str
    plan: str

    @property
    def checksum(self) -> int:
        return crc32(f"{self.seq} {self.at} {self.epoch}\n{self.facts}\n{self.plan}".encode())

    def columns(self) -> Columns:
        return {
            "seq": self.seq,
            "at": self.at,
            "epoch": self.epoch,
            "checksum": self.checksum,
            "facts": self.facts,
            "plan": self.plan,
        }


def written(facts: Sequence[Event], plan: Plan) -> tuple[str, str]:
    """Both as text.

    Raises:
        TypeError: something of them has no form in a record.
    """
    return to_json(tuple(facts)), to_json(plan)


def rows(connection: Connection, after: int = 0) -> Iterator[Record]:
    """Records behind a number, in order, a batch at a time.

    Raises:
        CorruptStoreError: a record is missing, or is not as it was written.
    """
    while found := batch(connection, after):
        yield from found
        after = found[-1].seq


def batch(connection: Connection, after: int) -> list[Record]:
    """The next records behind a number; none = there are no more.

    Raises:
        CorruptStoreError: a record is missing, or is not as it was written.
    """
    query = select(journal).where(journal.c.seq > after).order_by(journal.c.seq).limit(BATCH)
    return [checked(row, seq) for seq, row in enumerate(connection.execute(query).mappings(), after + 1)]


def checked(row: Stored, seq: int) -> Record:
    """The record, if it is the one with that number and as it was written."""
    record = Record(row["seq"], row["at"], row["epoch"], row["facts"], row["plan"])
    if record.seq != seq:
        raise CorruptStoreError(
            f"the journal has a hole: record {seq} is missing (the next one is {record.seq}); restore the last backup "
            "with 'mirab db restore'"
        )
    if record.checksum != row["checksum"]:
        raise CorruptStoreError(
            f"record {seq} of the journal is damaged: it is not as it was written; restore the last backup with "
            "'mirab db restore'"
        )
    return record


def read(record: Record) -> tuple[tuple[Event, ...], Plan]:
    """The facts and the plan of a record.

    Raises:
        CorruptStoreError: it was written by a mirab that knows other things.
    """
    try:
        return tuple([decode(fact) for fact in json.loads(record.facts)]), decode(json.loads(record.plan))
    except ValueError as error:
        raise CorruptStoreError(
            f"record {record.seq} of the journal cannot be read: {error}; use the mirab that wrote it"
        ) from error
