"""Settings as people write them."""

from __future__ import annotations

import re

import pytest

from mirab.model.policy import POLICIES, Policy
from mirab.model.settings import (
    CHOICES,
    MOST_PER_CENT,
    Setting,
    format_setting,
    parse_assignment,
    parse_setting,
    settings,
    with_texts,
)
from mirab.model.units import DAY, HOUR


@pytest.mark.parametrize("policy", POLICIES.values(), ids=str)
def test_every_setting_of_every_stock_policy_reads_back(policy: Policy) -> None:
    texts = {name: format_setting(policy, name) for name in settings()}
    assert with_texts(Policy(name=policy.name), texts) == policy


def test_every_setting_says_what_it_means() -> None:
    assert [setting.name for setting in settings().values() if len(setting.means) < 15] == []


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("window", "14d", 14 * DAY),
        ("half_life", "none", None),
        ("surplus_minimum_cap", "2h", 2 * HOUR),
        ("cadence", "0", 0),
        ("margin", "2.5%", 25),
        ("margin", "0", 0),
        ("holds_max", "3", 3),
        ("backfill", "none", "none"),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert parse_setting(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("windw", "7d", "did you mean 'window'"),
        ("colour", "red", "there are order, preemption"),
        ("window", "7", "duration"),
        ("window", "0", "above 0"),
        ("window", "-7d", "duration"),
        ("window", "none", "duration"),
        ("margin", "0.1", "percentage"),
        ("margin", "1e3%", "percentage"),
        ("holds_max", "-1", "whole number"),
        ("holds_max", "1.5", "whole number"),
        ("backfill", "easy", "contract|limit|any|none"),
        ("unknown_accounts", "", "refuse|zero"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(name: str, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_setting(name, text)


def test_assignments() -> None:
    assert parse_assignment(" min-runtime-cap = 2h ") == ("min_runtime_cap", "2h")
    for text in ("window", "=7d", ""):
        with pytest.raises(ValueError, match="name=value"):
            parse_assignment(text)


OUT_OF_BOUNDS = {"choice": "neither", "duration": "36526d", "percentage": "1000.1%", "count": "1000000000"}
BOUNDS = {
    "choice": r"\w.*\|",
    "duration": r"a duration (above 0, at most|from 0 to) 36525d \(a hundred years\)",
    "percentage": r"a percentage from 0% to (100|1000)%",
    "count": r"a whole number from 0 to 999,999,999",
}


@pytest.mark.parametrize("setting", settings().values(), ids=lambda setting: setting.name)
def test_every_refusal_names_the_setting_what_was_given_and_the_bounds(setting: Setting) -> None:
    text = OUT_OF_BOUNDS[setting.kind]
    with pytest.raises(ValueError, match=f"^{setting.name} cannot be '{text}': write {BOUNDS[setting.kind]}"):
        parse_setting(setting.name, text)


@pytest.mark.parametrize("setting", settings().values(), ids=lambda setting: setting.name)
def test_what_is_said_to_be_the_most_is_accepted(setting: Setting) -> None:
    most = {"choice": CHOICES.get(setting.name, ("",))[-1], "duration": "36525d",
            "percentage": f"{MOST_PER_CENT.get(setting.name)}%", "count": "999999999"}  # fmt: skip
    parse_setting(setting.name, most[setting.kind])
