"""Whether a record of a replay is of its form: asked only where its story could not be told.

Who cannot read a file blames the file only where something in it is wrong; else the fault is mirab's own.
"""

from __future__ import annotations

import json
import types
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from mirab.model.codec import decode
from mirab.model.events import Event
from mirab.model.plans import Plan, Waiting
from mirab.study.journalfile import REASONS, Header, QueueBook, read_header, whole_lines

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)


def wrong_in_record(path: Path | str) -> str | None:
    """What in the file is not as `mirab sim --journal` writes it, as a sentence; None = nothing.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        if not _is(read_header(path), Header):
            return _damaged(path, 1)
    except _UNREADABLE as error:
        return str(error) if str(error).startswith(str(path)) else _damaged(path, 1)
    book = QueueBook(None)
    for number, line in enumerate(whole_lines(Path(path), after=1), 2):
        if not _is_sound(line, book):
            return _damaged(path, number)
    return None


def _damaged(path: Path | str, number: int) -> str:
    return f"{path}:{number}: this line of the record is damaged. Record it again with --journal"


def _is_sound(line: bytes, book: QueueBook) -> bool:
    try:
        if line.startswith(REASONS):
            return all(_is(decode({"type": "Waiting"} | reason), Waiting) for reason in book.read(line))
        told = json.loads(line)
        return all(_is(decode(fact), Event) for fact in told["facts"]) and _is(decode(told["plan"]), Plan)
    except _UNREADABLE:
        return False


def _is(value: object, hint: Any) -> bool:
    """Whether a value that was read is of its type, all the way down."""
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if origin is tuple:
        return isinstance(value, tuple) and _are(value, get_args(hint))
    if origin in (Union, types.UnionType):
        return any(_is(value, part) for part in get_args(hint))
    if not isinstance(hint, type):
        return True
    if hint in (int, float):
        return type(value) is int or (hint is float and type(value) is float)
    if not isinstance(value, hint):
        return False
    plain = hint in (str, bool, types.NoneType) or issubclass(hint, Enum)
    return plain or all(_is(getattr(value, name), held) for name, held in _hints(hint))


def _are(values: tuple[object, ...], parts: tuple[Any, ...]) -> bool:
    if parts[-1] is Ellipsis:
        return all(_is(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(_is(value, part) for value, part in zip(values, parts, strict=True))


@cache
def _hints(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind).items())
