"""The tables, as the newest form has them. The migrations make them; a test proves that both agree.

Instants are Unix milliseconds. Text that is compared by range is in byte order on both engines.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

metadata = MetaData()

Number = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits on both; SQLite counts by itself only in a column of exactly this type."""
Key: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in byte order, whatever the language of the server."""

journal = Table(
    "journal",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("at", Number, nullable=False),
    Column("epoch", Number, nullable=False),
    Column("checksum", Number, nullable=False),
    Column("facts", Text, nullable=False),
    Column("plan", Text, nullable=False),
)
mentions = Table(
    "mentions",
    metadata,
    Column("about", Key, primary_key=True),
    Column("seq", Number, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Which records speak of a workload or a node."""

lead = Table(
    "lead",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Number, nullable=False),
    Column("holder", Text, nullable=False),
    Column("since", Number, nullable=False),
)
"""One row: who decides. The epoch grows with each change of it, and every append checks it."""
meta = Table("meta", metadata, Column("key", Key, primary_key=True), Column("value", Text, nullable=False))
counters = Table("counters", metadata, Column("name", Key, primary_key=True), Column("value", Number, nullable=False))
snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("fingerprint", Key, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("ordinal", Number, primary_key=True, autoincrement=True),
    Column("id", Key, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("user", Key, nullable=False),
    Column("account", Key, nullable=False),
    Column("state", Key, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("nodes", Number, nullable=False),
    Column("gpus_per_node", Number, nullable=False),
    Column("submitted_at", Number, nullable=False),
    Column("cpus_per_node", Number, nullable=False),
    Column("min_runtime", Number, nullable=False),
    Column("time_limit", Number),
    Column("label", Key, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("started_at", Number),
    Column("ended_at", Number),
    Column("protected_until", Number),
    Column("checkpoint_at", Number),
    Column("node_names", Text, nullable=False),
    Column("exit_code", Number),
    Column("preemptions", Number, nullable=False),
    Column("node_failures", Number, nullable=False),
    Column("lost", Number, nullable=False),
    Column("held", Text, nullable=False),
    Column("array_job", Key),
    Column("array_task", Number),
    Column("interactive", Boolean, nullable=False),
    Column("resume", Boolean, nullable=False),
    Column("wish", Text, nullable=False),
    Column("minimum", Number, nullable=False),
    Column("suspended_at", Number),
    Column("protected_before", Number),
    Index("jobs_by_ended", "ended", "ordinal"),
    Index("jobs_by_state", "state", "ordinal"),
    Index("jobs_by_user", "user", "ordinal"),
    Index("jobs_by_account", "account", "ordinal"),
    Index("jobs_by_label", "label", "ordinal", sqlite_where=text("label <> ''"), postgresql_where=text("label <> ''")),
    Index("jobs_by_array", "array_job", "ordinal", sqlite_where=text("array_job IS NOT NULL"),
          postgresql_where=text("array_job IS NOT NULL")),
)  # fmt: skip
"""A row for each job. `ordinal` is the order in which they were recorded, which never changes: pages follow it.

`account` ends with a ``/``, so that a subtree is one range. The last five columns are what the fold needs to go on.
"""
runs = Table(
    "runs",
    metadata,
    Column("id", Key, primary_key=True),
    Column("workload_id", Key, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("node_names", Text, nullable=False),
    Column("slots", Number, nullable=False),
    Column("decided_at", Number, nullable=False),
    Column("started_at", Number),
    Column("ended_at", Number),
    Column("outcome", Text, nullable=False),
    Column("exit_code", Number),
    Column("lost", Number),
    Index("runs_by_workload", "workload_id", "attempt"),
)
placements = Table(
    "placements",
    metadata,
    Column("node", Key, primary_key=True),
    Column("workload_id", Key, primary_key=True),
    Column("attempt", Number, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Which attempts were given a node."""

specs = Table("specs", metadata, Column("workload_id", Key, primary_key=True), Column("spec", Text, nullable=False))
tokens = Table(
    "tokens",
    metadata,
    Column("id", Key, primary_key=True),
    Column("digest", Key, nullable=False, unique=True),
    Column("created_at", Number, nullable=False),
    Column("token", Text, nullable=False),
)
audit = Table(
    "audit",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("at", Number, nullable=False),
    Column("who", Key, nullable=False),
    Column("origin", Text, nullable=False),
    Column("action", Key, nullable=False),
    Column("target", Key, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("why", Text, nullable=False),
    Index("audit_by_target", "target", "id"),
    Index("audit_by_who", "who", "id"),
)
replies = Table(
    "replies",
    metadata,
    Column("who", Key, primary_key=True),
    Column("key", Key, primary_key=True),
    Column("at", Number, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Index("replies_by_age", "at"),
)
