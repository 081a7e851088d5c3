"""Every typed reason has a sentence with its numbers."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from datetime import UTC
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from mirab.model import reasons
from mirab.model.units import DAY, HOUR, MINUTE, WorkloadId
from mirab.study.formats import Names
from mirab.study.words import advice, fact, sentence, tellable

ALL = [kind for kind in vars(reasons).values() if isinstance(kind, type) and is_dataclass(kind)]
AT = 2 * DAY + 4 * HOUR + 12 * MINUTE


def sample(kind: type, number: int = 7, absent: bool = False, step: int = 0) -> Any:
    """A reason with recognisable values, integers from `number` on by `step`; `absent`: None wherever allowed."""
    values: dict[str, Any] = {}
    for place, (name, hint) in enumerate(get_type_hints(kind).items()):
        optional = NoneType in get_args(hint)
        base = hint
        if optional:
            base = next(part for part in get_args(hint) if part is not NoneType)
        values[name] = None if absent and optional else _value(name, base, number + step * place)
    return kind(**values)


def _value(name: str, base: Any, number: int) -> Any:
    if name in ("until", "since", "next_at") and base is not str:
        return AT
    if name == "after":
        return 10 * MINUTE
    if get_origin(base) is tuple:
        return (f"the-{name}",)
    return {bool: False, float: 0.8765, int: number}.get(base, f"the-{name}")


def test_the_list_is_that_of_the_model() -> None:
    assert set(ALL) == set(get_args(reasons.Reason))
    assert tellable() == set(ALL)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("number", [0, 1, 7, 12345])
def test_each_reason_has_a_readable_sentence(kind: type, absent: bool, number: int) -> None:
    text = sentence(sample(kind, number, absent))
    assert not text.endswith(".")
    assert "None" not in text and "0.8765" not in text and "  " not in text
    assert not re.search(r"\b1 (nodes|runs|GPUs|holds|workloads)\b", text), text
    assert not re.search(r"\b(0|7|12,345) (node|run|GPU|hold|workload)\b(?!-)", text), text


@pytest.mark.parametrize("kind", ALL)
def test_no_number_of_a_reason_is_left_out(kind: type) -> None:
    reason = sample(kind, 2001, step=1)
    text = sentence(reason)
    for field in fields(kind):
        value = getattr(reason, field.name)
        for shown in value if isinstance(value, tuple) else (value,):
            if field.name not in ("lost", "after") and not isinstance(shown, bool):
                assert _as_written(shown) in text, f"{field.name} is missing in: {text}"


def _as_written(value: Any) -> str:
    if isinstance(value, float):
        return "0.88"
    if value == AT:
        return "day 3 04:12"
    return f"{value:,}" if isinstance(value, int) else str(value)


def test_the_blocker_of_the_brief() -> None:
    reason = reasons.NoFreeGpus(nodes=4, gpus_per_node=8, nodes_free=3, gpus_free=31, claimable=0, next_at=AT)
    assert sentence(reason) == (
        "needs 4 nodes with 8 free GPUs each; 3 are (31 GPUs free in all) and 0 more can be cleared before day 3 04:12"
    )


def test_a_log_with_a_calendar_is_told_in_dates() -> None:
    names = Names(origin=1_506_816_000_000, unit="cpu", zone=UTC)
    reason = reasons.NoFreeGpus(nodes=1, gpus_per_node=1, nodes_free=0, gpus_free=1, claimable=2, next_at=AT)
    assert sentence(reason, names) == (
        "needs 1 node with 1 free core; 0 are (1 core free in all) and 2 more can be cleared before 2017-10-03 04:12"
    )


def test_what_was_lost_is_told_in_hours_of_a_slot() -> None:
    reason = reasons.PreemptedFor("j9", "vision/eval", 0.71, 1.24, lost=36 * HOUR)  # type: ignore[arg-type]
    told = sentence(reason)
    assert "36.0 GPU-hours" in told and "1.24 against 0.71" in told and "j9 of vision/eval" in told
    assert "next to no work" in sentence(reasons.PreemptedFor("j9", "a", 0.71, 1.24, lost=0))  # type: ignore[arg-type]


def test_policies_with_other_rules_are_told_by_theirs() -> None:
    priority = Names(order="priority", preemption="priority")
    stopped = reasons.PreemptedFor("j9", "vision/eval", 0.71, 1.24, lost=0)  # type: ignore[arg-type]
    assert "its priority was lower" in sentence(stopped, priority) and "1.24" not in sentence(stopped, priority)
    turn = reasons.InOrder("vision", 1.24, owed=False)  # type: ignore[arg-type]
    assert "in the order of policy priority" in sentence(turn, priority)


def test_a_victim_of_the_same_account_is_told_as_such() -> None:
    stopped = reasons.PreemptedFor("j9", "vision/eval", 1.65, 1.65, lost=0)  # type: ignore[arg-type]
    assert "more than the other of the same account (which is at 1.65)" in sentence(stopped)


def test_a_right_that_came_with_a_hold_is_told_as_such() -> None:
    stopped = reasons.PreemptedFor("j9", "vision", 1.05, 1.0, lost=0, hold=True)  # type: ignore[arg-type]
    assert "when the nodes were held" in sentence(stopped) and "by now 1.00 against 1.05" in sentence(stopped)


def test_the_remedy_follows_the_fact() -> None:
    spent = reasons.ShareSpent(1.3, "vision", 0.6, 3)  # type: ignore[arg-type]
    assert sentence(spent) == f"{fact(spent)}. {advice(spent)}" and "a larger share" in advice(spent)
    assert advice(reasons.VictimsGone(2)) == ""


def test_a_guest_of_a_running_reservation_is_told_that_it_may_go_at_any_time() -> None:
    text = fact(reasons.OnHeldNodes(WorkloadId("reservation:demo"), 0))
    assert text.endswith("held for reservation:demo, who can take them back at any time")
