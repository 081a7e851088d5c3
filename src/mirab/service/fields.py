"""The kinds of values in requests and answers, with their limits and the sentences about what breaks them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from mirab.model.units import DAY, parse_duration, parse_share

LONGEST_DURATION = 3_660 * DAY
"""Ten years: longer is a typing error."""
SCRIPT_MAX = 1 << 20
"""Characters of a batch script; the desk bounds arguments and environment as a whole."""

NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"
"""One line that shows as what it is: no control characters, no line ends, nothing that reverses the text."""
DURATION_PATTERN = r"^(0|([0-9]{1,9}(\.[0-9]{1,6})?(ms|min|s|m|h|d|w)){1,6})$"
NO_NUL_PATTERN = r"^[^\x00]*$"
JOB_PATTERN = r"^[0-9]{1,18}(_[0-9]{1,9})?$"

_ONE_LINE = "write one line of plain text, without control characters"
_NO_NUL = "holds a NUL character, which no program can be given: remove it"


def written(pattern: str, sentence: str) -> Any:
    """Text of a form; the document shows the pattern, people get the sentence."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if form.fullmatch(text) is None:
            raise ValueError(sentence)
        return text

    return AfterValidator(check)


def text(most: int, pattern: str, *, least: int = 0, example: str | None = None) -> Any:
    examples = [example] if example is not None else None
    return Field(min_length=least or None, max_length=most, examples=examples, json_schema_extra={"pattern": pattern})


def whole(least: int, most: int) -> Any:
    """A whole number, and nothing that only looks like one."""
    return Field(strict=True, ge=least, le=most)


def _bounded(text: str) -> str:
    if parse_duration(text) > LONGEST_DURATION:
        raise ValueError("more than ten years: check the unit")
    return text


def _of_a_whole(text: str) -> str:
    parse_share(text)
    return text


DurationText = Annotated[
    str,
    text(64, DURATION_PATTERN, example="15m"),
    written(DURATION_PATTERN, "is not a duration: write a number with a unit, such as 90s, 15m, 8h or 7d"),
    AfterValidator(_bounded),
]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-03-01T12:00:00Z"])]
Name = Annotated[str, text(256, NAME_PATTERN), written(NAME_PATTERN, _ONE_LINE)]
AccountText = Annotated[str, text(512, NAME_PATTERN, example="llm/pretrain"), written(NAME_PATTERN, _ONE_LINE)]
LineText = Annotated[str, text(8_192, NAME_PATTERN), written(NAME_PATTERN, _ONE_LINE)]
Sentence = Annotated[
    str, text(2_000, NAME_PATTERN, example="gives way to the release"), written(NAME_PATTERN, _ONE_LINE)
]
ScriptText = Annotated[str, text(SCRIPT_MAX, NO_NUL_PATTERN), written(NO_NUL_PATTERN, _NO_NUL)]
PathText = Annotated[str, text(4_096, NO_NUL_PATTERN), written(NO_NUL_PATTERN, _NO_NUL)]
Argument = Annotated[str, text(128_000, NO_NUL_PATTERN), written(NO_NUL_PATTERN, _NO_NUL)]
VariableName = Annotated[
    str,
    text(1_024, r"^[^\x00=]*$", least=1),
    written(r"^[^\x00=]*$", "is not the name of a variable: it holds a '=' or a NUL character"),
]
_SIGNAL = r"^((SIG)?[A-Z][A-Z0-9]{1,9}([+-][0-9]{1,2})?|[1-9][0-9]?)$"
SignalText = Annotated[
    str, text(16, _SIGNAL, example="USR1"), written(_SIGNAL, "is not a signal: write USR1, SIGTERM or a number")
]
_SHARE = r"^[0-9]{1,3}(\.[0-9]{1,7})?%$"
ShareText = Annotated[
    str,
    text(32, _SHARE, example="12.5%"),
    written(_SHARE, "is not a share: write a percentage such as 12.5%"),
    AfterValidator(_of_a_whole),
]
_USER = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
UserText = Annotated[
    str,
    text(64, _USER, least=1, example="ada"),
    written(_USER, "is not a user: letters, digits and _ . @ -, not beginning with . @ or -"),
]
