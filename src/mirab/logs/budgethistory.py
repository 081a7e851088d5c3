"""The history of a file of budgets, kept beside it: one changeset a line, in JSON, only ever appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirab.logs.errors import LogError
from mirab.logs.yamltree import unreadable
from mirab.model.changesets import Changeset
from mirab.model.codec import decode, encode

SUFFIX = ".history.jsonl"


def history_path(path: Path) -> Path:
    """``budgets.history.jsonl`` beside ``budgets.yaml``."""
    return path.with_name(path.stem + SUFFIX)


def read_changesets(path: Path) -> tuple[Changeset, ...]:
    """The changesets of a history; none where there is no file. A last line that was cut short is passed over.

    Raises:
        LogError: the file cannot be read, or a line is no changeset, or a version is missing.
    """
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise unreadable(path, error) from error
    whole = lines[:-1]
    found = tuple(_changeset(line, path, number) for number, line in enumerate(whole, 1))
    for number, changeset in enumerate(found, 1):
        if changeset.version != number:
            raise LogError(
                f"holds version {changeset.version} where {number} is due", path, number, "restore it from a copy"
            )
    return found


def _changeset(line: bytes, path: Path, number: int) -> Changeset:
    try:
        made = decode(json.loads(line))
    except (ValueError, TypeError, RecursionError, AttributeError) as error:
        raise LogError("holds a line that is no changeset", path, number, "restore it from a copy") from error
    if not isinstance(made, Changeset):
        raise LogError("holds a line that is no changeset", path, number, "restore it from a copy")
    return made


def append_changesets(path: Path, changesets: tuple[Changeset, ...]) -> None:
    """Add them at the end, on disk before this returns. What a crash left of a last line is cut away first.

    Raises:
        OSError: it cannot be written.
    """
    lines = "".join(json.dumps(encode(each), separators=(",", ":")) + "\n" for each in changesets)
    with _named(path), path.open("ab+") as file:
        file.truncate(_whole_length(path))
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def _whole_length(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """The error of a write that could not be done names the file, which the system leaves out."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else changes the budgets of this file meanwhile; waits for its turn.

    Raises:
        OSError: the folder may not be written.
    """
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace_text(path: Path, text: str) -> None:
    """Write the file anew, whole or not at all, with the rights that it has.

    Raises:
        OSError: it cannot be written.
    """
    final = Path(os.path.realpath(path))
    partial = final.with_name(f".part-{os.getpid()}-{final.name}")
    try:
        with _named(path), partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if final.exists():
            partial.chmod(final.stat().st_mode & 0o7777)
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)
