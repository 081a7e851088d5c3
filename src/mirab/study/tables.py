"""Small tables for people: plain text that fits a terminal or a mail, or drawn by rich on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from mirab.study.formats import printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
_GAP = "  "
_NARROWEST = 12
"""Columns that text keeps in any case; where that leaves too little room the gaps get narrower."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under column names.

    The first column is text and gives way when room is short; the rest are numbers. A row whose other cells are empty
    is a heading. `wordy`: the last column is text too, and is folded.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    wordy: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a table or none, and sentences below it."""

    title: str
    table: Table | None = None
    notes: Sequence[str] = ()


def plain(sections: Iterable[Section], width: int = WIDTH) -> str:
    """The sections as plain text of at most `width` columns."""
    return printable("\n\n".join("\n".join(_section_lines(section, width)) for section in sections) + "\n")


def _section_lines(section: Section, width: int) -> Iterator[str]:
    yield from textwrap.wrap(section.title, width)
    if section.table is not None:
        yield from _table_lines(section.table, width)
    for note in section.notes:
        yield from textwrap.wrap(note, width, initial_indent=_GAP, subsequent_indent=_GAP, break_on_hyphens=False)


def _table_lines(table: Table, width: int) -> Iterator[str]:
    for _, line in _rows_of_lines(table, width):
        yield line


def _rows_of_lines(table: Table, width: int) -> Iterator[tuple[bool, str]]:
    """Whether it is a heading, or the names of the columns, and the line. Where room is short no number is cut."""
    if not table.rows:
        return
    last = len(table.columns) - 1
    numbers = range(1, last + (not table.wordy))
    widths = {place: max(columns_of(row[place]) for row in (table.columns, *table.rows)) for place in numbers}
    longest = max(columns_of(row[0]) for row in (table.columns, *table.rows) if any(row[1:]) or not row[0])
    enough = _NARROWEST if table.wordy else min(longest, _NARROWEST * 2)
    gap = _GAP if width - sum(widths.values()) - len(_GAP) * (last + 1) >= enough else " "
    left = width - sum(widths.values()) - len(gap) * last - len(_GAP)
    first = min(longest, left - _NARROWEST * 3 if table.wordy else max(left, _NARROWEST))
    for number, row in enumerate((table.columns, *table.rows)):
        if row[0] and not any(row[1:]):
            yield True, _GAP + fitted(row[0], max(width - len(_GAP), first))
            continue
        line = _GAP + padded(fitted(row[0], first), first)
        for place in numbers:
            line += gap + padded(row[place], widths[place], right=True)
        for part in _folded(line + _GAP, row[last], width) if table.wordy else [line.rstrip()]:
            yield not number, part


def _folded(line: str, text: str, width: int) -> Iterator[str]:
    start = columns_of(line)
    parts = textwrap.wrap(text, max(width - start, _NARROWEST), break_on_hyphens=False) or [""]
    yield (line + parts[0]).rstrip()
    for part in parts[1:]:
        yield " " * start + part


def columns_of(text: str) -> int:
    """Columns of a terminal that the text takes: wide characters take two, combining ones none."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def padded(text: str, width: int, right: bool = False) -> str:
    space = " " * (width - columns_of(text))
    return space + text if right else text + space


def fitted(text: str, width: int) -> str:
    """The text, or its beginning and its end around an ellipsis where it is too long."""
    if columns_of(text) <= width:
        return text
    head = _taken(text, (width - 1) // 2)
    return f"{head}…{_taken(text[::-1], width - 1 - columns_of(head))[::-1]}"


def _taken(text: str, width: int) -> str:
    taken = ""
    for char in text:
        if columns_of(taken + char) > width:
            break
        taken += char
    return taken


def draw(sections: Iterable[Section], console: Console) -> None:
    """The sections on a terminal, by rich; a table that is wider than the terminal stays whole, for that to wrap."""
    from rich.padding import Padding
    from rich.text import Text

    for section in sections:
        console.print(Text(printable(section.title), style="bold"))
        if section.table is not None:
            for heading, line in _rows_of_lines(section.table, console.width):
                text = Text(printable(line), style="bold" if heading else "")
                console.print(text, no_wrap=True, overflow="ignore", crop=False)
        for note in section.notes:
            console.print(Padding(Text(printable(note), style="dim"), (0, 0, 0, 2)))
        console.print()
