"""`mirab session`: a shell on the cluster, under a contract."""

from __future__ import annotations

import os
import sys

import click

from mirab.cli.client import Client, at
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.exits import DeniedError, Exit, InvalidError, NotFoundError, UnusableError
from mirab.cli.following import changes
from mirab.cli.foreground import Notices
from mirab.cli.grid import terminal_width
from mirab.cli.jobs import LIVE, Job, exit_code, has_ended, pages
from mirab.cli.output import emit, say, to_json
from mirab.cli.request import Wish
from mirab.cli.submitting import Dashed, Flags, command_work, request_of, send, submit_options

NAME = "session"
IDLE = "1h"
SETTLE_S = 3
"""After a terminal is over: how long until the service knows whether the session has ended or waits again."""


class Sessions(click.Group):
    """A group in which `start` is meant where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Sessions)
def command() -> None:
    """Start an interactive shell on the cluster, under a contract: `mirab session [OPTIONS] [-- COMMAND...]`.

    It is protected for its minimum runtime; a warning comes before that is over, and before it ends for idleness.
    When it is stopped for others, its folder MIRAB_STATE_DIR and what was on the screen are kept, and
    `mirab session attach ID` restores it where there is room. Control-] leaves it running. The options are those of
    `mirab session start --help`.
    """


@command.command(cls=Dashed)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@submit_options
@click.option(
    "--idle-timeout",
    metavar="TIME",
    default=IDLE,
    show_default=True,
    help="Without key, output or work for so long, it ends after a warning; 0 = never.",
)
@click.option("--detach", is_flag=True, help="Only submit it; attach later.")
@JSON_OPTION
@connected
@click.pass_context
def start(
    ctx: click.Context,
    client: Client,
    words: tuple[str, ...],
    flags: Flags,
    idle_timeout: str,
    detach: bool,
    as_json: bool,
) -> None:
    """Start a session and enter it; without GPUs it runs on cores. Default COMMAND: your shell."""
    if not (detach or as_json):
        _check_terminal()
    work = command_work(words or (os.environ.get("SHELL") or "/bin/sh",))
    flags = {"idle_timeout": Wish(idle_timeout, "--idle-timeout"), "job_name": Wish(NAME, "--job-name"), **flags}
    reply = send(client, request_of(client, work, flags, interactive=True))
    if as_json:
        emit(to_json(reply))
    elif detach:
        emit(reply["job"])
    else:
        say(f"Session {reply['job']} is submitted; Ctrl-C while it waits cancels it.")
        ctx.exit(_enter(client, reply["job"], ours=True))


@command.command()
@click.argument("job")
@connected
@click.pass_context
def attach(ctx: click.Context, client: Client, job: str) -> None:
    """Enter a session again, after leaving it or after it was stopped for others; wait for it where it waits."""
    _check_terminal()
    ctx.exit(_enter(client, job, ours=False))


@command.command("ls")
@JSON_OPTION
@connected
def list_sessions(client: Client, as_json: bool) -> None:
    """Show your sessions."""
    from mirab.cli.columns import standard

    query = {"user": client.get("/whoami")["user"], "state": list(LIVE)}
    found = [job for page in pages(client, query) for job in page if job["interactive"]]
    if as_json:
        emit(to_json({"jobs": found}))
    else:
        emit(standard(found, terminal_width(), long=True))


def _check_terminal() -> None:
    """Raises InvalidError if there is no terminal to show it on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidError(
            "a session needs a terminal: start it from one, or use --detach; for a command, `mirab run`."
        )


def _enter(client: Client, job_id: str, *, ours: bool) -> int:
    """Wait until it runs, show it, and say how it was left. `ours`: Ctrl-C while it waits cancels it."""
    try:
        job = _when_running(client, job_id)
    except KeyboardInterrupt:
        if ours:
            client.post(at("jobs", job_id, "cancel"), {"why": "Ctrl-C while it waited"})
            say(f"\nSession {job_id} is cancelled.")
        raise
    if has_ended(job):
        raise NotFoundError(f"session {job_id} has ended ({job['state']}): start another with `mirab session`.")
    return _left(client, job_id, _shown(_terminal_of(client, job_id), job_id))


def _when_running(client: Client, job_id: str) -> Job:
    """The job when it runs, or has ended; what it waits for is said."""
    notices = Notices(job_id)
    with Client(client.address, client.token) as events:
        for job in changes(events, client, job_id):
            if (job["state"] == "RUNNING" and job["started_at"]) or has_ended(job):
                return job
            if text := notices.about(job):
                say(text)
    raise AssertionError("changes end with the job's end")


def _terminal_of(client: Client, job_id: str) -> str:
    """The socket of a session's terminal.

    Raises:
        InvalidError: it is no session.
        DeniedError: it is not yours.
        UnusableError: the service is on another machine.
    """
    from mirab.backends.local.rundir import ATTACH

    detail = client.get(at("jobs", job_id))
    if not detail["interactive"]:
        raise InvalidError(f"job {job_id} is no session: see what it writes with `mirab logs -f {job_id}`.")
    if detail["spec"] is None:
        raise DeniedError(f"session {job_id} is not yours.")
    folder = detail["run_dir"]
    if not folder or not os.path.isdir(folder):
        raise UnusableError(f"session {job_id} runs on another machine: attach to it from the one of the service.")
    return os.path.join(folder, ATTACH)


def _shown(path: str, job_id: str) -> bool:
    """The session's terminal in ours, until it is over (True) or left (False).

    Raises:
        UnusableError: nobody listens, or it is somebody else's.
    """
    from mirab.backends.local.attach import AttachError, attach

    say(f"Session {job_id}: Control-] leaves it running.")
    try:
        return attach(path) is not None
    except AttachError as error:
        raise UnusableError(f"{error}: see `mirab show {job_id}`.") from error


def _left(client: Client, job_id: str, over: bool) -> int:
    """A sentence about it, and the exit code."""
    job = client.get(at("jobs", job_id, "await"), {"timeout": SETTLE_S if over else 0})
    if has_ended(job):
        say(f"Session {job_id} ended: {job['state']}.")
        return exit_code(job)
    again = f"`mirab session attach {job_id}`"
    if over:
        say(f"Session {job_id} was stopped; its folder and its screen are kept. {again} restores it.")
    else:
        say(f"Session {job_id} goes on. {again} brings you back.")
    return Exit.OK
