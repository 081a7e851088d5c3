"""`mirab when`: when a job, or a request that nobody has submitted, will start; and how past forecasts held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, paragraph, table, terminal_width
from mirab.cli.jobs import jobs_of, parse_ids
from mirab.cli.output import emit, say, to_json
from mirab.cli.submitting import Flags, Work, request_of, submit_options
from mirab.study.formats import count, percent, span

Answer = dict[str, Any]
ORDER = ("all", "session", "debug", "small", "medium", "large", "huge")
COLUMNS = (
    Column("CLASS"),
    Column("FORECASTS", right=True),
    Column("JUDGED", right=True),
    Column("P50_HELD", right=True),
    Column("P90_HELD", right=True),
    Column("P90/WAIT", right=True),
    Column("LATER", right=True),
    Column("WAIT_P50", right=True),
    Column("BOUNDS", right=True),
    Column("HELD", right=True),
)


@click.command()
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@submit_options
@click.option("--calibration", is_flag=True, help="How often past p50s and p90s held, by class.")
@JSON_OPTION
@connected
def command(client: Client, jobs: tuple[str, ...], flags: Flags, calibration: bool, as_json: bool) -> None:
    """Tell when a job will start: by when it does in half, and in nine of ten, of many runs of the scheduler forward.

    Without JOB, the options of `mirab submit` say what is asked about: `mirab when -A red --gpus 64 --min-runtime 2h`.
    Nothing is submitted.
    """
    if calibration:
        found = client.get("/calibration")
        emit(to_json(found) if as_json else "\n".join(held(found)))
        return
    if not jobs and not flags:
        raise click.UsageError("say which job, or what would be asked for: mirab when -A ACCOUNT --gpus 8")
    if jobs and flags:
        raise click.UsageError("a job is as it was submitted: leave out the options, or the job")
    if jobs:
        ids = [job["id"] for name in parse_ids(jobs) for job in jobs_of(client, name)]
        answers = [_answer(client, job_id, quiet=as_json) for job_id in ids]
    else:
        body = request_of(client, Work("when", argv=("true",)), flags, environment={})
        answers = [_of_request(client, body, quiet=as_json)]
    if as_json:
        emit(to_json({"jobs": answers}))
    else:
        emit("\n\n".join("\n".join(lines_of(each)) for each in answers))


def _answer(client: Client, job_id: str, quiet: bool) -> Answer:
    """What is known of a job. For one that came in a moment ago what stands in is told at once, unless `quiet`."""
    place = at("jobs", job_id, "when")
    if not quiet:
        first: Answer = client.get(place, {"wait": 0})
        if first["runs"] and not first.get("stands_in"):
            return first
        if first["runs"]:
            say("\n".join(lines_of(first)))
    own: Answer = client.get(place)
    return own


def _of_request(client: Client, body: dict[str, Any], quiet: bool) -> Answer:
    """The same of a request that nobody has submitted."""
    if not quiet:
        first: Answer = client.post("/when", body, query={"wait": 0})
        if not first.get("stands_in"):
            return first
        say("\n".join(lines_of(first)))
    own: Answer = client.post("/when", body)
    return own


def lines_of(answer: Answer) -> Iterator[str]:
    """The answer as lines."""
    lead = f"{answer['id']}: " if answer["id"] else ""
    yield from paragraph(lead + answer["sentence"])
    if not answer["runs"]:
        return
    yield from paragraph(answer["because"], "  ")
    yield from paragraph(answer["trust"], "  ")
    if answer["id"] or answer.get("stands_in"):
        yield from paragraph(f"looked forward {span(answer['age_s'])} ago", "  ")


def held(found: Answer) -> Iterator[str]:
    """The calibration as a table."""
    classes = found["classes"]
    if not classes:
        yield "no forecast has been kept yet: they are made for jobs that wait"
        return
    yield table(COLUMNS, [_row(name, classes[name]) for name in ORDER if name in classes], terminal_width())
    yield from paragraph(found["note"])


def _row(name: str, score: Answer) -> list[str]:
    stretch = "" if score["p90_over_wait"] is None else f"{score['p90_over_wait']:.1f}"
    shares = [percent(score[key], 0) for key in ("p50_held", "p90_held")]
    return [name, count(score["forecasts"]), count(score["judged"]), *shares, stretch, count(score["without_p90"]),
            span(score["wait_p50_s"]), count(score["bounds"]), percent(score["bounds_held"], 0)]  # fmt: skip
