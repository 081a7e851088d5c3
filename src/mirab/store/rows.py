"""Between the values of the model and the columns of the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeAlias

from mirab.model.codec import decode, encode
from mirab.model.records import AuditEntry, IdempotentReply, JobRow, JobSpec, JobState, RunRow, TokenRow
from mirab.model.units import NodeName
from mirab.store.views import Entry

Columns: TypeAlias = dict[str, Any]
Stored: TypeAlias = Mapping[Any, Any]
"""A row as it was read: values by name of column."""

LARGEST = (1 << 63) - 1

_JOB = tuple(field.name for field in fields(JobRow))
_job_values = attrgetter(*_JOB)
_JOB_TEXTS = ("id", "name", "user", "label", "held", "array_job")
_JOB_NUMBERS = ("nodes", "gpus_per_node", "cpus_per_node", "min_runtime", "time_limit", "lost")
_HIDDEN = ("resume", "wish", "minimum", "suspended_at", "protected_before")
JOB_COLUMNS = (*_JOB, "ended", *_HIDDEN)
RUN_COLUMNS = tuple(field.name for field in fields(RunRow))


def storable(text: str) -> str:
    """What both engines can keep: a NUL or half a character becomes a replacement character."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def bounded(number: int | None) -> int | None:
    """The number, or the largest that both engines can keep."""
    return number if number is None else max(-LARGEST, min(LARGEST, number))


def job_columns(entry: Entry) -> Columns:
    row = entry.row
    columns = dict(zip(_JOB, _job_values(row), strict=True))
    for name in _JOB_TEXTS:
        if columns[name] is not None:
            columns[name] = storable(columns[name])
    for name in _JOB_NUMBERS:
        columns[name] = bounded(columns[name])
    columns["account"] = subtree_key(row.account)
    columns["state"] = row.state.value
    columns["ended"] = row.state.ended
    columns["node_names"] = names_text(row.node_names)
    columns["protected_until"] = bounded(row.protected_until)
    columns["protected_before"] = bounded(entry.protected_before)
    columns["minimum"] = bounded(entry.minimum)
    columns["resume"], columns["wish"], columns["suspended_at"] = entry.resume, entry.wish, entry.suspended_at
    return columns


def subtree_key(account: str) -> str:
    """The account's path with a ``/`` behind it: all accounts below it begin so, and no others."""
    return storable(account) + "/"


def names_text(names: tuple[NodeName, ...]) -> str:
    return json.dumps(names, separators=(",", ":")) if names else ""


def _names(text: str) -> tuple[NodeName, ...]:
    return tuple(json.loads(text)) if text else ()


def job_row(columns: Stored) -> JobRow:
    values = {name: columns[name] for name in _JOB}
    values["account"] = values["account"][:-1]
    values["state"] = JobState(values["state"])
    values["node_names"] = _names(values["node_names"])
    return JobRow(**values)


def entry_of(columns: Stored, run: RunRow | None) -> Entry:
    return Entry(job_row(columns), run=run, **{name: columns[name] for name in _HIDDEN})


def run_columns(run: RunRow) -> Columns:
    columns = {name: getattr(run, name) for name in RUN_COLUMNS}
    columns["node_names"] = names_text(run.node_names)
    columns["lost"] = bounded(run.lost)
    return columns


def run_row(columns: Stored) -> RunRow:
    values = {name: columns[name] for name in RUN_COLUMNS}
    values["node_names"] = _names(values["node_names"])
    return RunRow(**values)


def to_json(value: object) -> str:
    """A model value as the text that is stored: compact, and ASCII whatever is inside."""
    return json.dumps(encode(value), separators=(",", ":"), allow_nan=False)


def spec_columns(spec: JobSpec) -> Columns:
    return {"workload_id": spec.workload_id, "spec": to_json(spec)}


def spec_of(text: str) -> JobSpec:
    spec: JobSpec = decode(json.loads(text))
    return spec


def token_columns(token: TokenRow) -> Columns:
    return {"id": token.id, "digest": token.digest, "created_at": token.created_at, "token": to_json(token)}


def token_of(text: str) -> TokenRow:
    token: TokenRow = decode(json.loads(text))
    return token


def audit_columns(entry: AuditEntry) -> Columns:
    texts = {name: storable(getattr(entry, name)) for name in AUDIT_TEXTS}
    return {"at": entry.at, **texts}


AUDIT_TEXTS = ("who", "origin", "action", "target", "before", "after", "why")


def reply_columns(reply: IdempotentReply) -> Columns:
    return {
        "who": storable(reply.who),
        "key": storable(reply.key),
        "at": reply.at,
        "request_digest": reply.request_digest,
        "reply": json.dumps(reply.reply),
    }


def reply_of(columns: Stored) -> IdempotentReply:
    return IdempotentReply(
        columns["key"], columns["who"], columns["at"], columns["request_digest"], json.loads(columns["reply"])
    )
