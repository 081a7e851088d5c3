"""`mirab submit`: a batch script or a command into the queue."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.exits import Exit
from mirab.cli.following import await_end
from mirab.cli.jobs import exit_code
from mirab.cli.output import emit, say, to_json
from mirab.cli.submitting import Dashed, Flags, request_of, send, submit_options, work_of


@click.command(cls=Dashed)
@click.argument("words", metavar="SCRIPT [ARGS...] | -- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@submit_options
@click.option("--wrap", metavar="COMMAND", help="Run this line of shell, in place of a script.")
@click.option("--wait", "-W", is_flag=True, help="Wait until it has ended, and exit with its code.")
@click.option("--parsable", is_flag=True, help="Print the id alone.")
@click.option("--dry-run", "--test-only", is_flag=True, help="Submit nothing: show what would be decided now.")
@click.option("--quiet", "-Q", is_flag=True, help="Print nothing when all is well.")
@JSON_OPTION
@connected
@click.pass_context
def command(
    ctx: click.Context, /, client: Client, words: tuple[str, ...], wrap: str | None, flags: Flags, **told: Any
) -> None:
    """Submit a batch script, or with -- a command, to run when its turn comes.

    Options may also stand in the script, in lines #SBATCH and #MIRAB before its first command; flags beat them.
    Times are Slurm's (90 = minutes) or have a unit (90m). Without SCRIPT the script is read from standard input.
    """
    work = work_of(words, dashed=ctx.meta["mirab.dashed"], wrap=wrap)
    body = request_of(client, work, flags)
    if told["dry_run"]:
        ctx.exit(_show_decision(client.post("/jobs", body, query={"dry_run": "true"}), told["as_json"]))
    reply = send(client, body)
    if not told["quiet"]:
        _tell(reply, told)
    if told["wait"]:
        ctx.exit(max(exit_code(await_end(client, job_id)) for job_id in reply["ids"]))


def _show_decision(decision: dict[str, Any], as_json: bool) -> Exit:
    """What it would get: start, wait or reject; the last is a failure, as sbatch's --test-only has it."""
    if as_json:
        emit(to_json(decision))
    else:
        emit("\n".join([f"{decision['decision']}: {decision['sentence']}", *decision["notes"]]))
    return Exit.FAILED if decision["decision"] == "reject" else Exit.OK


def _tell(reply: dict[str, Any], told: dict[str, Any]) -> None:
    if told["as_json"]:
        emit(to_json(reply))
    elif told["parsable"]:
        emit(reply["job"])
    else:
        emit(f"Submitted batch job {reply['job']}")
    if told["wait"]:
        say(f"Waiting for job {reply['job']}; Ctrl-C leaves it running.")
