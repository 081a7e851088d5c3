"""The whole content of a state as one comparable value, references by number, so that any change shows."""

from __future__ import annotations

from enum import Enum
from typing import Any

MEMORIES = frozenset({"_at", "_seen", "_head"})
"""What meters remember of the last question only to answer the next one faster."""


def snapshot(thing: object) -> list[Any]:
    """Every object reachable from `thing`, in the order met: its type and its content."""
    numbers: dict[int, int] = {}
    content: list[Any] = []
    kept: list[object] = []

    def number_of(part: object) -> object:
        if part is None or isinstance(part, (int, float, str, bool, Enum, type)) or callable(part):
            return part
        known = numbers.get(id(part))
        if known is None:
            known = numbers[id(part)] = len(numbers)
            kept.append(part)
            content.append(None)
            waiting.append((known, part))
        return ("object", known)

    waiting: list[tuple[int, object]] = []
    number_of(thing)
    while waiting:
        place, part = waiting.pop()
        content[place] = (type(part).__name__, [number_of(each) for each in _parts(part)])
    return content


def _parts(part: object) -> list[object]:
    if isinstance(part, dict):
        return [each for pair in part.items() for each in pair]
    if isinstance(part, (list, tuple, set, frozenset)):
        return list(part)
    named: dict[str, object] = dict(getattr(part, "__dict__", {}))
    for cls in type(part).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if hasattr(part, name):
                named[name] = getattr(part, name)
    return [each for name, value in sorted(named.items()) if name not in MEMORIES for each in (name, value)]
