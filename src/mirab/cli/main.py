"""The `mirab` command: what it can do, in groups; the work itself is imported when it is asked for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import RawIOBase, TextIOWrapper
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, TextIO

import click

from mirab import __version__
from mirab.cli.exits import Exit, ReaderGoneError, report

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: dict[str, tuple[tuple[str, str], ...]] = {
    "Run work": (
        ("submit", "Submit a batch script or a command, with sbatch's flags."),
        ("run", "Submit a command, show its output, and exit with its code."),
        ("session", "A shell on the cluster, under a contract."),
        ("logs", "What a job has written."),
        ("await", "Wait until jobs have ended, and exit with their code."),
        ("checkpoint", "Say that a job's work is safe."),
    ),
    "Look": (
        ("ls", "The jobs, in squeue's columns."),
        ("show", "Everything about one job."),
        ("why", "Why a job waits, who goes before it, what would help; or its story."),
        ("when", "When a job, or a request, will start; how past forecasts held."),
        ("share", "The tree of accounts: share, used, owed, delivered, debt."),
        ("squatters", "Who holds GPUs without a sign of progress."),
        ("report", "The week, for managers: owed, delivered, waits, lost work, drains, reviews."),
    ),
    "Operate": (
        ("cancel", "End jobs."),
        ("hold", "Keep jobs out of the queue."),
        ("release", "Let held jobs into the queue again."),
        ("requeue", "Stop runs and put them back into the queue."),
        ("node", "Nodes: ls, drain, resume, report."),
    ),
    "Serve": (
        ("serve", "Share out this machine: the live service."),
        ("db", "The service's store: migrate, backup, restore, check."),
        ("slurm", "On a Slurm cluster: import, govern, release-all, status, advice."),
        ("token", "Who may do what: create, ls, revoke."),
        ("notice", "Webhook, Slack, e-mail: who is told of what, and whether it arrives."),
        ("audit", "Who changed what, and why."),
    ),
    "Decide about budgets": (
        ("budget", "Budgets as decisions: show, diff, set, log, blame, review, revert, push."),
        ("whatif", "Try other budgets, or an exception, on a log: who gains, who loses."),
        ("advise", "What a log suggests: window, cap, margin, checkpoints, and who idles, loses and pays."),
        ("outcome", "What was predicted beside what happened after a change."),
        ("except", "Exceptions to the rules, with an end: request, approve, refuse, revoke, list."),
        ("reserve", "GPUs for an account from a fixed time on."),
        ("rollout", "From observing to enforcing: only past the gates, or with an exception that ends."),
        ("gate", "Check a replay, or the live service, against gates, and keep the answer."),
    ),
    "Replay a log": (
        ("demo", "Replay a bundled real log under two policies, and compare."),
        ("sim", "Replay a log under one policy, and report."),
        ("compare", "Replay the same arrivals under several policies."),
        ("sweep", "Replay over a grid of settings, on all cores."),
        ("explain", "Why a workload of a recorded replay waited or was stopped."),
    ),
    "Make and look": (
        ("synth", "Make a synthetic log from a seed."),
        ("policies", "The stock policies and their settings."),
        ("doctor", "What this installation has, what it lacks, and which server answers."),
        ("completion", "The script that teaches a shell mirab's words."),
    ),
}
"""Command and its line of help, by group. Each command is the object `command` of the module `module_of(NAME)`."""


def module_of(name: str) -> str:
    """The module of a command: ``mirab.cli.NAME``, with an underscore behind a word of Python's own."""
    return f"mirab.cli.{name}_" if iskeyword(name) else f"mirab.cli.{name}"


class Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in COMMANDS.values() for name, _ in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(module_of(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command {name!r}{_meant(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that fit, without importing their modules."""
        from click.shell_completion import CompletionItem

        lines = [line for commands in COMMANDS.values() for line in commands if line[0].startswith(incomplete)]
        found = [CompletionItem(name, help=text) for name, text in lines]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, commands in COMMANDS.items():
            with formatter.section(group):
                formatter.write_dl(list(commands))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error


def _meant(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


@click.command(
    cls=Commands,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Numbers and files go to standard output, talk to standard error. Exit codes: 0 ok, 1 failed, 2 usage, "
    "3 not found, 4 denied, 5 conflict, 6 gate not met, 7 timed out, 8 unreachable.",
)
@click.version_option(__version__, message="mirab %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Who gets the GPUs next, and why: budgets, fair share over a week, and a minimum runtime that is a promise.

    Start with `mirab demo`; then `mirab sim` with a job log of your own cluster, or `mirab serve` and `mirab submit`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(args: Sequence[str]) -> int:
    """Run the command line and return its exit code; every error has become a sentence on standard error."""
    try:
        result = cli.main(list(args), prog_name="mirab", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else Exit.FAILED
    except BaseException as error:
        code = report(error)
        _forget_unwritten()
        return code
    return result if isinstance(result, int) else Exit.OK


def _forget_unwritten() -> None:
    """What standard output did not take goes nowhere, instead of failing again, aloud, when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    _open_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    sys.exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """A closed stream swallows what is written; files and pipes get UTF-8, terminals escapes for what they lack."""
    sys.stdout = _complete(sys.stdout) if sys.stdout else _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _complete(stream: TextIO) -> TextIO:
    """Under PYTHONUNBUFFERED Python tries each text once: what a full disk took no more of would be lost unsaid."""
    if isinstance(getattr(stream, "buffer", None), RawIOBase):
        return open(stream.fileno(), "w", buffering=1, encoding=stream.encoding, closefd=False)
    return stream


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # open until the process ends


def _leave(number: int, _: object) -> None:
    """Told to go: everything half made is cleared away, as after Ctrl-C, and the shell learns why."""
    raise SystemExit(128 + number)
