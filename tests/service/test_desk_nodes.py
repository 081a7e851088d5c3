"""Commands about nodes, and what XIDs mean."""

from __future__ import annotations

import pytest

from mirab.service.desk.errors import DeskError
from mirab.service.desk.xid import XIDS, judged
from tests.service.house import ADA, MIA, OPS, Bench


def health(bench: Bench, node: str) -> str:
    from mirab.service.desk.nodes import health_of

    return health_of(bench.state, node)  # type: ignore[arg-type]


def test_a_node_is_drained_repaired_and_resumed(bench: Bench) -> None:
    bench.submit(min_runtime="1h")
    bench.desk.node_drain(OPS, "n0", "new cable")
    bench.settle()
    assert health(bench, "n0") == "draining"
    assert bench.states() == {"1": "RUNNING"}, "nobody is stopped inside the minimum"
    bench.wait(60 * 60_000)
    bench.settle()
    assert (health(bench, "n0"), bench.row("1").node_names) == ("repair", ("n1",))
    bench.desk.node_resume(OPS, "n0", "done")
    bench.settle()
    assert health(bench, "n0") == "up"
    told = [(entry.action, entry.target, entry.before, entry.after) for entry in bench.audit(target="n0")]
    assert told == [("node.resume", "n0", "drained", "up"), ("node.drain", "n0", "up", "draining")]


def test_a_drain_that_goes_on_is_undone(bench: Bench) -> None:
    bench.submit(min_runtime="1h")
    bench.desk.node_drain(OPS, "n0", "a false alarm")
    bench.settle()
    bench.desk.node_resume(OPS, "n0")
    bench.settle()
    assert health(bench, "n0") == "up"


def test_commands_may_be_repeated(bench: Bench) -> None:
    bench.desk.node_drain(OPS, "n0", "x")
    seq, _ = bench.store.last()
    bench.desk.node_drain(OPS, "n0", "x")
    assert [facts for _, facts, _ in bench.store.records(after=seq)] == [()]
    bench.desk.node_resume(OPS, "n0")
    bench.desk.node_resume(OPS, "n0")
    assert health(bench, "n0") == "up"


def test_nodes_are_for_operators_and_need_a_reason(bench: Bench) -> None:
    for who in (ADA, MIA):
        for call in (
            lambda who=who: bench.desk.node_drain(who, "n0", "x"),
            lambda who=who: bench.desk.node_resume(who, "n0"),
            lambda who=who: bench.desk.node_report(who, "n0", 79),
        ):
            with pytest.raises(DeskError, match="operators of the whole cluster") as caught:
                call()
            assert caught.value.kind == "denied"
    with pytest.raises(DeskError, match=r"say why .* \(--reason\)"):
        bench.desk.node_drain(OPS, "n0", "  ")


def test_an_unknown_node_names_the_nearest(bench: Bench) -> None:
    with pytest.raises(DeskError, match=r"there is no node 'n00': did you mean n0\?") as caught:
        bench.desk.node_drain(OPS, "n00", "x")
    assert caught.value.kind == "not-found"


def test_an_xid_of_the_hardware_drains_the_node(bench: Bench) -> None:
    told = bench.desk.node_report(OPS, "n1", 79, "seen at night")
    assert told.degrades
    assert told.sentence == (
        "n1: XID 79: the GPU is no longer found on the bus (seen at night); it takes nothing new and drains"
    )
    bench.settle()
    assert health(bench, "n1") == "repair", "empty, so at once"


def test_an_xid_of_a_program_is_only_noted(bench: Bench) -> None:
    told = bench.desk.node_report(OPS, "n1", 13)
    assert not told.degrades
    assert "noted; the node goes on" in told.sentence
    assert health(bench, "n1") == "up"
    assert bench.desk.node_report(OPS, "n1", 999).degrades is False
    assert bench.desk.node_report(OPS, "n1", text="fan is loud").sentence.startswith("n1: fan is loud")
    assert bench.audit(action="node.report")[0].why == "fan is loud"
    for wrong in (None, 0, -3):
        with pytest.raises(DeskError):
            bench.desk.node_report(OPS, "n1", wrong)


def test_the_table_of_xids_is_readable() -> None:
    for number, xid in XIDS.items():
        assert 0 < number < 1_000
        assert xid.means[0].islower() and not xid.means.endswith("."), number
    assert judged(48).degrades and not judged(31).degrades
    assert "does not know" in judged(1000).means
