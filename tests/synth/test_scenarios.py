"""The four stock scenarios: each changes the normal week in the one way that its name says."""

from __future__ import annotations

import pytest

from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR
from mirab.sim.scenarios import BEGINS, SCENARIOS, scenario
from mirab.sim.synthetic import SynthOptions

OPTIONS = SynthOptions(nodes=32, days=7)


@pytest.fixture(scope="module")
def normal() -> Trace:
    return scenario("normal-week", OPTIONS)


def added(trace: Trace, normal: Trace) -> list[str]:
    """Ids that the scenario adds; everything else must be the normal week's, unchanged."""
    usual = {each.workload.id: each for each in normal.arrivals}
    for each in trace.arrivals:
        if each.workload.id in usual:
            assert each == usual[each.workload.id]
    ids = [each.workload.id for each in trace.arrivals]
    assert set(usual) <= set(ids)
    return [identity for identity in ids if identity not in usual]


def test_the_normal_week_is_the_synthetic_log(normal: Trace) -> None:
    assert normal.ends_at == 7 * DAY
    assert normal.name == "synthetic-1-normal-week"


def test_the_burst_is_two_small_jobs_a_gpu_of_one_team(normal: Trace) -> None:
    trace = scenario("small-burst", OPTIONS)
    burst = set(added(trace, normal))
    mine = [each for each in trace.arrivals if each.workload.id in burst]
    assert len(mine) == 2 * 32 * 8
    assert len({each.workload.account for each in mine}) == 1
    assert all(each.workload.shape.gpus == 1 for each in mine)
    assert all(BEGINS <= each.workload.submitted_at < BEGINS + 2 * HOUR for each in mine)


def test_the_large_training_takes_half_of_the_nodes(normal: Trace) -> None:
    trace = scenario("large-training", OPTIONS)
    assert added(trace, normal) == ["training"]
    training = next(each for each in trace.arrivals if each.workload.id == "training")
    assert training.workload.shape.gpus == 32 * 8 // 2
    assert training.workload.account == "language/pretrain"


def test_maintenance_drains_a_quarter_of_the_nodes(normal: Trace) -> None:
    trace = scenario("maintenance", OPTIONS)
    assert added(trace, normal) == []
    more = [each for each in trace.troubles if each not in normal.troubles]
    assert len(more) == 8 == len({each.node for each in more})
    assert all(each.kind == "degraded" and each.at >= BEGINS for each in more)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_sorted_and_fits_one_node(name: str) -> None:
    for nodes in (1, 2, 32):
        trace = scenario(name, SynthOptions(nodes=nodes, days=4))
        keys = [(each.workload.submitted_at, each.workload.id) for each in trace.arrivals]
        assert keys == sorted(keys)
        assert all(each.workload.shape.nodes <= nodes for each in trace.arrivals)


def test_an_unknown_scenario_and_a_short_log_are_refused() -> None:
    with pytest.raises(ValueError, match="normal-week, small-burst, large-training, maintenance"):
        scenario("storm")
    with pytest.raises(ValueError, match="at least 3 days"):
        scenario("maintenance", SynthOptions(days=2))
