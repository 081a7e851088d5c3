"""Policies in files: the `policy` section of a cluster file, and policy files of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mirab.logs.errors import LogError
from mirab.logs.yamltree import Entry, advice, read_yaml
from mirab.model.policy import POLICIES, Policy, with_settings
from mirab.model.settings import parse_assignment, parse_setting, settings, with_texts


def apply_settings(policy: Policy, assignments: Iterable[str]) -> Policy:
    """The policy with settings written ``name=value``, later ones winning.

    Raises:
        LogError: an assignment without ``=``, of an unknown name, or with an unusable value.
    """
    try:
        return with_texts(policy, dict(parse_assignment(assignment) for assignment in assignments))
    except ValueError as error:
        raise LogError(str(error)) from error


def policy_from(entry: Entry) -> Policy:
    """The policy of a `policy` section: the name of a stock one, or settings over the one called `base` or `name`."""
    if isinstance(entry.value, str):
        return entry.parsed("policy", _stock)
    found = entry.fields("policy", ("base", "name", *settings()))
    name = found["name"].text("name") if "name" in found else ""
    base = found["base"].parsed("base", _stock) if "base" in found else POLICIES.get(name, POLICIES["budget"])
    changes: dict[str, Any] = {}
    for key, value in found.items():
        if key in settings():
            changes[key] = value.parsed(key, lambda text, key=key: _setting(key, text))  # type: ignore[misc]
    return with_settings(replace(base, name=name or base.name), **changes)


def _setting(name: str, text: str) -> str | int | None:
    if len(text) > 100:
        raise ValueError("the value is too long")
    return parse_setting(name, text)


def _stock(text: str) -> Policy:
    if text not in POLICIES:
        raise ValueError(f"no stock policy {text!r}: {advice(text, list(POLICIES))}")
    return POLICIES[text]


def read_policy(path: Path) -> Policy:
    """The policy of a file: its `policy` section, or the settings themselves at the top.

    Raises:
        LogError: with the file and line.
    """
    root = read_yaml(path)
    top = root.table("the file")
    if "policy" in top:
        return policy_from(top["policy"])
    if not top:
        raise root.error("the policy file is empty", "write settings such as window: 7d")
    return policy_from(root)
