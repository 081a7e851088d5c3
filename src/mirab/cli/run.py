"""`mirab run`: submit a command, show its output, exit with its code."""

from __future__ import annotations

import click

from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.foreground import Foreground
from mirab.cli.output import emit, say, to_json
from mirab.cli.submitting import Dashed, Flags, command_work, request_of, send, submit_options


@click.command(cls=Dashed)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@submit_options
@click.option("--quiet", "-Q", is_flag=True, help="Say nothing about waiting, starting and stopping.")
@JSON_OPTION
@connected
@click.pass_context
def command(
    ctx: click.Context, client: Client, words: tuple[str, ...], flags: Flags, quiet: bool, as_json: bool
) -> None:
    """Submit COMMAND, show what it writes as it comes, and exit with its code; --json gives the ended job instead.

    When the run is stopped for another, this goes on when it runs again. Ctrl-C while it waits, or twice while it
    runs, cancels it. Output goes to the job's output file too, and is appended by later attempts.
    """
    if "array" in flags:
        raise click.UsageError("run follows one job: use submit for an array", ctx)
    body = request_of(client, command_work(words), flags)
    job_id = send(client, body)["ids"][0]
    if not quiet:
        say(f"Job {job_id} is submitted.")
    job, code = Foreground(client, job_id, quiet=quiet).follow(show=not as_json)
    if as_json:
        emit(to_json(job))
    ctx.exit(code)
