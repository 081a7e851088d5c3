"""Tables of text cells: aligned for a terminal, or Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(_aligned(row, widths)).rstrip() for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = (
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return [first, *rest]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head."""
    head, *rest = rows
    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rest)])
