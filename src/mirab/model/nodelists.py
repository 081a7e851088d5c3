"""Bracketed node lists: ``d09n04s[01-02],d13n[03,05,07-08]`` and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST_NODES = 200_000
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)


def expand(text: str) -> list[str]:
    """The names in a node list, in its order, zeros kept.

    Raises:
        ValueError: a bracket without its partner, a range that is none, or more than `MOST_NODES` names.
    """
    names: list[str] = []
    for part in split(text):
        names.extend(_expand_one(part, MOST_NODES - len(names)))
    return names


def split(text: str) -> Iterator[str]:
    """The parts between the commas that stand outside brackets, without empty ones."""
    depth, begin = 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            yield from filter(None, [text[begin:index].strip()])
            begin = index + 1
    yield from filter(None, [text[begin:].strip()])


def _expand_one(part: str, room: int) -> list[str]:
    names = [""]
    end = 0
    for bracket in _BRACKET.finditer(part):
        literal = part[end : bracket.start()]
        numbers = numbers_of(bracket[1], room // len(names))
        names = [name + literal + number for name in names for number in numbers]
        end = bracket.end()
    rest = part[end:]
    if "[" in rest or "]" in rest or room < len(names):
        raise ValueError(f"{part[:60]!r} is not a node list")
    return [name + rest for name in names]


def numbers_of(text: str, room: int) -> list[str]:
    """The numbers of ``03,05,07-08,0-10:2``, zero-padded as written.

    Raises:
        ValueError: not such a list, or more than `room` numbers.
    """
    numbers: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"{item[:30]!r} is not a number or range")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if high < low or step < 1 or len(numbers) + (high - low) // step >= room:
            raise ValueError(f"{item[:30]!r} is not a usable range")
        width = len(match[1])
        numbers.extend(f"{number:0{width}d}" for number in range(low, high + 1, step))
    return numbers


def compress(names: Iterable[str]) -> str:
    """The shortest list of runs in the given order: ``n[000-127],gpu7``. ``expand`` gives the names back."""
    parts: list[tuple[str, int, int, int]] = []
    plain = re.compile(r"(.*?)(\d{1,9})", re.ASCII)
    for name in names:
        match = plain.fullmatch(name)
        stem, digits = (match[1], match[2]) if match else (name, "")
        number, width = (int(digits), len(digits)) if digits else (-1, 0)
        if parts and number >= 0:
            last_stem, last_width, low, high = parts[-1]
            if (last_stem, last_width, high + 1) == (stem, width, number):
                parts[-1] = (stem, width, low, number)
                continue
        parts.append((stem, width, number, number))
    return ",".join(_run(*part) for part in parts)


def _run(stem: str, width: int, low: int, high: int) -> str:
    if width == 0:
        return stem
    if low == high:
        return f"{stem}{low:0{width}d}"
    return f"{stem}[{low:0{width}d}-{high:0{width}d}]"
