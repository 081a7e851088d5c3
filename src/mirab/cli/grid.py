"""Tables for terminals and pipes, without a library: aligned columns, shrunk to a terminal's width, whole in a pipe."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from mirab.study.formats import printable

GAP = 2
ELLIPSIS = "…"
USUAL_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, on which side its cells stand, and the least width it may shrink to (0 = never)."""

    head: str
    right: bool = False
    least: int = 0


def terminal_width() -> int:
    """Characters of a line of standard output; 0 = it is no terminal, so lines may have any length."""
    if not sys.stdout.isatty():
        return 0
    named = os.environ.get("COLUMNS", "")
    if named.isdigit() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_WIDTH
    except OSError:
        return USUAL_WIDTH


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 0, *, head: bool = True) -> str:
    """The rows below their heads, a line each; control characters in cells have no effect."""
    cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if head:
        cells.insert(0, [column.head for column in columns])
    widths = [max((columns_of(row[index]) for row in cells), default=0) for index in range(len(columns))]
    if width:
        _shrink(columns, widths, width)
    return "\n".join(_line(columns, widths, row) for row in cells)


def _shrink(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Take characters from the widest column that may give some, until the line fits or none may."""
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0:
        giving = [index for index, column in enumerate(columns) if 0 < column.least < widths[index]]
        if not giving:
            return
        widest = max(giving, key=lambda index: widths[index])
        widths[widest] -= 1
        over -= 1


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> str:
    parts = []
    for column, width, cell in zip(columns, widths, row, strict=True):
        parts.append(padded(cut(cell, width), width, right=column.right))
    return (" " * GAP).join(parts).rstrip()


def columns_of(text: str) -> int:
    """How many columns of a terminal it takes: two for each wide character, none for what stands on another."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Filled up with blanks to `width` columns, on its left where it stands right."""
    blanks = " " * (width - columns_of(text))
    return blanks + text if right else text + blanks


def cut(text: str, width: int) -> str:
    """At most `width` columns; that something is missing is seen."""
    return text if columns_of(text) <= width else fitting(text, max(width - 1, 0)) + ELLIPSIS


def fitting(text: str, width: int) -> str:
    """As much of its begin as fits into `width` columns."""
    if text.isascii():
        return text[:width]
    taken = 0
    for place, char in enumerate(text):
        taken += _columns(char)
        if taken > width:
            return text[:place]
    return text


def paragraph(text: str, lead: str = "") -> list[str]:
    """The lines of a sentence behind a lead, as wide as the terminal or `USUAL_WIDTH`; later ones are indented."""
    import textwrap

    return textwrap.wrap(
        printable(text), terminal_width() or USUAL_WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
    )  # fmt: skip


def wrapped(text: str, width: int, indent: str) -> str:
    """A sentence below a row, on as many lines as it needs."""
    import textwrap

    if not width:
        return indent + printable(text)
    return textwrap.fill(printable(text), width, initial_indent=indent, subsequent_indent=indent)
