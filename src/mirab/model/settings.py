"""The settings of a policy as people write them: ``window=7d``, ``margin=10%``, ``half_life=none``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import TypeAlias

from mirab.model.policy import BACKFILLS, DRAINS, MODES, ORDERS, PREEMPTIONS, Policy, with_settings
from mirab.model.units import DAY, format_duration, parse_duration

Value: TypeAlias = str | int | None

CHOICES: dict[str, tuple[str, ...]] = {
    "order": ORDERS,
    "preemption": PREEMPTIONS,
    "backfill": BACKFILLS,
    "drains": DRAINS,
    "mode": MODES,
    "unknown_accounts": ("refuse", "zero"),
}
MOST_PER_CENT = {"margin": 1_000, "headroom": 100}
"""Settings held in parts per thousand and written in per cent, with the most that makes sense."""
POSITIVE = ("window", "half_life", "review", "start_timeout")
"""Durations that cannot be 0."""
LONGEST = 36_525 * DAY
"""A hundred years: a longer duration is a slip of the finger."""
MOST = 999_999_999
"""Of what is counted."""
NONE = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of `Policy` that can be set.

    Attributes:
        kind: ``choice``, ``duration``, ``percentage`` or ``count``.
        optional: ``none`` is a value.
        means: one sentence or two, from the docstring of `Policy`.
    """

    name: str
    kind: str
    optional: bool
    means: str

    @property
    def form(self) -> str:
        """What may stand behind the ``=``."""
        forms = {
            "choice": "|".join(CHOICES.get(self.name, ())),
            "duration": f"a duration {'above 0, at most' if self.name in POSITIVE else 'from 0 to'} {LONGEST // DAY}d "
            "(a hundred years), such as 90s, 15m, 8h or 7d",
            "percentage": f"a percentage from 0% to {MOST_PER_CENT.get(self.name, 100)}%, such as 10%",
            "count": f"a whole number from 0 to {MOST:,}",
        }
        return forms[self.kind] + (", or none" if self.optional else "")


@cache
def settings() -> dict[str, Setting]:
    """Every setting by name, in the order of the fields of `Policy`."""
    meanings = dict(_meanings())
    found = {}
    for field in fields(Policy):
        if field.name != "name":
            kind, optional = _kind(field.name, str(field.type))
            found[field.name] = Setting(field.name, kind, optional, meanings.get(field.name, ""))
    return found


def _kind(name: str, annotation: str) -> tuple[str, bool]:
    if name in CHOICES:
        return "choice", False
    if name in MOST_PER_CENT:
        return "percentage", False
    return ("duration" if annotation.startswith("Duration") else "count"), annotation.endswith("| None")


def _meanings() -> Iterator[tuple[str, str]]:
    """Name and sentence of each line under ``Attributes:`` in the docstring of `Policy`."""
    listed = inspect.cleandoc(Policy.__doc__ or "").partition("Attributes:\n")[2]
    for entry in re.split(r"\n(?=    \w)", listed):
        name, _, means = entry.strip().partition(": ")
        yield name, " ".join(means.split())


def parse_setting(name: str, text: str) -> Value:
    """The value of a setting from its text.

    Raises:
        ValueError: no such setting (the message names the nearest), or a value of another form.
    """
    setting = settings().get(name)
    if setting is None:
        close = get_close_matches(name, settings(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(settings())}"
        raise ValueError(f"a policy has no setting {name!r}: {hint}")
    try:
        return _parse(setting, text.strip())
    except ValueError:
        raise ValueError(f"{name} cannot be {text.strip()!r}: write {setting.form}") from None


def _parse(setting: Setting, text: str) -> Value:
    if setting.optional and text.lower() == NONE:
        return None
    if setting.kind == "choice":
        if text not in CHOICES[setting.name]:
            raise ValueError
        return text
    if setting.kind == "duration":
        return _parse_duration(setting.name, text)
    return _parse_per_mille(setting.name, text) if setting.kind == "percentage" else _parse_count(text)


def _parse_duration(name: str, text: str) -> int:
    span = parse_duration(text)
    if span > LONGEST or (not span and name in POSITIVE):
        raise ValueError
    return span


def _parse_per_mille(name: str, text: str) -> int:
    """Parts per thousand of ``10%``, ``2.5%`` or ``0``."""
    match = re.fullmatch(r"(\d{1,4})(?:\.(\d))?\s*%", text)
    if match is None:
        if text == "0":
            return 0
        raise ValueError
    value = int(match.group(1)) * 10 + int(match.group(2) or 0)
    if value > MOST_PER_CENT[name] * 10:
        raise ValueError
    return value


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MOST:
        raise ValueError
    return int(text)


def format_setting(policy: Policy, name: str) -> str:
    """The text that `parse_setting` reads back as the policy's value, where durations have at most two units."""
    value: Value = getattr(policy, name)
    setting = settings()[name]
    if value is None:
        return NONE
    if setting.kind == "duration":
        return format_duration(int(value))
    if setting.kind == "percentage":
        whole, tenth = divmod(int(value), 10)
        return f"{whole}.{tenth}%" if tenth else f"{whole}%"
    return str(value)


def parse_assignment(text: str) -> tuple[str, str]:
    """``name=value`` in two.

    Raises:
        ValueError: no name, or no ``=``.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is no setting: write name=value, such as window=7d")
    return name.strip().replace("-", "_"), value.strip()


def with_texts(policy: Policy, texts: dict[str, str]) -> Policy:
    """The policy with settings given as texts.

    Raises:
        ValueError: see `parse_setting`.
    """
    return with_settings(policy, **{name: parse_setting(name, text) for name, text in texts.items()})
