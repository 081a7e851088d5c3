"""`mirab await`: wait for jobs."""

from __future__ import annotations

import time

import click

from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.following import await_end
from mirab.cli.jobs import Job, exit_code, jobs_of, parse_ids
from mirab.cli.output import emit, say, to_json


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--timeout", metavar="TIME", help="Wait so long at most, such as 90s or 2h; then exit 7.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing about how they ended.")
@JSON_OPTION
@connected
@click.pass_context
def command(
    ctx: click.Context, client: Client, jobs: tuple[str, ...], timeout: str | None, quiet: bool, as_json: bool
) -> None:
    """Wait until the jobs have ended, and exit with their code: of several, with the highest.

    A job that was cancelled, ran out of time or lost its node without a code of its own counts as 1.
    """
    give_up = None if timeout is None else time.monotonic() + _seconds(timeout)
    ids = [job["id"] for job_id in parse_ids(jobs) for job in jobs_of(client, job_id)]
    ended = [await_end(client, job_id, give_up) for job_id in ids]
    if as_json:
        emit(to_json({"jobs": ended}))
    elif not quiet:
        say("\n".join(how_it_ended(job) for job in ended))
    ctx.exit(max(exit_code(job) for job in ended))


def _seconds(text: str) -> float:
    from mirab.model.units import SECOND, parse_duration

    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from error


def how_it_ended(job: Job) -> str:
    """``Job 7 ended: COMPLETED, exit code 0.``"""
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    why = f": {job['why']}" if job["why"] and job["state"] != "COMPLETED" else ""
    return f"Job {job['id']} ended: {job['state']}{code}{why}."
