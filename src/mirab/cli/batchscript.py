"""What a batch script asks for: its `#SBATCH` and `#MIRAB` lines, by Slurm's rules. Pure: text in, options out.

The first line names the interpreter. Lines of options count up to the first line that is neither empty nor a comment;
later ones have no effect, which is said. An option that is not known is ignored with a warning in an `#SBATCH` line,
since Slurm has many; in a `#MIRAB` line it is an error that names the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from mirab.cli.sbatch import Option, find_option, ignored, known_names

MARKS = ("#SBATCH", "#MIRAB")


class ScriptError(ValueError):
    """The script cannot be submitted as it is; the message says which line, and what to do."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One option of a script. `value` is "" for one that takes none."""

    option: Option
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class BatchScript:
    """A script as read: its options in order, and what a person should be told about its lines."""

    text: str
    asked: tuple[Asked, ...]
    warnings: tuple[str, ...]


def read_script(text: str) -> BatchScript:
    """The options of a script.

    Raises:
        ScriptError: it has no ``#!`` line, Windows' line ends or NULs, or a line of options makes no sense.
    """
    _check_text(text)
    asked: list[Asked] = []
    warnings: list[str] = []
    for mark, number, rest in _marked_lines(text, warnings.append):
        try:
            asked += _options(mark, number, split_words(rest), warnings.append)
        except ValueError as error:
            raise ScriptError(f"line {number}: {error}") from error
    return BatchScript(text, tuple(asked), tuple(warnings))


def _check_text(text: str) -> None:
    first = text.partition("\n")[0]
    if not text.strip():
        raise ScriptError("it is empty: write the commands of the job into it")
    if text.startswith("\ufeff"):
        raise ScriptError("it begins with a byte order mark, which no shell understands: save it as UTF-8 without one")
    if not first.startswith("#!"):
        raise ScriptError("its first line must name the interpreter: #!/bin/bash. To run a program, put -- before it")
    if "\r\n" in text or first.endswith("\r"):
        raise ScriptError("its lines end as on Windows, which no shell understands: convert it with dos2unix")
    if "\0" in text:
        raise ScriptError("it holds a NUL, so it is no text. To run a program, put -- before it")


def _marked_lines(text: str, warn: Callable[[str], None]) -> Iterator[tuple[str, int, str]]:
    """Mark, number and rest of each line of options before the first command; the first line after it is warned of."""
    commands = False
    for number, line in enumerate(text.splitlines(), 1):
        mark = next((mark for mark in MARKS if line.startswith(mark) and line[len(mark) :][:1] in ("", " ", "\t")), "")
        if mark and not commands:
            yield mark, number, line[len(mark) :]
        elif mark:
            warn(f"line {number}: {mark} after the first command has no effect: move it up")
            return
        elif line.strip() and not line.lstrip().startswith("#"):
            commands = True


def split_words(line: str) -> list[str]:
    """The words of a line of options: blanks part them unless quoted or escaped, ``#`` before a word ends the line.

    Raises:
        ValueError: a quote without its partner.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line)
    for char in characters:
        if quote:
            word, quote = (word, "") if char == quote else ((word or "") + char, quote)
        elif char in "'\"":
            word, quote = word or "", char
        elif char == "\\":
            word = (word or "") + next(characters, "")
        elif char == "#" and word is None:
            break
        elif not char.isspace():
            word = (word or "") + char
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise ValueError(f"a {quote} has no partner")
    return [*words, word] if word is not None else words


def _options(mark: str, line: int, words: Sequence[str], warn: Callable[[str], None]) -> list[Asked]:
    found: list[Asked] = []
    rest = list(words)
    while rest:
        name, equals, value = _name(rest.pop(0))
        option = find_option(name)
        if option is None:
            _unknown(mark, line, name, warn)
            while not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        found.append(Asked(option, _value(option, name, equals, value, rest), line))
    return found


def _name(word: str) -> tuple[str, bool, str]:
    """Option, whether a value is joined to it, and that: ``--time=1``, ``-t1``, ``-t 1``."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, bool(equals), value
    if word.startswith("-") and len(word) > 1:
        return word[:2], len(word) > 2, word[2:].removeprefix("=")
    raise ValueError(f"{word!r} is not an option: options begin with -")


def _value(option: Option, name: str, joined: bool, value: str, rest: list[str]) -> str:
    if not option.takes_value:
        if joined:
            raise ValueError(f"{name} takes no value, {value!r} was given")
        return ""
    if joined:
        return value
    if not rest or option.value_joined:
        if option.value_joined:
            return ""
        raise ValueError(f"{name} needs a value: {name} {option.metavar}")
    return rest.pop(0)


def _unknown(mark: str, line: int, name: str, warn: Callable[[str], None]) -> None:
    if word := ignored(name):
        warn(f"line {line}: {name} is ignored: {word}")
    elif mark == "#SBATCH":
        warn(f"line {line}: {name} is not known here and is ignored")
    else:
        close = get_close_matches(name, known_names(), n=1)
        hint = f"; did you mean {close[0]}?" if close else "; see mirab submit --help"
        raise ValueError(f"there is no option {name}{hint}")
