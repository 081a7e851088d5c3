"""Node names folded as Slurm writes them, ``n[000-003],n007``, and unfolded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mirab.cli.exits import InvalidError

_NUMBERED = re.compile(r"(.*?)(\d+)")


def folded(names: Sequence[str]) -> str:
    """The names in their order, neighbours of one stem and one width as ranges."""
    groups: list[tuple[str, int, list[tuple[int, int]]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups.append((name, 0, []))
            continue
        stem, width, number = match[1], len(match[2]), int(match[2])
        if groups and groups[-1][:2] == (stem, width):
            _add(groups[-1][2], number)
        else:
            groups.append((stem, width, [(number, number)]))
    return ",".join(_group(*group) for group in groups)


def _add(ranges: list[tuple[int, int]], number: int) -> None:
    first, last = ranges[-1]
    if number == last + 1:
        ranges[-1] = (first, number)
    else:
        ranges.append((number, number))


def _group(stem: str, width: int, ranges: Sequence[tuple[int, int]]) -> str:
    if not ranges:
        return stem
    parts = [f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}" for first, last in ranges]
    return stem + (parts[0] if len(parts) == 1 and "-" not in parts[0] else f"[{','.join(parts)}]")


def unfolded(words: Sequence[str]) -> list[str]:
    """The names in node lists as typed.

    Raises:
        InvalidError: one is no node list.
    """
    from mirab.model.nodelists import expand

    try:
        return [name for word in words for name in expand(word)]
    except ValueError as error:
        raise InvalidError(f"{error}: write n3, or n[0-3,7].") from error
