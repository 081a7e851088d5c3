"""The options that several commands share, each group gathered into one value."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mirab.cli.exits import UnusableError

if TYPE_CHECKING:
    from mirab.logs.folder import OwnFolder

F = TypeVar("F", bound=Callable[..., Any])

UNITS = ("gpu", "cpu", "node")
ACCOUNTS_BY = ("user", "account", "partition", "qos", "vc")


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which log, and how to read it, as typed. Field by field the options of `log_options`."""

    log: str
    form: str | None
    columns: str | None
    cluster: str | None
    node_events: str | None
    account_by: str | None
    unit: str | None
    contract: str | None
    overlay: str | None
    begin: str | None
    end: str | None
    scale: float
    timezone: str | None

    @classmethod
    def typed(cls, **given: Any) -> LogChoice:
        """The choice, with the files of a folder of mirab's own where none was named for the purpose.

        Raises:
            UnusableError: the folder holds one of them twice.
        """
        folder = _own_folder(given["log"], given["form"])
        if folder is not None:
            names = ("cluster", "node_events")
            chosen = [Path(given[name]) if given[name] else None for name in names]
            beside = folder.beside(*chosen)
            given |= {name: str(path) for name, path in zip(names, beside, strict=True) if path is not None}
        return cls(**given)

    @property
    def files(self) -> tuple[str | None, ...]:
        """Every file that is read."""
        folder = _own_folder(self.log, self.form)
        log = self.log if folder is None else str(folder.log)
        return log, self.cluster, self.node_events, self.contract


def _own_folder(log: str, form: str | None) -> OwnFolder | None:
    if not os.path.isdir(log):
        return None
    from mirab.logs.errors import LogError
    from mirab.logs.folder import own_folder

    try:
        return own_folder(Path(log), form)
    except LogError as error:
        raise UnusableError(str(error)) from error


@dataclass(frozen=True, slots=True)
class OutputChoice:
    """Where results go."""

    json: str | None
    html: str | None

    @property
    def text(self) -> bool:
        """Whether the text report goes to standard output: unless JSON does."""
        return self.json != "-"


class OutputFile(click.ParamType[str]):
    """A file to write; ``-`` is none, as standard output belongs to the report."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            self.fail("this cannot go to standard output: name a file, or ./- for one of that name", param, ctx)
        return value


LOG_OPTIONS = (
    click.argument("log", metavar="LOG"),
    click.option("--form", metavar="NAME", help="Form of the log, where it is not recognised by itself."),
    click.option("--columns", metavar="A,B,...", help="Names of the columns of an sacct log that has no header."),
    click.option("--cluster", metavar="FILE", help="Nodes and budgets (YAML). Default: inferred from the log."),
    click.option("--node-events", metavar="FILE", help="Hardware trouble (CSV): nodes that degrade or go down."),
    click.option("--account-by", type=click.Choice(ACCOUNTS_BY), help="Which column of the log is the account."),
    click.option("--unit", type=click.Choice(UNITS), help="What is shared out. Default: GPUs where the log has them."),
    click.option("--contract", metavar="FILE", help="Minimum runtimes and checkpoints for a log without (YAML)."),
    click.option("--overlay", metavar="4x7d", help="Four copies of the log over each other, each shifted by 7 days."),
    click.option("--from", "begin", metavar="WHEN", help="Leave out what came before: a date, or 3d from the start."),
    click.option("--to", "end", metavar="WHEN", help="Leave out what came later: a date, or 10d from the start."),
    click.option("--scale", metavar="X", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
                 help="Arrivals: 0.5 keeps every second, 2 doubles each."),
    click.option("--timezone", metavar="ZONE", help="Of times without one, such as Europe/Berlin. Default: UTC."),
)  # fmt: skip

OUTPUT_OPTIONS = (
    click.option("--json", metavar="FILE", help="The report as JSON; - for standard output, in place of the text."),
    click.option(
        "--html",
        metavar="FILE",
        type=OutputFile(),
        help="The report as one page with pictures, which needs nothing else.",
    ),
)

SETTING_OPTION = click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True,
    help="Change a setting of the policy, such as window=14d; repeat for more. See `mirab policies`.",
)  # fmt: skip

JOBS_OPTION = click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Replays at a time. Default: one for each core."
)

QUIET_OPTION = click.option("--quiet", "-q", is_flag=True, help="No progress bar, although this is a terminal.")


def log_options(command: F) -> F:
    """The log and how to read it, handed on as `choice`, a `LogChoice`."""
    return _gathered(command, LOG_OPTIONS, "choice", LogChoice, LogChoice.typed)


def log_named(command: F) -> F:
    """The same where another file is the argument: the log is named by ``--log``."""
    named = click.option("--log", metavar="LOG", required=True, help="The job log to try it on.")
    return _gathered(command, (named, *LOG_OPTIONS[1:]), "choice", LogChoice, LogChoice.typed)


def output_options(command: F) -> F:
    """Where results go, handed on as `output`, an `OutputChoice`."""
    return _gathered(command, OUTPUT_OPTIONS, "output", OutputChoice, OutputChoice)


def _gathered(
    command: F, options: tuple[Callable[[Any], Any], ...], name: str, kind: type, make: Callable[..., object]
) -> F:
    names = [field.name for field in fields(kind)]

    @wraps(command)
    def gathering(**given: Any) -> Any:
        return command(**{name: make(**{key: given.pop(key) for key in names})}, **given)

    wrapped: Any = gathering
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
