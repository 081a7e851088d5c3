"""Exit codes and the sentences of errors: one table from types of exceptions to both."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import click

from mirab.cli.missing import told as missing


class Exit(IntEnum):
    """What the shell is told."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    GATE_NOT_MET = 6
    TIMED_OUT = 7
    UNREACHABLE = 8
    INTERRUPTED = 130
    READER_GONE = 141


class UnusableError(Exception):
    """The input was read and cannot be used; the message says where, why and what to do."""


class NotFoundError(Exception):
    """What was asked for is not there; the message says what is."""


class ConflictError(Exception):
    """Doing it would destroy or contradict something; the message says what and how to go on."""


class GateNotMetError(Exception):
    """A measure is worse than the gate asks for."""


class InvalidError(Exception):
    """What was asked for makes no sense, to this command or to the server; the message says why."""


class DeniedError(Exception):
    """The one who asks may not; the message says which right it takes."""


class TimedOutError(Exception):
    """The time that was allowed for it is over; the message says what is known."""


class UnreachableError(Exception):
    """No server answers; the message says where it was looked for."""


class ReaderGoneError(Exception):
    """Whoever read standard output has closed it."""


def _own(error: BaseException) -> str:
    """The error's own words, on one line and with one mark at their end, whoever wrote them."""
    words = " ".join(str(error).split()).removesuffix(".")
    return words if words.endswith(("?", "!")) else f"{words}."


def _nothing(_: BaseException) -> str:
    return ""


def _usage(error: BaseException) -> str:
    assert isinstance(error, click.ClickException)
    context = getattr(error, "ctx", None)
    if isinstance(error, _NO_COMMAND):
        return _which(context)
    hint = f" See '{context.command_path} --help'." if context is not None else ""
    message = " ".join(error.format_message().split()).rstrip(".")  # click writes choices on lines of their own
    message = message.replace("is not a valid integer range", "is not a whole number")
    return f"{message}{'' if message.endswith(('?', '?)')) else '.'}{hint}"


_NO_COMMAND: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""From click 8.2 on; before, a group without a command showed its help and was content."""


def _which(context: click.Context | None) -> str:
    """A group was named without one of its commands."""
    assert context is not None
    assert isinstance(context.command, click.Group)
    name = context.command_path
    return (
        f"{name} needs one of its commands: {', '.join(context.command.list_commands(context))}. See '{name} --help'."
    )


_OS_ADVICE = {
    errno.ENOENT: "does not exist: check the path",
    errno.ENOTDIR: "cannot be reached: a part of the path is a file, not a folder",
    errno.EISDIR: "is a folder: name a file",
    errno.EACCES: "may not be opened by you: ask its owner for the right, or choose another file",
    errno.EPERM: "may not be changed by you: ask its owner for the right, or choose another file",
    errno.EROFS: "is on a read-only file system: choose another place",
    errno.EEXIST: "exists already: remove it or choose another name",
    errno.ENOSPC: "could not be written, the disk is full: free some space or choose another place",
    errno.EFBIG: "could not be written, it is as large as files may be here: raise the limit (ulimit -f)",
    errno.EDQUOT: "could not be written, your quota is used up: free some space or choose another place",
    errno.ETIMEDOUT: "did not answer in time: check the address, and that it runs",
    errno.ECONNREFUSED: "does not answer: check the address, and that it runs",
    errno.ENAMETOOLONG: "has a name that is too long: choose a shorter one",
}


def _os(error: BaseException) -> str:
    assert isinstance(error, OSError)
    name = os.fspath(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else _nameless(error)
    advice = _OS_ADVICE.get(error.errno or 0, f"could not be used: {error.strerror or error}")
    return f"{name if isinstance(name, str) else os.fsdecode(name)} {advice}."


def _nameless(error: OSError) -> str:
    """What an error without a name is about: files that are written name themselves, standard output does not."""
    if error.errno == errno.ENOENT:
        return "the folder you are in"  # the one thing that the system misses without a name
    return "standard output" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "a file"


def _memory(_: BaseException) -> str:
    return "not enough memory: replay a part of the log (--from, --to), or use a machine with more."


def _cut_short(error: BaseException) -> str:
    """Python takes a compiled file that a full disk cut short for a whole one, and says so each time."""
    package = Path(__file__).parents[1]
    return (
        f"a file ended too soon ({_own(error).rstrip('.')}). If the disk was full when mirab was first used, delete "
        f"the folders __pycache__ under {package}."
    )


def _import(error: BaseException) -> str:
    assert isinstance(error, ImportError)
    found = missing(error)
    return _unexpected(error) if found is None else f"{found}."


def _unexpected(error: BaseException) -> str:
    kind, text = type(error).__name__, " ".join(str(error).split()) or "no message"
    return (
        f"a fault in mirab itself ({kind}: {text}). Run the same command with MIRAB_TRACEBACK=1 in the environment "
        "to see where, and report it with the log's first lines."
    )


TABLE: tuple[tuple[type[BaseException], Exit, Callable[[BaseException], str]], ...] = (
    (ReaderGoneError, Exit.READER_GONE, _nothing),
    (BrokenPipeError, Exit.READER_GONE, _nothing),
    (KeyboardInterrupt, Exit.INTERRUPTED, _nothing),
    (click.Abort, Exit.INTERRUPTED, _nothing),
    (click.ClickException, Exit.USAGE, _usage),
    (NotFoundError, Exit.NOT_FOUND, _own),
    (ConflictError, Exit.CONFLICT, _own),
    (GateNotMetError, Exit.GATE_NOT_MET, _own),
    (InvalidError, Exit.USAGE, _own),
    (DeniedError, Exit.DENIED, _own),
    (TimedOutError, Exit.TIMED_OUT, _own),
    (UnreachableError, Exit.UNREACHABLE, _own),
    (UnusableError, Exit.FAILED, _own),
    (FileNotFoundError, Exit.NOT_FOUND, _os),
    (IsADirectoryError, Exit.USAGE, _os),
    (PermissionError, Exit.DENIED, _os),
    (FileExistsError, Exit.CONFLICT, _os),
    (TimeoutError, Exit.TIMED_OUT, _os),
    (ConnectionError, Exit.UNREACHABLE, _os),
    (OSError, Exit.FAILED, _os),
    (MemoryError, Exit.FAILED, _memory),
    (EOFError, Exit.FAILED, _cut_short),
    (ImportError, Exit.FAILED, _import),
    (Exception, Exit.FAILED, _unexpected),
)
"""Looked through from the top: the first type that fits says the exit code and the sentence."""


def report(error: BaseException) -> Exit:
    """Say on standard error what went wrong, in one sentence, and return the exit code.

    With ``MIRAB_TRACEBACK`` set in the environment, the traceback comes first.
    """
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click takes any file that ends too soon for a terminal that was closed
    for kind, code, sentence in TABLE:
        if isinstance(error, kind):
            _tell(error, sentence(error), code)
            return code
    raise error


def _tell(error: BaseException, sentence: str, code: Exit) -> None:
    if os.environ.get("MIRAB_TRACEBACK") and code not in (Exit.READER_GONE, Exit.INTERRUPTED):
        traceback.print_exception(error)
    if sentence:
        print(f"mirab: {sentence}", file=sys.stderr)
