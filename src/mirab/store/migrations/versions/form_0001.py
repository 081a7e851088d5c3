"""Form 1: the journal, what people read of it, and who may what."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, Text, text

revision = "0001"
down_revision = None

Number = BigInteger().with_variant(Integer(), "sqlite")
Key = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "journal",
        Column("seq", Number, primary_key=True, autoincrement=False),
        Column("at", Number, nullable=False),
        Column("epoch", Number, nullable=False),
        Column("checksum", Number, nullable=False),
        Column("facts", Text, nullable=False),
        Column("plan", Text, nullable=False),
    )
    op.create_table(
        "mentions",
        Column("about", Key, primary_key=True),
        Column("seq", Number, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "lead",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("epoch", Number, nullable=False),
        Column("holder", Text, nullable=False),
        Column("since", Number, nullable=False),
    )
    op.create_table("meta", Column("key", Key, primary_key=True), Column("value", Text, nullable=False))
    op.create_table("counters", Column("name", Key, primary_key=True), Column("value", Number, nullable=False))
    op.create_table(
        "snapshots",
        Column("seq", Number, primary_key=True, autoincrement=False),
        Column("fingerprint", Key, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    )
    op.create_table(
        "jobs",
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
    )
    op.create_table(
        "runs",
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
    )
    op.create_table(
        "placements",
        Column("node", Key, primary_key=True),
        Column("workload_id", Key, primary_key=True),
        Column("attempt", Number, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_table("specs", Column("workload_id", Key, primary_key=True), Column("spec", Text, nullable=False))
    op.create_table(
        "tokens",
        Column("id", Key, primary_key=True),
        Column("digest", Key, nullable=False, unique=True),
        Column("created_at", Number, nullable=False),
        Column("token", Text, nullable=False),
    )
    op.create_table(
        "audit",
        Column("id", Number, primary_key=True, autoincrement=True),
        Column("at", Number, nullable=False),
        Column("who", Key, nullable=False),
        Column("origin", Text, nullable=False),
        Column("action", Key, nullable=False),
        Column("target", Key, nullable=False),
        Column("before", Text, nullable=False),
        Column("after", Text, nullable=False),
        Column("why", Text, nullable=False),
    )
    op.create_table(
        "replies",
        Column("who", Key, primary_key=True),
        Column("key", Key, primary_key=True),
        Column("at", Number, nullable=False),
        Column("request_digest", Text, nullable=False),
        Column("reply", Text, nullable=False),
    )
    op.create_index("jobs_by_ended", "jobs", ["ended", "ordinal"])
    op.create_index("jobs_by_state", "jobs", ["state", "ordinal"])
    op.create_index("jobs_by_user", "jobs", ["user", "ordinal"])
    op.create_index("jobs_by_account", "jobs", ["account", "ordinal"])
    op.create_index(
        "jobs_by_label",
        "jobs",
        ["label", "ordinal"],
        sqlite_where=text("label <> ''"),
        postgresql_where=text("label <> ''"),
    )
    op.create_index(
        "jobs_by_array",
        "jobs",
        ["array_job", "ordinal"],
        sqlite_where=text("array_job IS NOT NULL"),
        postgresql_where=text("array_job IS NOT NULL"),
    )
    op.create_index("runs_by_workload", "runs", ["workload_id", "attempt"])
    op.create_index("audit_by_target", "audit", ["target", "id"])
    op.create_index("audit_by_who", "audit", ["who", "id"])
    op.create_index("replies_by_age", "replies", ["at"])
    op.execute("INSERT INTO lead (id, epoch, holder, since) VALUES (1, 0, '', 0)")
    op.execute("INSERT INTO counters (name, value) VALUES ('job', 1)")
