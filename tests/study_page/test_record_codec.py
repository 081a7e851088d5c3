"""Facts and plans as JSON: nothing is lost on the way and back, and the form stays as it is."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirab.model import events, plans
from mirab.model.accounts import Budget, Budgets
from mirab.model.codec import decode, encode, recorded_types
from mirab.model.policy import POLICIES
from mirab.model.resources import Allocation, Pool, Shape
from mirab.model.workloads import Workload
from tests.examples import examples

TEXT = st.text(max_size=12)
BUDGETS = st.builds(
    Budget, name=st.just("a"), share=st.integers(0, 10**9), children=st.just((Budget("b", 5), Budget("c", 7)))
)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(int, st.one_of(st.integers(-9, 9), st.integers(0, 2**1024)))
st.register_type_strategy(Budget, BUDGETS)
st.register_type_strategy(
    Pool, st.builds(Pool, name=TEXT, nodes=st.lists(TEXT).map(tuple), gpus_per_node=st.integers(0, 99))
)
st.register_type_strategy(Budgets, st.builds(Budgets, roots=st.tuples(BUDGETS)))
RECORDED = [kind for kind in (*get_args(events.Event), plans.Plan) if isinstance(kind, type)]


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.__name__)
def test_there_and_back_is_the_same(kind: type) -> None:
    @settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(value=st.from_type(kind))
    def check(value: Any) -> None:
        written = json.dumps(encode(value), allow_nan=False)
        again = decode(json.loads(written))
        assert again == value
        assert repr(again) == repr(value)

    check()


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policies_too(name: str) -> None:
    assert decode(json.loads(json.dumps(encode(POLICIES[name])))) == POLICIES[name]


def test_the_form_is_the_documented_one() -> None:
    workload = Workload("j1", 5, "a/b", "eve", Shape(2, 8, min_runtime=900_000, gpu_types=("h100",)))  # type: ignore[arg-type]
    assert encode(events.WorkloadSubmitted(5, workload)) == {
        "type": "WorkloadSubmitted",
        "at": 5,
        "workload": {
            "type": "Workload",
            "id": "j1",
            "submitted_at": 5,
            "account": "a/b",
            "user": "eve",
            "shape": {"nodes": 2, "gpus_per_node": 8, "gpu_types": ["h100"], "min_runtime": 900_000},
        },
    }
    assert encode(Allocation(0, 1 << 60, 8)) == {"pool": 0, "mask": "0x1000000000000000", "slots_per_node": 8}
    assert encode(events.RunEnded(9, "j1.1", events.Outcome.NODE_FAIL, 3))["outcome"] == "NODE_FAIL"  # type: ignore[arg-type]
    assert encode(math.inf) == "inf"


WRITTEN_DEFAULTS: dict[str, dict[str, Any]] = {
    "Workload": {"label": "", "checkpoint": 0, "restart": 0, "resume": True, "priority": 1, "preemptible": True,
                 "deadline_at": None, "held": False},
    "Hold": {"claim": False, "reservation_id": None},
    "Plan": {"actions": (), "holds": (), "waiting": (), "wake_at": None},
    "Start": {"resumed": False},
    "RunStarted": {"checkpoints_vouched": False},
    "RunEnded": {"lost": None, "exit_code": None},
    "WorkloadCancelled": {"by": "user"},
}  # fmt: skip


def test_a_default_may_not_change_in_silence() -> None:
    """What is at its default is not written. If this fails, raise `FORMAT` in study/journalfile.py too."""
    for kind in recorded_types():
        defaults = {field.name: field.default for field in fields(kind)}
        assert WRITTEN_DEFAULTS.get(kind.__name__, {}).items() <= defaults.items()
    assert Shape._field_defaults == {
        "cpus_per_node": 0, "memory_mib_per_node": 0, "gpu_types": (), "min_runtime": 0, "time_limit": None,
        "grace": 10_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    "data, told",
    [
        ({"type": "RunEnded", "at": 5}, "RunEnded cannot be read"),
        ({"type": "RunEnded", "at": 5, "nod": 1}, "RunEnded has no field 'nod'"),
        ({"type": "Nonsense"}, "'Nonsense' is not a type"),
        ({"at": 5}, "None is not a type"),
        ([1, 2], "None is not a type"),
        ({"type": "RunEnded", "at": 5, "run_id": "a.1", "outcome": "EXPLODED"}, "EXPLODED"),
        ({"type": "WorkloadSubmitted", "at": 5, "workload": 3}, "is not a type"),
    ],
)
def test_what_is_no_record_is_refused_by_name(data: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decode(data)


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no JSON form"):
        encode({1, 2})
