"""A job as somebody asks for it, and the bounds of what anybody may hand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from mirab.service.desk.errors import DeskError, invalid

USUAL_MINIMUM = "15m"
"""Of who declares none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may hold. Sizes are bytes of UTF-8.

    Attributes:
        script, argument, environment: the text of a script; all arguments together; all variables together.
        spec: all that the tasks of one array keep together.
        word, path: names and labels; names of files.
        array, dependencies: tasks of one array; jobs that one may depend on.
        launches: so many launches that fail in a row, and the job is held.
        ids: jobs that one command may name.
    """

    script: int = 1 << 20
    argument: int = 1 << 20
    environment: int = 1 << 20
    spec: int = 64 << 20
    word: int = 256
    path: int = 4_096
    array: int = 1_000
    dependencies: int = 256
    launches: int = 3
    ids: int = 10_000


@dataclass(frozen=True, slots=True)
class SubmitForm:
    """What is asked for, as text where people write text. Fields as in the REST schema of the same meaning."""

    account: str = ""
    name: str = ""
    script: str = ""
    argv: Sequence[str] = ()
    cwd: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: int = 0
    memory_mib_per_node: int = 0
    gpu_types: Sequence[str] = ()
    time_limit: str | None = None
    min_runtime: str = USUAL_MINIMUM
    signal: str = "TERM"
    grace: str = "10s"
    output: str = ""
    error: str = ""
    append: bool = False
    checkpoint: str = "0"
    checkpoint_file: str = ""
    restart: str = "0"
    resume: bool = True
    verify_resume: str = ""
    priority: int = 1
    deadline: str | datetime | None = None
    dependency: str = ""
    array: str = ""
    hold: bool = False
    label: str = ""
    interactive: bool = False
    idle_timeout: str = "0"
    progress: str = "0"

    @classmethod
    def of(cls, request: Any) -> SubmitForm:
        """The form of anything with the same attributes, such as the schema of the REST API."""
        if isinstance(request, cls):
            return request
        return cls(**{each.name: getattr(request, each.name) for each in fields(cls) if hasattr(request, each.name)})


WORDS = ("account", "name", "label", "signal")
TEXTS = ("cwd", "output", "error", "checkpoint_file", "verify_resume", "dependency", "array")
HIDDEN = frozenset("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Line ends and marks that turn the direction of writing."""


def check_form(form: SubmitForm, limits: Limits) -> None:
    """Refuse text that no program or screen should be handed, and more of it than anybody means.

    Raises:
        DeskError: which field, what is wrong with it, and how much is allowed.
    """
    for name in WORDS:
        check_word(name, getattr(form, name), limits.word)
    for gpu_type in form.gpu_types:
        check_word("GPU type", gpu_type, limits.word)
    for name in TEXTS:
        check_text(name, getattr(form, name), limits.path)
    check_text("script", form.script, limits.script)
    _check_arguments(form.argv, limits)
    _check_environment(form.environment, limits)
    if not form.script and not (form.argv and form.argv[0]) and not form.interactive:
        raise invalid("there is nothing to run: give a script, or a program and its arguments")
    if not form.cwd.startswith("/"):
        raise invalid(f"cwd is {form.cwd[:80]!r}: give the absolute path of a folder")


def check_text(name: str, text: str, most: int) -> int:
    """Its size in bytes."""
    if "\0" in text:
        raise invalid(f"{name} holds a NUL character, which no program can be given: remove it")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise invalid(f"{name} is not valid text (a lone surrogate): send UTF-8") from None
    if size > most:
        raise _too_large(name, size, most)
    return size


def check_word(name: str, text: str, most: int) -> None:
    """A name: one line that shows as what it is."""
    check_text(name, text, most)
    if any(ord(char) < 32 or 127 <= ord(char) < 160 or char in HIDDEN for char in text):
        raise invalid(f"{name} holds a line end or another character that does not show: use one line of plain text")


def _check_arguments(argv: Sequence[str], limits: Limits) -> None:
    size = sum(check_text(f"argument {number}", text, limits.argument) for number, text in enumerate(argv))
    if size > limits.argument:
        raise _too_large("the arguments together", size, limits.argument)


def _check_environment(environment: Mapping[str, str], limits: Limits) -> None:
    size = 0
    for name, value in environment.items():
        if not name or "=" in name:
            raise invalid(f"{name[:80]!r} is not the name of an environment variable: it is empty or holds a '='")
        size += check_text("the name of a variable", name, limits.environment)
        size += check_text(f"environment variable {name[:80]}", value, limits.environment)
    if size > limits.environment:
        raise _too_large("the environment", size, limits.environment)


def _too_large(name: str, size: int, most: int) -> DeskError:
    return invalid(
        f"{name} has {_bytes(size)}, and {_bytes(most)} are allowed: put large things into files and name those",
        size=size,
        most=most,
    )


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size:,} bytes"
