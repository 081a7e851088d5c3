"""The bytes of a log as lines of text: gzip, BOM, CRLF, bad bytes and cut-off ends are dealt with here, and counted."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mirab.logs.errors import LogError
from mirab.logs.yamltree import unreadable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
HEAD = 256 * 1024
"""Bytes that detection looks at."""
TAR_HEAD = 512
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
_NOT_TEXT = {
    b"\xfd7zXZ": "xz-compressed: unpack it with xz -d",
    b"BZh": "bzip2-compressed: unpack it with bzip2 -d",
    b"\x28\xb5\x2f\xfd": "zstd-compressed: unpack it with zstd -d",
    b"PK\x03\x04": "a zip archive (or a spreadsheet): unpack it, or export it as CSV",
    b"PAR1": "a Parquet file: export it as CSV",
    b"SQLite format 3": "a database: export the table as CSV",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


@dataclass(slots=True)
class Source:
    """One log, readable as often as one likes.

    Attributes:
        bad_bytes: count and first numbers of the lines that were not UTF-8 in the latest reading.
        cut_short: what the latest reading found to be missing at the end of the file; empty = nothing.
    """

    path: Path
    bad_bytes: int = 0
    bad_lines: list[int] = field(default_factory=list)
    cut_short: str = ""

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        name = self.path.name
        for ending in (".gz", ".tar", ".tgz", ".csv", ".swf", ".log", ".txt", ".json"):
            name = name.removesuffix(ending)
        return (name or self.path.name).encode("utf-8", "replace").decode()

    def head(self) -> bytes:
        """The first bytes, unpacked.

        Raises:
            LogError: the file cannot be read, is empty, or is of a kind that is not text.
        """
        self._check_rereadable()
        head = self._first(HEAD)
        if not head.strip(b"\x00 \t\r\n" + BOM):
            if self.cut_short:
                raise LogError("is cut short before its first byte", self.path, remedy="fetch it again")
            raise LogError("is empty", self.path, remedy="give a log with at least one job")
        for magic, kind in _NOT_TEXT.items():
            if head.startswith(magic):
                raise LogError(f"is {kind}", self.path)
        return head.removeprefix(BOM)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number (from 1) and text of every line, without its end. Bytes that are not UTF-8 become U+FFFD."""
        self.bad_bytes, self.bad_lines, self.cut_short = 0, [], ""
        with self._open() as stream:
            yield from self._decoded(stream)

    def members(self) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
        """Name and lines of each file of a tar archive or folder, in order of name; of one file, itself."""
        self.bad_bytes, self.bad_lines, self.cut_short = 0, [], ""
        if self.path.is_dir():
            for source in self._of_folder():
                if is_tar(source._first(TAR_HEAD)):
                    yield from source._tarred()
                else:
                    yield source.path.name, source.lines()
                self._add_damage(source)
        elif is_tar(self.head()):
            yield from self._tarred()
        else:
            yield self.path.name, self.lines()

    def _of_folder(self) -> list[Source]:
        """Its files.

        Raises:
            LogError: there is no file at all.
        """
        files = sorted(path for path in self.path.iterdir() if path.is_file())
        if not files:
            raise LogError(
                "is a folder without files", self.path, remedy="name a log, or the folder that holds the files"
            )
        return [Source(path) for path in files]

    def _add_damage(self, member: Source) -> None:
        self.bad_bytes += member.bad_bytes
        if member.cut_short and not self.cut_short:
            self.cut_short = f"{member.path.name}: {member.cut_short}"

    def text(self, largest: int) -> str:
        """The whole text of a file that has no lines (JSON).

        Raises:
            LogError: larger than `largest` bytes.
        """
        with self._open() as stream:
            try:
                raw = stream.read(largest + 1)
            except _BROKEN as error:
                raise LogError(f"is cut short ({error})", self.path, remedy="fetch it again") from error
        if len(raw) > largest:
            raise LogError(f"is larger than {largest // 2**20} MiB", self.path, remedy="split it")
        text = raw.decode("utf-8-sig", "replace")
        self.bad_bytes = text.count("\ufffd")
        return text

    def _tarred(self) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
        try:
            with tarfile.open(self.path, "r:*") as archive:
                for member in archive:
                    stream = archive.extractfile(member) if member.isfile() else None
                    if stream is not None:
                        yield member.name, self._decoded(stream)
        except (tarfile.TarError, OSError, *_BROKEN) as error:
            self.cut_short = f"the archive is broken ({error})"

    def _decoded(self, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
        number = 0
        try:
            for raw in stream:
                number += 1
                if number == 1:
                    raw = raw.removeprefix(BOM)
                try:
                    text = raw.decode()
                except UnicodeDecodeError:
                    text = raw.decode("utf-8", "replace")
                    self.bad_bytes += 1
                    if len(self.bad_lines) < 5:
                        self.bad_lines.append(number)
                yield number, text.rstrip("\r\n")
        except (*_BROKEN, OSError) as error:
            self.cut_short = f"the file is cut short after line {number} ({error})"

    def _first(self, size: int) -> bytes:
        """The first bytes, or as many as a broken file still gives."""
        head = b""
        with self._open() as stream:
            try:
                while len(head) < size and (piece := stream.read1(size)):  # type: ignore[attr-defined]
                    head += piece
            except (*_BROKEN, OSError) as error:
                self.cut_short = f"the file is cut short ({error})"
        return head

    def _check_rereadable(self) -> None:
        """Raises LogError for a pipe: the first look would take from it what the reading needs."""
        if self.path.is_fifo() or self.path.is_socket():
            raise LogError(
                "is a pipe, and a log is read more than once", self.path, remedy="save it as a file and name that"
            )

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            raw = self.path.open("rb")
        except (OSError, ValueError) as error:
            raise unreadable(self.path, error) from error
        with raw:
            if raw.peek(2)[:2] == GZIP:
                with gzip.GzipFile(fileobj=raw) as packed:
                    yield io.BufferedReader(_Unpacked(packed), 1 << 16)
            else:
                yield raw


class _Unpacked(io.RawIOBase):
    """What a gzip file holds, piece by piece, so that a broken one still gives all that stands before the break."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        super().__init__()
        self._packed = packed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        piece = self._packed.read1(len(view))
        view[: len(piece)] = piece
        return len(piece)


def is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"
