"""Which form a log has, and `load`, which reads any of them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mirab.logs import acme, alibaba, helios, htcondor, native, philly, sacct, swf
from mirab.logs.assemble import assemble, no_jobs, read_given
from mirab.logs.errors import LogError
from mirab.logs.folder import LOGS, own_folder
from mirab.logs.intake import Intake
from mirab.logs.moments import Calendar
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source, is_tar
from mirab.logs.tables import header_fields
from mirab.model.trace import Trace

Importer = Callable[[Source, LoadOptions, Intake], None]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of log.

    Attributes:
        title: its name for people.
        columns: names that its header must have, all of them, in lower case.
    """

    title: str
    read: Importer
    columns: tuple[str, ...] = ()


FORMS: dict[str, Form] = {
    "native": Form("mirab's native form", native.read, native.REQUIRED),
    "sacct": Form("Slurm sacct", sacct.read, ("jobid",)),
    "swf": Form("Standard Workload Format", swf.read),
    "philly": Form("Philly (CSV reduction)", philly.read, philly.COLUMNS),
    "philly-json": Form("Philly (upstream JSON)", philly.read_json),
    "helios": Form("Helios", helios.read, helios.COLUMNS),
    "acme": Form("Acme (Seren, Kalos)", acme.read, acme.COLUMNS),
    "alibaba": Form("Alibaba 2023 pods", alibaba.read, alibaba.POD_COLUMNS),
    "htcondor": Form("HTCondor history", htcondor.read),
}


def load(path: Path | str, options: LoadOptions | None = None) -> Trace:
    """Read a log of any known form; of a folder of mirab's own, with the cluster and the node events that lie in it.

    Raises:
        LogError: it cannot be used at all; the message says why, where, and what to do.
    """
    options = options or LoadOptions()
    folder = own_folder(Path(path), options.form)
    if folder is None:
        return _load(Source(Path(path)), options)
    options = folder.completed(options)
    trace = _load(Source(folder.log), options)
    return replace(trace, name=folder.name, notes=(folder.note(options), *trace.notes))


def _load(source: Source, options: LoadOptions) -> Trace:
    calendar = Calendar(options.timezone)
    given, notes = read_given(options, calendar)
    name = options.form or ("sacct" if options.columns.strip() else detect(source))
    if name not in FORMS:
        raise LogError(f"form {name!r} is not known", remedy=f"choose one of {', '.join(FORMS)}")
    form = FORMS[name]
    how = "chosen" if options.form or options.columns.strip() else "detected"
    intake = Intake(form.title, notes=[f"form: {form.title} ({how})", *notes])
    with _no_collection():
        try:
            form.read(source, options, intake)
            _note_damage(source, intake)
            if not intake.jobs:
                raise _no_job_in_folder(source) if source.path.is_dir() else no_jobs(intake, source.cut_short)
            return assemble(intake, options, given, calendar, source.name)
        except LogError as error:
            if error.path is None:
                raise LogError(error.what, source.path, error.line, error.remedy) from error
            raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """A log is millions of objects without a cycle: looking for cycles among them takes longer than reading it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _note_damage(source: Source, intake: Intake) -> None:
    if source.bad_bytes:
        where = f" (first at line {source.bad_lines[0]})" if source.bad_lines else ""
        intake.notes.append(f"lines with bytes that are not UTF-8, replaced: {source.bad_bytes:,}{where}")
    if source.cut_short:
        intake.notes.append(f"{source.cut_short}: what stands before was used")


def detect(source: Source) -> str:
    """The name of the log's form, in `FORMS`.

    Raises:
        LogError: none fits; the message shows what was seen.
    """
    if source.path.is_dir():
        return "htcondor"
    head = source.head()
    if is_tar(head):
        return "htcondor"
    if _is_binary(head):
        raise LogError("is not a text", source.path, remedy="export the log as text")
    lines = [line.rstrip("\r") for line in head.decode("utf-8", "replace").split("\n")]
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip()[:1] in ("[", "{"):
        return _json_form(source, head)
    named = _by_header(first)
    if named is not None:
        return named
    if first.startswith(";") or swf.looks_like(lines):
        return "swf"
    if htcondor.looks_like(lines):
        return "htcondor"
    if sacct.looks_headerless(lines):
        return "sacct"
    raise _unknown(source, first)


def _is_binary(head: bytes) -> bool:
    """Whether a tenth of the first bytes are of no text: zeros, or not UTF-8 (which Latin-1 names seldom reach)."""
    sample = head[:4096]
    strange = sample.count(b"\x00") + sample.decode("utf-8", "replace").count("\ufffd")
    return strange * 10 > len(sample)


def _by_header(first: str) -> str | None:
    names = set(header_fields(first)[0])
    for form_name, form in FORMS.items():
        if form.columns and names.issuperset(form.columns):
            return form_name
    return "sacct" if names.issuperset(("jobidraw", "submit")) else None


def _no_job_in_folder(source: Source) -> LogError:
    what = "is a folder, read as HTCondor history of one file a job, and none of its files holds a job"
    own = f"a folder of mirab's own has the log in it as {LOGS[0]} (or .gz)"
    return LogError(what, source.path, remedy=f"name the file of the log; {own}")


def _json_form(source: Source, head: bytes) -> str:
    if b'"attempts"' in head or b'"vc"' in head:
        return "philly-json"
    if b'"jobs"' in head and re.search(rb'"(meta|plugin|openapi)"', head):
        raise LogError("is sacct --json", source.path, remedy=f"its text form is read: {sacct.COMMAND}")
    raise LogError("is JSON of no known form", source.path, remedy="export it as CSV in the native form")


def _unknown(source: Source, first: str) -> LogError:
    if set(alibaba.NODE_COLUMNS) <= set(header_fields(first)[0]):
        return LogError("is a table of nodes", source.path, 1, "give it with --cluster, and the pods as the log")
    if first.split()[:1] == ["JobID"]:
        return LogError("is sacct's table for people", source.path, 1, f"add --parsable2: {sacct.COMMAND}")
    if source.cut_short:
        return LogError(f"has no known form, and {source.cut_short}", source.path, 1, "fetch it again")
    shown = first[:80] + ("..." if len(first) > 80 else "")
    hint = (
        "mirab's own form has a header with submit_s, run_s and nodes or gpus_per_node, best also account and user; "
        "for sacct without header name its columns with --columns"
    )
    return LogError(f"has no known form; it begins with {shown!r}", source.path, 1, hint)
