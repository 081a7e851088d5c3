"""Lists of the store that come in pages, read to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

PAGE = 1_000
"""Rows of a page, where all of them are wanted."""


def every(page: Callable[[str | None], tuple[Iterable[T], str | None]]) -> Iterator[T]:
    """All rows, in the order of the list.

    Args:
        page: rows from a cursor on (None = from the begin), and the cursor of the next page (None = there is none).
    """
    cursor: str | None = None
    while True:
        rows, cursor = page(cursor)
        yield from rows
        if cursor is None:
            return
