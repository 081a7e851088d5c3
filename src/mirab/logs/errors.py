"""The one exception of this layer."""

from __future__ import annotations

from pathlib import Path


class LogError(ValueError):
    """A file that cannot be used at all: what is wrong, where (``file:line``), and what to do, in one sentence.

    Attributes:
        what: what is wrong, on one line whatever names the file has.
        path, line: where; the line counts from 1, None = the file as a whole.
        remedy: what to do about it; empty = nothing sensible can be said.
    """

    def __init__(self, what: str, path: Path | str | None = None, line: int | None = None, remedy: str = "") -> None:
        self.what = what = " ".join(what.split())
        self.path = path
        self.line = line
        self.remedy = remedy
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{what}{': ' + remedy if remedy else ''}")
