"""What `submit`, `run` and `session` share: sbatch's options as flags, and the request that comes of all of it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from mirab.cli.batchscript import BatchScript, ScriptError, read_script
from mirab.cli.client import Client, new_key
from mirab.cli.exits import InvalidError, NotFoundError
from mirab.cli.output import say
from mirab.cli.request import Surroundings, Wish, WishError, gathered, job_request
from mirab.cli.sbatch import IGNORED, IGNORED_SHORT, NO_VALUE, OPTIONS, Option, ignored

F = TypeVar("F", bound=Callable[..., Any])
Flags = dict[str, Wish]

SCRIPT_MAX = 1 << 20
PROGRAM = "to run a program, put -- before it"
WRAP = "#!/bin/sh\n# Made by mirab submit --wrap.\n\n{}\n"


class Dashed(click.Command):
    """A command whose options end at its first argument, and which knows whether ``--`` stood before that."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [_without_value(word) for word in args]
        rest = super().parse_args(ctx, list(words))
        taken = len(words) - len(ctx.params.get("words") or ())
        ctx.params["words"] = tuple(args[taken:])
        ctx.meta["mirab.dashed"] = taken > 0 and words[taken - 1] == "--"
        return rest


def _without_value(word: str) -> str:
    """``--nice`` for ``--nice=3``: options of sbatch that change nothing, so that it does not matter how much."""
    name, joined, _ = word.partition("=")
    return name if joined and name in NO_VALUE else word


def submit_options(command: F) -> F:
    """sbatch's and mirab's options, those that were given handed on as `flags`."""
    names = list(dict.fromkeys(option.field for option in OPTIONS))

    @wraps(command)
    def gathering(**given: Any) -> Any:
        values = {name: given.pop(name) for name in names}
        return command(flags=_flags(values), **given)

    wrapped: Any = gathering
    for name in reversed(IGNORED):
        wrapped = _ignored_flag(name)(wrapped)
    for option in reversed(OPTIONS):
        wrapped = _flag(option)(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _flag(option: Option) -> Callable[[F], F]:
    if option.takes_value:
        return click.option(*option.names, option.field, metavar=option.metavar, help=option.help)
    return click.option(*option.names, option.field, flag_value=option.sets, default=None, help=option.help)


def _ignored_flag(name: str) -> Callable[[F], F]:
    short = [letter for letter, long in IGNORED_SHORT.items() if long == name]

    def tell(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            say(f"mirab: {name} is ignored: {ignored(name)}.")

    return click.option(
        name, *short, is_flag=name in NO_VALUE, expose_value=False, hidden=True, callback=tell, help=ignored(name)
    )


def _flags(values: Mapping[str, Any]) -> Flags:
    name_of = {option.field: option.names[0] for option in reversed(OPTIONS)}
    return {field: Wish(value, name_of[field]) for field, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Work:
    """What is to run: a script with its arguments, or a program with its."""

    name: str
    script: BatchScript | None = None
    argv: tuple[str, ...] = ()


def work_of(words: Sequence[str], *, dashed: bool, wrap: str | None) -> Work:
    """The script or program that was named.

    Raises:
        click.UsageError: neither, or both.
        InvalidError, NotFoundError, OSError: the script cannot be used.
    """
    if wrap is not None:
        if words:
            raise click.UsageError("--wrap already says what to run: leave out the script")
        return Work("wrap", read_script(WRAP.format(wrap)))
    if dashed and words:
        return command_work(words)
    if words:
        path = _script_path(words[0])
        return Work(os.path.basename(words[0]), _script(path, _text_of(path)), tuple(words[1:]))
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("name a script, or a command behind --, or --wrap 'COMMAND'")
    return Work("sbatch", _script("standard input", sys.stdin.buffer.read(SCRIPT_MAX + 1)))


def command_work(words: Sequence[str]) -> Work:
    return Work(os.path.basename(words[0]) or words[0], None, tuple(words))


def _script_path(name: str) -> str:
    """As sbatch looks for it: a path is taken as it is, a bare name is looked for here and then along ``PATH``."""
    if "/" in name or os.path.exists(name):
        return name
    from shutil import which

    if found := which(name):
        return found
    raise NotFoundError(f"there is no script {name} here or in PATH; {PROGRAM}.")


def _text_of(path: str) -> bytes:
    with open(path, "rb") as file:
        if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
            raise IsADirectoryError(21, "Is a directory", path)
        return file.read(SCRIPT_MAX + 1)


def _script(path: str, data: bytes) -> BatchScript:
    """The script with its options; what is odd about them is said.

    Raises:
        InvalidError: it is no script, or one of its options makes no sense.
    """
    if len(data) > SCRIPT_MAX:
        raise InvalidError(
            f"{path} is larger than {SCRIPT_MAX >> 20} MiB, so it is no script; for a program, put -- before it."
        )
    try:
        script = read_script(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path} is not a text in UTF-8, so it is no script; {PROGRAM}.") from error
    except ScriptError as error:
        raise InvalidError(f"{path}: {error}") from error
    for warning in script.warnings:
        say(f"mirab: {path}, {warning}.")
    return script


def request_of(client: Client, work: Work, flags: Flags, **fixed: Any) -> dict[str, Any]:
    """The body of POST /jobs.

    Raises:
        InvalidError: an option makes no sense.
    """
    environment = dict(os.environ)
    around = Surroundings(os.getcwd(), environment, lambda: _largest_node(client), _deadline)
    try:
        body = job_request(gathered(work.script, environment, flags), around)
    except WishError as error:
        told = str(error)
        raise InvalidError(f"{work.name}: {told}" if told.startswith("line ") else told) from error
    body.setdefault("name", work.name)
    body["argv"] = list(work.argv)
    if work.script is not None:
        body["script"] = work.script.text
    return {**body, **fixed}


def _largest_node(client: Client) -> int:
    return max((node["gpus"] for node in client.get("/nodes")["nodes"]), default=1)


def _deadline(text: str) -> str:
    from mirab.cli.deadlines import deadline

    return deadline(text)


def send(client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
    """Submit, once only although it may be sent several times. What the service changed is said."""
    reply: dict[str, Any] = client.post("/jobs", body, key=new_key())
    for note in reply["notes"]:
        say(f"mirab: {note}.")
    return reply
