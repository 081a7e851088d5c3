"""Strict YAML: a tree of entries that remember their line and are text until somebody says what they mean.

No scalar is interpreted by YAML (``1:00:00`` stays that text, ``no`` too), keys may stand only once, and aliases are
refused, so that a small file cannot become a large one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mirab.logs.errors import LogError

LARGEST = 4 * 1024 * 1024
"""Bytes; more is not a file that a person has written."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of the file, and where it stands."""

    path: Path
    line: int
    value: Value

    def error(self, what: str, remedy: str = "") -> LogError:
        return LogError(what, self.path, self.line, remedy)

    def text(self, name: str) -> str:
        """The scalar's text.

        Raises:
            LogError: it is a mapping, a list, or empty.
        """
        if not isinstance(self.value, str):
            raise self.error(f"{name} holds {_kind(self.value)}", "write one value")
        if not self.value:
            raise self.error(f"{name} is empty", "give it a value or remove it")
        return self.value

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        """The scalar through `parse`, whose ValueError becomes a sentence with the place."""
        text = self.text(name)
        try:
            return parse(text)
        except LogError:
            raise
        except ValueError as error:
            raise self.error(f"{name}: {error}") from error

    def table(self, name: str) -> dict[str, Entry]:
        """The entries of a mapping by key, in their order."""
        if not isinstance(self.value, dict):
            raise self.error(f"{name} holds {_kind(self.value)}", "write keys and values below it")
        return self.value

    def fields(self, name: str, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Entry]:
        """The entries of a mapping with known keys.

        Raises:
            LogError: a key that is not known (the message names the nearest known one), or one that is missing.
        """
        found = self.table(name)
        names = list(known)
        for key, entry in found.items():
            if key not in names:
                raise entry.error(f"{name} has no key {key!r}", advice(key, names))
        for key in required:
            if key not in found:
                raise self.error(f"{name} has no {key!r}", "add it")
        return found

    def rows(self, name: str) -> list[Entry]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise self.error(f"{name} holds {_kind(self.value)}", "write a list, each item behind a dash")
        return self.value


Value: TypeAlias = "str | dict[str, Entry] | list[Entry]"


def advice(word: str, known: list[str]) -> str:
    """The known word that was probably meant, else all of them."""
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else f"known {'is' if len(known) == 1 else 'are'} {', '.join(known)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like it."""
    return difflib.get_close_matches(word, list(known), 1, 0.0)[0]


def read_yaml(path: Path) -> Entry:
    """The one document of a YAML file; an empty file is an empty mapping.

    Raises:
        LogError: the file cannot be read, is not YAML, is too large, repeats a key or uses an alias.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if len(raw) > LARGEST:
        raise LogError(f"is larger than {LARGEST // 2**20} MiB", path, remedy="give a YAML file written by people")
    return parse_yaml(raw, path)


def unreadable(path: Path, error: Exception) -> LogError:
    """The sentence for a file that the system would not give."""
    return LogError(f"cannot be read ({getattr(error, 'strerror', None) or error})", path, remedy="check the path")


def parse_yaml(raw: bytes, path: Path) -> Entry:
    """The same, of bytes already read."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LogError("is not UTF-8 text", path, line, "save it as UTF-8") from error
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except YAMLError as error:
        raise _not_yaml(path, error) from error
    except (RecursionError, ValueError, AttributeError, TypeError, LookupError, AssertionError) as error:
        raise _unreadable_yaml(path, error) from error  # what ruamel's parser makes of some broken files
    try:
        return Entry(path, 1, {}) if root is None else _entry(root, path, set())
    except RecursionError as error:
        raise _unreadable_yaml(path, error) from error


def _unreadable_yaml(path: Path, error: Exception) -> LogError:
    return LogError(f"is not readable as YAML ({type(error).__name__})", path, remedy="check its brackets")


def _not_yaml(path: Path, error: Exception) -> LogError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    line = mark.line + 1 if mark is not None else None
    remedy = "check indentation, colons and quotes there; between braces, n[0-9] needs quotes"
    return LogError(f"is not YAML ({problem})", path, line, remedy)


def _entry(node: Any, path: Path, seen: set[int]) -> Entry:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise LogError("repeats a part by an alias (*name)", path, line, "write it out")
    seen.add(id(node))
    if node.id == "scalar":
        empty = node.tag.endswith(":null") and not node.style
        return Entry(path, line, "" if empty and node.value in ("", "~", "null") else node.value)
    if node.id == "sequence":
        return Entry(path, line, [_entry(item, path, seen) for item in node.value])
    table: dict[str, Entry] = {}
    for key, value in node.value:
        name = key.value if key.id == "scalar" else ""
        if not isinstance(name, str) or not name:
            raise LogError("a key is empty or not a word", path, key.start_mark.line + 1, "write a name")
        if name in table:
            raise LogError(f"the key {name!r} stands twice", path, key.start_mark.line + 1, "keep one")
        entry = _entry(value, path, seen)
        table[name] = Entry(path, key.start_mark.line + 1, entry.value)
    return Entry(path, line, table)


def _kind(value: Value) -> str:
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    return f"the value {value!r}" if value else "nothing"
