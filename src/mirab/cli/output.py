"""Standard output is data, standard error is talk; files appear whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from mirab.cli.exits import ConflictError, DeniedError, NotFoundError, UnusableError

STDOUT = "-"
MEMORY_DEVICES = 1
"""Linux' major number of /dev/null, zero, full, random and urandom."""


def emit(text: str) -> None:
    """Data, to standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def say(text: str) -> None:
    """Talk, to standard error."""
    print(text, file=sys.stderr)


def to_json(data: Any) -> str:
    """One JSON document with keys in the order given; numbers that are not finite are an error, not ``NaN``."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(data: Any, target: str) -> None:
    """To the file, or to standard output where the target is ``-``."""
    if target == STDOUT:
        emit(to_json(data))
    else:
        write_text(to_json(data), Path(target))


def write_text(text: str, path: Path) -> None:
    """The whole file or nothing, and a word about where it is."""
    with writing(path) as file:
        file.write(text)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to, in the same folder; it takes the name asked for when the block ends well, and a line says so.

    A pipe or a device is given as it is.

    Raises:
        OSError: with the file's name, when the disk is full, the folder is missing or may not be written to.
    """
    if path.exists() and not path.is_file():
        with _named(path):
            yield path
        return
    final = Path(os.path.realpath(path))
    replaced = final.exists()
    partial = final.with_name(f".part-{os.getpid()}-{final.name}")
    try:
        with _named(path, partial):
            yield partial
            partial.replace(final)
    finally:
        with suppress(OSError):
            partial.unlink()
    say(f"{'Replaced' if replaced else 'Wrote'} {path}")


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """`whole`, opened as a text file."""
    with whole(path) as target, target.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def _named(path: Path, partial: Path | None = None) -> Iterator[None]:
    """The same error, naming the file that the person asked for; errors of other files pass as they are."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None or error.filename not in (None, os.fspath(path), os.fspath(partial or path)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Before long work: each output can be made, and none would overwrite an input or another output.

    Raises:
        ConflictError: an output is also an input, or is named twice.
        NotFoundError: its folder does not exist.
        DeniedError: its folder may not be written into.
        OSError: it is a folder, or a device that may not be written.
    """
    read = {os.path.realpath(name): name for name in inputs if name}
    written: set[str] = set()
    for name in outputs:
        if name is None or name == STDOUT:
            continue
        real = os.path.realpath(name)
        if real in read:
            raise ConflictError(f"{name} is an input of this command and would be overwritten: choose another output.")
        if real in written:
            raise ConflictError(f"{name} is named for two outputs: give each its own file.")
        written.add(real)
        _check_output(Path(name))


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(21, "Is a directory", os.fspath(path))
    parent = Path(os.path.realpath(path)).parent
    if parent.exists() and not parent.is_dir():
        raise NotADirectoryError(20, "Not a directory", os.fspath(path))
    if not parent.is_dir():
        raise NotFoundError(
            f"{path} cannot be written: the folder {parent} does not exist. Make it first: mkdir -p {parent}"
        )
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", os.fspath(path))
    elif not os.access(parent, os.W_OK):
        raise DeniedError(f"{path} cannot be written: you may not write into the folder {parent}: choose another place")


def check_input(name: str, *, folder: bool = False) -> Path:
    """The path of an input file that is there; or of a folder, where one can be a log.

    Raises:
        OSError: it is not, or is a folder, or may not be read.
        UnusableError: it is a device that never ends.
    """
    path = Path(name)
    if not name or not path.exists():
        raise FileNotFoundError(2, "No such file", name or "'' (an empty name)")
    if path.is_dir() and not folder:
        raise IsADirectoryError(21, "Is a directory", name)
    if not os.access(path, os.R_OK):
        raise PermissionError(13, "Permission denied", name)
    if _never_ends(path):
        raise UnusableError(f"{name} is a device without an end: name a file")
    return path


def json_object(name: str, content: bytes, remedy: str) -> dict[str, Any]:
    """The JSON object that a file holds.

    Args:
        remedy: what to give in its place.

    Raises:
        UnusableError: it holds none.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"{name} is not JSON: {remedy}.") from error
    if not isinstance(found, dict):
        raise UnusableError(f"{name} is JSON of another kind: {remedy}.")
    return found


def _never_ends(path: Path) -> bool:
    """Whether it is one of the kernel's own devices, such as /dev/zero; /dev/null is an empty file to any reader."""
    found = path.stat()
    memory = stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == MEMORY_DEVICES
    return memory and found.st_rdev != Path(os.devnull).stat().st_rdev


@contextmanager
def reading_report(*names: str | None) -> Iterator[None]:
    """What a report lacks, or has in another form, is a matter of the file that it was read from, and not a fault here.

    Raises:
        UnusableError: it names the file, and what in it is wrong; a live report (None) is not one. Where nothing in
            the files is wrong, the fault is mirab's, and passes as it is.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        for name in names:
            wrong = None if name is None else _wrong_in(name)
            if wrong is not None:
                what = "is not a report as this version of mirab writes it"
                raise UnusableError(f"{name} {what}: {wrong}; make it anew.") from error
        raise


def _wrong_in(name: str) -> str | None:
    from mirab.study.reportform import wrong_in_reports

    return wrong_in_reports(json.loads(Path(name).read_bytes()))
