"""Parts, copies and multiples of a log: ``--from``, ``--to``, ``--overlay``, ``--scale``."""

from __future__ import annotations

from fractions import Fraction

from mirab.logs.errors import LogError
from mirab.logs.infer import Period
from mirab.logs.intake import Intake, Job
from mirab.logs.moments import Calendar, parse_moment
from mirab.logs.options import LoadOptions, parse_overlay
from mirab.model.units import DAY, HOUR, format_duration

OUTSIDE = "submitted outside --from and --to"
THINNED = "thinned out by --scale"


def window(intake: Intake, options: LoadOptions, whole: Period, zero: int, calendar: Calendar) -> Period:
    """Keep the jobs submitted inside ``--from`` and ``--to``, and count the others; the period that is left.

    `zero` is the log's instant 0 on the clock of the jobs.

    Raises:
        LogError: a bound is no moment, or nothing lies between them.
    """
    if options.from_ is None and options.to is None:
        return whole
    begin = whole.begin if options.from_ is None else _bound("from", options.from_, intake, zero, calendar)
    end = whole.end if options.to is None else _bound("to", options.to, intake, zero, calendar)
    kept = []
    for job in intake.jobs:
        if begin <= job.submitted < end:
            kept.append(job)
        else:
            intake.drop(job.line, OUTSIDE)
    if not kept:
        raise LogError(
            f"no job was submitted between --from {options.from_ or 'its start'} and --to {options.to or 'its end'}",
            remedy=f"the log spans {format_duration(whole.end - zero)}" + _dates(intake, whole, calendar),
        )
    intake.jobs = kept
    return Period(begin, end)


def _dates(intake: Intake, whole: Period, calendar: Calendar) -> str:
    if not intake.unix_times:
        return ""
    return f", from {calendar.text(whole.begin)} to {calendar.text(whole.end)}"


def _bound(name: str, text: str, intake: Intake, zero: int, calendar: Calendar) -> int:
    origin = zero if intake.unix_times else None
    try:
        return zero + parse_moment(text, calendar).at(origin)
    except ValueError as error:
        raise LogError(f"--{name}: {error}") from error


def multiply(intake: Intake, options: LoadOptions, period: Period) -> None:
    """Lay copies over the log (``--overlay``), then thin or multiply it (``--scale``)."""
    if options.overlay is not None:
        copies, shift = parse_overlay(options.overlay)
        mark = _mark(intake.jobs)
        intake.jobs += [
            copy
            for number in range(1, copies)
            for copy in _shifted(intake.jobs, f"{mark}{number}", number * shift, period)
        ]
        if copies > 1:
            intake.notes.append(
                f"overlay: {copies} copies, each shifted by {format_duration(shift)} more than the one before, "
                f"cyclically inside {format_duration(period.length)}"
            )
    if options.scale != 1:
        _scale(intake, Fraction(str(options.scale)), period)


def _mark(jobs: list[Job]) -> str:
    """What stands between a job's id and the number of its copy, in no id of the log: ids stay unique."""
    mark = "+"
    while any(mark in job.id for job in jobs):
        mark += "+"
    return mark


def _shifted(jobs: list[Job], ending: str, shift: int, period: Period) -> list[Job]:
    """A copy of the jobs, cyclically shifted, ids made unique; users and accounts are the same."""
    begin, length = period.begin, period.length
    copies = []
    for job in jobs:
        moved = begin + (job.submitted - begin + shift) % length
        deadline = None if job.deadline is None else job.deadline + moved - job.submitted
        copies.append(job._replace(submitted=moved, id=job.id + ending, deadline=deadline))
    return copies


def _scale(intake: Intake, scale: Fraction, period: Period) -> None:
    """`scale` times the arrivals: whole copies shifted by whole days (or hours), and one evenly thinned copy."""
    jobs = sorted(intake.jobs)
    whole, rest = int(scale), scale - int(scale)
    copies = whole + (1 if rest else 0)
    step = DAY if period.length >= copies * DAY else HOUR
    kept: list[Job] = []
    mark = _mark(jobs)
    for number in range(copies):
        source = jobs if number < whole else _thinned(intake, jobs, rest, counted=not whole)
        shift = round(Fraction(number * period.length, copies * step)) * step
        kept += source if number == 0 else _shifted(source, f"{mark}{number}", shift, period)
    if not kept:
        raise LogError(f"--scale {float(scale)} leaves no job", remedy="choose a larger one")
    intake.jobs = kept
    intake.notes.append(f"scale {float(scale):g}: {len(kept):,} arrivals of {len(jobs):,}")


def _thinned(intake: Intake, jobs: list[Job], rest: Fraction, counted: bool) -> list[Job]:
    kept = []
    for number, job in enumerate(jobs):
        if (number + 1) * rest.numerator // rest.denominator > number * rest.numerator // rest.denominator:
            kept.append(job)
        elif counted:
            intake.drop(job.line, THINNED)
    return kept
