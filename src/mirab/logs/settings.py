"""Policy fields by their own names, as text: in a policy file, and in ``--set name=value``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from mirab.logs.errors import LogError
from mirab.logs.fields import span
from mirab.logs.yamltree import Entry, nearest, read_yaml
from mirab.model.policy import BACKFILLS, DRAINS, ORDERS, POLICIES, PREEMPTIONS, Policy, with_settings

WORDS: dict[str, tuple[str, ...]] = {
    "order": ORDERS,
    "preemption": PREEMPTIONS,
    "backfill": BACKFILLS,
    "drains": DRAINS,
    "unknown_accounts": ("refuse", "zero"),
}
PER_MILLE = ("margin", "headroom")
NEVER_ZERO = ("window", "half_life", "review", "start_timeout", "holds_max", "drains_max", "preemptions_max")
"""0 would switch something off in silence (a window of 0: fairness itself)."""

TYPES: dict[str, str] = {field.name: str(field.type) for field in fields(Policy)}


def parse_setting(name: str, text: str) -> Any:
    """The value of a policy field: ``window`` ``7d``, ``margin`` ``10%``, ``half_life`` ``none``, ``holds_max`` ``4``.

    Raises:
        ValueError: there is no such field (the nearest is named), or the text is no value for it.
    """
    if name not in TYPES:
        raise ValueError(f"a policy has no {name!r}: did you mean {nearest(name, TYPES)}?")
    value = _parser(name)(text.strip())
    if not value and name in NEVER_ZERO and value is not None:
        raise ValueError(f"{name} cannot be 0")
    return value


def _parser(name: str) -> Callable[[str], Any]:
    kind = TYPES[name]
    if name in WORDS:
        return lambda text: _word(name, text)
    if name in PER_MILLE:
        return per_mille
    if kind == "Duration | None":
        return lambda text: None if text.lower() == "none" else span(text)
    if kind == "Duration":
        return span
    if kind == "int":
        return _whole
    if kind == "bool":
        return _flag
    return _name


def _word(name: str, text: str) -> str:
    if text not in WORDS[name]:
        raise ValueError(f"{name} is one of {', '.join(WORDS[name])}, not {text!r}")
    return text


def per_mille(text: str) -> int:
    """Parts per thousand of ``10%`` or ``2.5%``.

    Raises:
        ValueError: no per cent sign, more than one decimal, or more than 1,000 %.
    """
    match = re.fullmatch(r"(\d{1,3})(?:\.(\d))?\s*%", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a percentage: write 10% or 2.5%")
    return int(match[1]) * 10 + int(match[2] or 0)


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _flag(text: str) -> bool:
    words = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in words:
        raise ValueError(f"{text!r} is neither yes nor no")
    return words[text.lower()]


def _name(text: str) -> str:
    if not text:
        raise ValueError("the name is empty")
    return text


def apply_settings(policy: Policy, settings: Iterable[str]) -> Policy:
    """The policy with ``name=value`` settings, later ones winning.

    Raises:
        LogError: a setting without ``=``, of an unknown name, or with an unusable value.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise LogError(f"{setting!r} is not a setting", remedy="write name=value, such as window=1d")
        try:
            changes[name.strip()] = parse_setting(name.strip(), text)
        except ValueError as error:
            raise LogError(f"{setting!r}: {error}") from error
    return with_settings(policy, **changes)


def policy_from(entry: Entry) -> Policy:
    """The policy of a `policy` section: the name of a stock one, or fields over the one called `base` or `name`."""
    if isinstance(entry.value, str):
        return entry.parsed("policy", _stock)
    found = entry.fields("policy", ("base", *TYPES))
    base = POLICIES["budget"]
    if "base" in found:
        base = found["base"].parsed("base", _stock)
    elif "name" in found and found["name"].text("name") in POLICIES:
        base = POLICIES[found["name"].text("name")]
    changes = {
        name: value.parsed(name, lambda text, name=name: parse_setting(name, text))  # type: ignore[misc]
        for name, value in found.items()
        if name != "base"
    }
    return with_settings(base, **changes)


def _stock(text: str) -> Policy:
    if text not in POLICIES:
        raise ValueError(f"no stock policy {text!r}: did you mean {nearest(text, POLICIES)}?")
    return POLICIES[text]


def read_policy(path: Path) -> Policy:
    """The policy of a file: its `policy` section, or the fields themselves at the top.

    Raises:
        LogError: with the file and line.
    """
    root = read_yaml(path)
    top = root.table("the file")
    if "policy" in top:
        return policy_from(top["policy"])
    if not top:
        raise root.error("the policy file is empty", "write fields such as window: 7d")
    return policy_from(root)
