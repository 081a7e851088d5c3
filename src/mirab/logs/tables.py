"""Tables of text: a header, and one row a line.

A row never goes over the end of its line: an unbalanced quote spoils one row, not the rest of the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from mirab.logs.errors import LogError
from mirab.logs.intake import FIELDS_MISSING, Intake
from mirab.logs.source import Source

SEPARATORS = ",|;\t"
REPEATED_HEADER = "a repeated header"
TOO_MANY = "too many fields (a separator inside a field?)"


def split_fields(text: str, separator: str) -> list[str]:
    """The fields of one line; quotes are honoured where there are any."""
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator))
    except (csv.Error, StopIteration):
        return text.split(separator)


def header_fields(text: str) -> tuple[list[str], str]:
    """The names in a header line, in lower case, and their separator: the one that occurs most."""
    separator = max(SEPARATORS, key=text.count)
    return [name.strip().strip('"').lower() for name in split_fields(text, separator)], separator


@dataclass(frozen=True, slots=True)
class Table:
    """A table's header, and its rows.

    `column(name)` is an index into each row that `rows` gives; for a column that is absent it points to an empty text
    behind the last field, so that reading a row asks no questions. A name that nothing reads may stand there twice.

    Attributes:
        header_line: 0 = the file has none, and a person named the columns.
    """

    source: Source
    names: tuple[str, ...]
    separator: str
    header: str
    header_line: int

    @classmethod
    def open(cls, source: Source, row: str = "job") -> Table:
        """Read the header: the first line that is not blank.

        Raises:
            LogError: the file is empty.
        """
        for line, text in source.lines():
            if text.strip("\x00 \t"):
                names, separator = header_fields(text)
                return cls(source, tuple(names), separator, text, line)
        raise LogError("is empty", source.path, remedy=f"give a file with a header and at least one {row}")

    def require(self, *names: str) -> None:
        """Raises LogError if one of the columns is absent."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise LogError(
                f"has no column {', '.join(missing)}", self.source.path, self.header_line, "check the header or --form"
            )

    def column(self, *names: str) -> int:
        """Index of the first of the names that is there, else of the empty text.

        Raises:
            LogError: two columns have that name, and which one is meant cannot be known.
        """
        for name in names:
            if name and name in self.names:
                if self.names.count(name) > 1:
                    raise self._twice(name)
                return self.names.index(name)
        return len(self.names)

    def _twice(self, name: str) -> LogError:
        places = [str(place) for place, each in enumerate(self.names, 1) if each == name]
        where = f"(columns {', '.join(places[:-1])} and {places[-1]})"
        remedy = "give each column that is not meant another name, such as unused"
        if not self.header_line:
            return LogError(f"--columns names {name!r} more than once {where}", remedy=remedy)
        what = f"has more than one column of the name {name!r} {where}"
        return LogError(what, self.source.path, self.header_line, remedy)

    def rows(self, intake: Intake, text_column: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """Line number and fields of every usable row, an empty text behind them; counts the others.

        `text_column`: free text that may hold the separator; surplus fields are joined into it. Else surplus fields are
        cut off if they are empty, as behind a separator at the end of each row.
        """
        width, separator, header = len(self.names), self.separator, self.header
        for line, text in self.source.lines():
            if line <= self.header_line or not text:
                continue
            if "\x00" in text:
                text = text.replace("\x00", "")
            fields = text.split(separator) if '"' not in text else split_fields(text, separator)
            if len(fields) != width:
                fields = _fitted(fields, width, text_column, separator)
            if not text.strip():
                continue
            intake.rows += 1
            if len(fields) != width:
                intake.drop(line, FIELDS_MISSING if len(fields) < width else TOO_MANY)
            elif text == header:
                intake.drop(line, REPEATED_HEADER)
            else:
                fields.append("")
                yield line, fields


def _fitted(fields: list[str], width: int, text_column: int | None, separator: str) -> list[str]:
    surplus = len(fields) - width
    if surplus > 0 and text_column is not None and text_column < width:
        end = text_column + surplus + 1
        return [*fields[:text_column], separator.join(fields[text_column:end]), *fields[end:]]
    return fields[:width] if surplus > 0 and not any(fields[width:]) else fields
