"""Which accounts are mirab's: one small file, read by the service, by `job_submit.lua` and by people.

A line is Slurm's name of an account; ``*`` stands for all; what begins with ``#`` is a remark. Without the file nothing
is governed, so that taking it away gives everything back to Slurm.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

ALL = "*"
HEAD = (
    "# Slurm accounts that mirab decides about, one a line; * = all. Written by `mirab slurm govern` and `ungovern`.\n"
)


def read_governed(path: Path) -> tuple[str, ...]:
    """The accounts; nothing if there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return ()
    lines = (line.strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def write_governed(path: Path, accounts: Iterable[str]) -> None:
    """Replace the file at once, so that nobody reads half of it. Slurm's controller has to be able to read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.write_text(HEAD + "".join(f"{account}\n" for account in accounts), encoding="utf-8")
    draft.chmod(0o644)
    os.replace(draft, path)


class Governed:
    """The file as it is now: read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._accounts: frozenset[str] = frozenset()

    def __contains__(self, account: object) -> bool:
        self._refresh()
        return account in self._accounts or ALL in self._accounts

    def _refresh(self) -> None:
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
        except OSError:
            stamp = None
        if stamp != self._stamp or stamp is None:
            self._accounts = frozenset(read_governed(self.path)) if stamp is not None else frozenset()
            self._stamp = stamp
