"""`mirab logs`: what a job has written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import click

from mirab.cli.client import Client
from mirab.cli.connection import connected
from mirab.cli.following import output, write_out
from mirab.cli.jobs import parse_id
from mirab.cli.output import emit, to_json


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on as it writes, until the job has ended.")
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Of this attempt. Default: the last.")
@click.option("--error", "-e", is_flag=True, help="Standard error, where it has a file of its own.")
@click.option("--tail", "-n", metavar="N", type=click.IntRange(min=0), help="Only the last N lines (without --follow).")
@click.option("--json", "as_json", is_flag=True, help="As JSON: job, attempt and text.")
@connected
def command(
    client: Client, job: str, follow: bool, attempt: int | None, error: bool, tail: int | None, as_json: bool
) -> None:
    """Print what JOB, or a task such as 12_3, has written so far; with -f go on until it has ended."""
    if tail is not None and follow:
        raise click.UsageError("--tail and --follow exclude each other", click.get_current_context())
    chunks = output(client, parse_id(job), attempt=attempt, stream="err" if error else "out", follow=follow)
    if tail is not None:
        chunks = last_lines(chunks, tail)
    if as_json:
        text = b"".join(chunks).decode("utf-8", "replace")
        emit(to_json({"job": job, "attempt": attempt, "text": text}))
    else:
        write_out(chunks)


def last_lines(chunks: Iterator[bytes], number: int) -> Iterator[bytes]:
    """The last lines, with no more of the rest in memory than a line."""
    kept: deque[bytes] = deque(maxlen=number)
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if rest:
        kept.append(rest)
    yield from kept
