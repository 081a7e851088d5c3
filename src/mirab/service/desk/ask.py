"""A form read: durations, instants and lists as values. Knows nothing of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from mirab.model.resources import Shape
from mirab.model.units import DAY, HOUR, SECOND, Duration, Instant, format_duration, parse_duration
from mirab.service.desk.arrays import ArraySpec, parse_array
from mirab.service.desk.dependencies import Dependency, parse_dependencies
from mirab.service.desk.errors import invalid
from mirab.service.desk.forms import USUAL_MINIMUM, Limits, SubmitForm, check_form

LONGEST: Duration = 3_660 * DAY
"""Ten years: longer is a typing error."""
OUTPUT, ARRAY_OUTPUT = "mirab-%j.out", "mirab-%A_%a.out"
PRIORITIES = range(101)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a form says. Durations in milliseconds, `deadline_at` in Unix milliseconds."""

    form: SubmitForm
    name: str
    shape: Shape
    checkpoint: Duration
    restart: Duration
    idle_timeout: Duration
    progress: Duration
    deadline_at: Instant | None
    array: ArraySpec | None
    after: tuple[Dependency, ...]
    notes: tuple[str, ...] = ()


def read_form(form: SubmitForm, limits: Limits) -> Ask:
    """Read a form.

    Raises:
        DeskError: anything in it that cannot be: which field, and what to write.
    """
    check_form(form, limits)
    _check_numbers(form)
    notes: list[str] = []
    return Ask(
        form=form,
        name=form.name or _default_name(form),
        shape=_shape(form, notes),
        checkpoint=_span("checkpoint", form.checkpoint),
        restart=_span("restart", form.restart),
        idle_timeout=_span("idle_timeout", form.idle_timeout),
        progress=_span("progress", form.progress),
        deadline_at=_instant(form.deadline),
        array=parse_array(form.array, limits.array) if form.array else None,
        after=parse_dependencies(form.dependency, limits.dependencies),
        notes=tuple(notes),
    )


def _check_numbers(form: SubmitForm) -> None:
    if form.nodes < 1:
        raise invalid(f"nodes is {form.nodes}: ask for at least one")
    for name in ("gpus_per_node", "cpus_per_node", "memory_mib_per_node"):
        if getattr(form, name) < 0:
            raise invalid(f"{name} is {getattr(form, name)}: a whole number from 0 on is expected")
    if form.priority not in PRIORITIES:
        raise invalid(f"priority is {form.priority}: ranks among your own jobs go from 0 to {PRIORITIES[-1]}")


def _default_name(form: SubmitForm) -> str:
    if form.script or not form.argv:
        return "session" if form.interactive else "job"
    return PurePosixPath(form.argv[0]).name[:64] or "job"


def _shape(form: SubmitForm, notes: list[str]) -> Shape:
    limit = None if form.time_limit is None else _span("time_limit", form.time_limit)
    if limit is not None and limit < SECOND:
        raise invalid("a time_limit below one second ends every run at once: leave it out for none")
    minimum = _span("min_runtime", form.min_runtime)
    if limit is not None and minimum > limit:
        if form.min_runtime != USUAL_MINIMUM:
            notes.append(f"its minimum is cut to its time limit, {format_duration(limit)}: it cannot run longer")
        minimum = limit
    return Shape(
        nodes=form.nodes,
        gpus_per_node=form.gpus_per_node,
        cpus_per_node=form.cpus_per_node or (0 if form.gpus_per_node else 1),
        memory_mib_per_node=form.memory_mib_per_node,
        gpu_types=tuple(dict.fromkeys(form.gpu_types)),
        min_runtime=minimum,
        time_limit=limit,
        grace=_span("grace", form.grace),
    )


def _span(name: str, text: str) -> Duration:
    try:
        span = parse_duration(text)
    except ValueError as error:
        raise invalid(f"{name}: {error}") from None
    if span > LONGEST:
        raise invalid(f"{name} is {text}, more than ten years: check the unit")
    return span


def _instant(moment: str | datetime | None) -> Instant | None:
    if moment is None or moment == "":
        return None
    if isinstance(moment, str):
        moment = _parsed(moment)
    if moment.tzinfo is None:
        raise invalid("the deadline has no time zone: write 2026-03-01T18:00:00Z, or with +01:00 at the end")
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * SECOND)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise invalid(f"deadline {text[:40]!r} is no instant: write 2026-03-01T18:00:00Z") from None


def progress_interval(ask: Ask) -> Duration:
    """How long it may hold GPUs without a sign of progress, by its own word; 0 = it gave none.

    Who declares checkpoints only is given two intervals, so that one that comes late flags nobody, and an hour at
    least.
    """
    return ask.progress or (max(2 * ask.checkpoint, HOUR) if ask.checkpoint else 0)
