"""Gates: each fails where it should, is met where it should, and a file that says nonsense is told so."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mirab.logs.errors import LogError
from mirab.model.policy import POLICIES
from mirab.model.units import DAY, HOUR
from mirab.sim.synthetic import SynthOptions, synthesize
from mirab.study.catalogue import BY_KEY
from mirab.study.gatekeeping import Judged, all_failures, broken, judgement, kept
from mirab.study.gates import Finding, findings
from mirab.study.gatesfile import FIVE, SPECIAL, Gates, kind_of, parse_gates
from mirab.study.owed import Leaf
from mirab.study.replays import replay_report
from mirab.study.sustained import sustained
from tests.study_page.made_up import report as made_up

FILE = Path("gates.yaml")
DECIDED = "decisions:\n" + "".join(f"  {name}: {{says: 'as agreed', owner: ann, date: 2026-11-02}}\n" for name in FIVE)


def parsed(text: str) -> Gates:
    return parse_gates(text.encode(), FILE)


def report(**metrics: Any) -> dict[str, Any]:
    """A report of a good replay; `metrics` in place of its own."""
    told = made_up("budget", ("lab/red", "lab/blue"))
    told["metrics"] |= {"lost_ratio": 0.02, "starvation_s": 3600.0, "contract_violations": 0} | metrics
    told["metrics"]["waits"]["debug"] |= {"count": 9, "p50_s": 1.0, "p90_s": 20.0, "p99_s": 90.0}
    told["metrics"]["waits"]["large"] |= {"count": 9, "p90_s": 7200.0}
    told["metrics"]["waits"]["huge"] |= {"count": 0, "p90_s": None}
    for account in told["by_account"].values():
        account["sustained"] = {"windows": 3, "lowest": 0.97, "lowest_at_s": 86400.0 * 9}
    told["exceptions"] = []
    return told


def judged(text: str, told: dict[str, Any] | None = None, present: dict[str, Any] | None = None) -> list[Finding]:
    return findings(parsed(text), report() if told is None else told, present)


def exception(**said: Any) -> dict[str, Any]:
    return {"id": "x1", "kind": "guaranteed", "account": "lab/red", "begin_s": 0.0, "end_s": 86400.0,
            "in_force": False} | said  # fmt: skip


WORSE: dict[str, tuple[str, dict[str, Any]]] = {
    "sustained-demand": ("{at_least: 95%}", {}),
    "lost-work": ("{at_most: 3%}", {"lost_ratio": 0.031}),
    "deadlines": ("{at_least: 90%}", {"deadlines": {"count": 40, "met": 35}}),
    "debug-wait": ("{at_most: 19s}", {}),
    "starvation": ("{at_most: 59m}", {}),
    "large-gangs": ("{at_most: 1h}", {}),
    "contracts": ("", {"contract_violations": 1}),
    "delivered_ratio": ("{at_least: 99%}", {"delivered_ratio": 0.98}),
    "exceptions": ("", {}),
    "decisions": ("", {}),
}


def worse(name: str) -> dict[str, Any]:
    told = report(**WORSE[name][1])
    if name == "sustained-demand":
        told["by_account"]["lab/blue"]["sustained"]["lowest"] = 0.94
    if name == "exceptions":
        told["exceptions"] = [exception(end_s=None)]
    return told


@pytest.mark.parametrize("name", WORSE)
def test_every_gate_has_a_replay_in_which_it_fails(name: str) -> None:
    found = judged(f"gates: {{{name}: {WORSE[name][0] or '{}'}}}", worse(name))
    assert [finding for finding in found if not finding.met]


@pytest.mark.parametrize("key", sorted(set(BY_KEY) - set(SPECIAL)))
def test_every_measure_is_a_gate_that_can_fail(key: str) -> None:
    """Each has a replay that is within the limit and one that is beyond it, on both sides."""
    kind = kind_of(key)
    assert kind is not None and kind.needs
    low, high = {"ratio": ("10%", "90%"), "span": ("10s", "90s"), "count": ("10", "90")}[kind.unit]
    value = {"ratio": 0.5, "span": 50.0, "count": 50}[kind.unit]
    told = with_measure(key, value)
    for text, met in ((f"at_least: {low}", True), (f"at_least: {high}", False),
                      (f"at_most: {high}", True), (f"at_most: {low}", False)):  # fmt: skip
        (found,) = judged(f"gates: {{{key}: {{{text}}}}}", told)
        assert (found.met, found.value) == (met, value), (key, text, found)


def with_measure(key: str, value: float) -> dict[str, Any]:
    """The report with one measure of this value (of a count of something, this part of it)."""
    told, measure = deepcopy(report()), BY_KEY[key]
    if measure.of:
        _put(told["metrics"], measure.of, 100)
        value = value * 100
    _put(told["metrics"], key, value)
    return told


def _put(table: dict[str, Any], key: str, value: float) -> None:
    *above, last = key.split(".")
    for part in above:
        table = table.setdefault(part, {})
    table[last] = value


def test_every_check_is_among_them() -> None:
    assert set(SPECIAL) <= set(WORSE)


@pytest.mark.parametrize("name", [name for name in WORSE if name not in ("debug-wait", "starvation", "large-gangs")])
def test_and_one_in_which_it_is_met(name: str) -> None:
    decided = DECIDED if name == "decisions" else ""
    told = report(delivered_ratio=0.995, deadlines={"count": 40, "met": 40})
    found = judged(f"gates: {{{name}: {WORSE[name][0] or '{}'}}}\n{decided}", told)
    assert found
    assert all(finding.met for finding in found), found


@pytest.mark.parametrize(
    "text", ["debug-wait: {at_most: 20s}", "starvation: {at_most: 1h}", "large-gangs: {at_most: 2h}"]
)
def test_a_limit_itself_is_met(text: str) -> None:
    assert all(finding.met for finding in judged(f"gates: {{{text}}}"))


def test_the_numbers_are_told() -> None:
    found = judged("gates: {lost-work: {at_most: 3%}, debug-wait: {at_most: 15s, percentile: p99}}", worse("lost-work"))
    assert [finding.told for finding in found] == [
        "3.1 % (needs at most 3.0 %)", "debug p99 1.5 min (needs at most 15 s)",
    ]  # fmt: skip
    assert (found[0].value, found[0].limit) == (0.031, 0.03)


def test_the_account_that_fell_short_is_named() -> None:
    (found,) = judged("gates: {fair: {check: sustained-demand}}", worse("sustained-demand"))
    assert (found.subject, found.value, found.limit) == ("lab/blue", 0.94, 0.95)
    told = report()
    for account in told["by_account"].values():
        account["sustained"] = {"windows": 0, "lowest": None, "lowest_at_s": None}
    assert judged("gates: {sustained-demand: {}}", told)[0].found == "no account had sustained demand"


def test_what_nobody_asked_for_is_met_and_says_so() -> None:
    told = report(deadlines={"count": 0, "met": 0})
    found = judged("gates: {deadlines: {}, large-gangs: {at_most: 1d, classes: huge}}", told)
    assert [finding.found for finding in found] == ["no workload named a deadline", "had no workload"]


@pytest.mark.parametrize("name", [name for name in WORSE if name != "decisions"])
def test_a_number_that_is_not_there_is_not_met(name: str) -> None:
    told = deepcopy(report())
    told["metrics"] = {"waits": {}}
    del told["exceptions"]
    for account in told["by_account"].values():
        del account["sustained"]
    found = judged(f"gates: {{{name}: {WORSE[name][0] or '{}'}}}", told)
    assert found
    assert not any(finding.met for finding in found)


# --- against the present ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "metrics", "met"),
    [
        ("lost-work: {worse_by_at_most: 1%}", {"lost_ratio": 0.029}, True),
        ("lost-work: {worse_by_at_most: 1%}", {"lost_ratio": 0.031}, False),
        ("starvation: {worse_by_at_most: 10m}", {"starvation_s": 4100.0}, True),
        ("starvation: {worse_by_at_most: 10%}", {"starvation_s": 4100.0}, False),
        ("occupancy: {worse_by_at_most: 1%}", {"occupancy": 0.985}, True),
        ("occupancy: {worse_by_at_most: 1%}", {"occupancy": 0.97}, False),
        ("preemptions: {worse_by_at_most: 5}", {"preemptions": 105}, True),
        ("preemptions: {worse_by_at_most: 5}", {"preemptions": 106}, False),
    ],
)
def test_worse_than_the_present_by_at_most(text: str, metrics: dict[str, Any], met: bool) -> None:
    present = report(occupancy=0.99, preemptions=100)
    (found,) = judged(f"gates: {{{text}}}", report(**{"occupancy": 0.99, "preemptions": 100} | metrics), present)
    assert found.met is met
    assert ", present " in found.needed


def test_without_a_present_such_a_gate_is_not_met() -> None:
    (found,) = judged("gates: {lost-work: {worse_by_at_most: 1%}}")
    assert (found.met, "there is no present" in found.found) == (False, True)


def test_a_number_that_nothing_has_made_yet_is_not_called_an_old_report() -> None:
    gates = "gates: {lost-work: {at_most: 3%}}"
    (found,) = judged(gates, report(lost_ratio=None))
    assert (found.met, found.found) == (False, "nothing has happened by which it could be measured")
    old = report()
    del old["metrics"]["lost_ratio"]
    (found,) = judged(gates, old)
    assert not found.met and "make it anew with this version" in found.found


# --- exceptions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"end_s": None}, "has no end"),
        ({"in_force": True}, "is in force 29 d past its end"),
        ({"end_s": 86400.0 * 8}, "lasts 8 d"),
    ],
)
def test_exceptions_that_do_not_end(said: dict[str, Any], told: str) -> None:
    told_report = report() | {"exceptions": [exception(), exception(**said)]}
    (found,) = judged("gates: {exceptions: {longest: 7d}}", told_report)
    assert (found.met, found.found, found.subject) == (False, told, "x1 of lab/red")


def test_exceptions_that_end_are_counted() -> None:
    (found,) = judged("gates: {exceptions: {longest: 7d}}", report() | {"exceptions": [exception()]})
    assert (found.met, found.found) == (True, "1 exception, each with its end")


# --- the five decisions -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FIVE)
def test_all_five_or_none(name: str) -> None:
    text = "\n".join(line for line in DECIDED.splitlines() if not line.startswith(f"  {name}:"))
    (found,) = judged(f"gates: {{decisions: {{}}}}\n{text}")
    assert (found.met, found.told) == (False, f"{name} not stated, no owner, no date")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("'as agreed'", "''"), "not stated"),
        (("owner: ann", "owner: "), "no owner"),
        (("2026-11-02", ""), "no date"),
        (("2026-11-02", "soon"), "'soon' is not a date such as 2026-11-02"),
    ],
)
def test_each_is_stated_owned_and_dated(change: tuple[str, str], told: str) -> None:
    found = judged("gates: {decisions: {}}\n" + DECIDED.replace(*change, 1))
    assert [(finding.subject, finding.found) for finding in found] == [("unit", told)]


def test_what_was_decided_is_what_the_policy_does() -> None:
    text = "gates: {decisions: {}}\n" + DECIDED.replace(
        "window: {", "window: {settings: {window: 14d, margin: 10%}, "
    )  # fmt: skip
    (found,) = judged(text)
    assert found.told == "window the policy has window 7d, which is not what was decided"
    assert all(finding.met for finding in judged(text.replace("14d", "168h")))


def test_decisions_that_are_written_down_are_looked_at_although_no_gate_asks() -> None:
    found = judged("gates: {lost-work: {at_most: 3%}}\n" + DECIDED.replace("owner: ann", "owner: ", 1))
    assert [finding.gate for finding in found if not finding.met] == ["decisions"]


# --- the file ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "gates: {lost-wrok: {at_most: 3%}}",
            "gates.yaml:1: gate 'lost-wrok' is no check and names none.*did you mean lost-work",
        ),
        (
            "gates:\n  a: {check: debug-wiat, at_most: 3s}",
            "gates.yaml:2: there is no check 'debug-wiat'.*did you mean debug-wait",
        ),
        (
            "gates:\n  lost-work:\n    at_msot: 3%",
            "gates.yaml:3: gate lost-work has no key 'at_msot'.*did you mean at_most",
        ),
        ("gates: {lost-work: {at_most: 3}}", "write a percentage"),
        ("gates: {debug-wait: {at_most: 30}}", "30"),
        ("gates: {contracts: {at_most: 1%}}", "1%"),
        ("gates: {lost-work: {}}", "has no limit: add at_most or worse_by_at_most"),
        ("gates: {lost-work: 3%}", "gate lost-work holds no keys"),
        ("gates: {debug-wait: {at_most: 1m, percentile: ninety}}", "'ninety' is not known: known are p50, p90, p99"),
        ("gates: {large-gangs: {at_most: 1m, classes: [large, hugh]}}", "did you mean huge"),
        ("gates: {contracts: {scenarios: maintainance}}", "did you mean maintenance"),
        ("gates: {}", "gates is empty"),
        ("decisions: {}", "has no 'gates'"),
        ("gates: {contracts: {}}\ndecision: {}", "did you mean decisions"),
        ("gates: {contracts: {}}\ndecisions: {windw: {}}", "did you mean window"),
        ("gates: {contracts: {}}\ndecisions: {window: {owned: x}}", "did you mean owner"),
        ("gates: {contracts: {}}\ndecisions: {window: {settings: {windw: 7d}}}", "did you mean 'window'"),
        ("gates: {contracts: {}}\ndecisions: {window: {settings: {window: 7}}}", "write a duration"),
    ],
)
def test_a_file_that_says_nonsense_is_told_so(text: str, told: str) -> None:
    with pytest.raises(LogError, match=told):
        parsed(text)


def test_a_gate_may_be_for_some_scenarios() -> None:
    gates = parsed("gates: {contracts: {scenarios: [maintenance]}, lost-work: {at_most: 3%}}")
    assert [finding.gate for finding in findings(gates, report(), None, "maintenance")] == ["contracts", "lost-work"]
    assert [finding.gate for finding in findings(gates, report(), None, "normal-week")] == ["lost-work"]
    assert [finding.gate for finding in findings(gates, report())] == ["lost-work"]


# --- what is kept -----------------------------------------------------------------------------------------------------
def test_a_kept_report_holds_until_something_changes() -> None:
    gates = parsed("gates: {contracts: {}}")
    told = judgement([Judged(report(), findings(gates, report()))], gates)
    made = kept(told, {"report": ("r.json", b"1"), "gates": ("g.yaml", b"2")}, ("ann", "2026-11-30T10:00:00+00:00"))
    assert broken(made, {}) == []
    assert broken(made, {"report": b"1", "gates": b"2"}) == []
    assert broken(made, {"report": b"other"}) == ["the report r.json is another one now"]
    assert broken(made, {"present": b"1"}) == ["it was made without a present"]
    assert broken(made | {"met": False}, {}) == ["it was changed after it was kept"]
    assert broken({"signed": None}, {}) == ["it is no kept gate report"]


def test_failures_are_told_by_gate() -> None:
    gates = parsed("gates: {contracts: {}, lost-work: {at_most: 1%}, decisions: {}}")
    bad = Judged(report(contract_violations=2), findings(gates, report(contract_violations=2)), "maintenance")
    assert all_failures([bad]) == (
        "maintenance: 3 gates are not met: contracts: 2 (needs at most 0); lost-work: 2.0 % (needs at most 1.0 %); "
        "decisions: unit not stated, no owner, no date and hierarchy not stated, no owner, no date and window not "
        "stated, no owner, no date and 2 more"
    )
    assert all_failures([Judged(report(), [])]) == ""


# --- the measure behind the first gate --------------------------------------------------------------------------------
def leaf_with(full_hours: int) -> Leaf:
    """A day in which a leaf of half of 100 GPUs asked for 60 for so many hours and for 10 in the rest; 40 ran."""
    leaf = Leaf("red", 500_000_000, 0)  # type: ignore[arg-type]
    leaf.mark(0)
    leaf.charged_rate = 40_000
    for begin, wanted in ((0, 60_000), (full_hours, 10_000)):
        leaf.settle(begin * HOUR)
        leaf.wanted.add(1, wanted - leaf.wanted.total)
        leaf.reckon([100_000], 100_000)
    leaf.mark(DAY)
    return leaf


def test_demand_is_sustained_from_four_fifths_of_the_window_on() -> None:
    assert sustained(leaf_with(19), [(0, DAY)]).windows == 0
    found = sustained(leaf_with(20), [(0, DAY)])
    assert (found.windows, found.lowest_at) == (1, DAY)
    assert found.lowest == pytest.approx(40 * 24 / (50 * 20 + 10 * 4), abs=1e-6)


def test_a_replay_tells_who_had_sustained_demand() -> None:
    told = replay_report(synthesize(SynthOptions(nodes=2, days=3, load=2.0, seed=2)), POLICIES["priority"])
    steady = {path: each["sustained"] for path, each in told["by_account"].items() if each["sustained"]["windows"]}
    assert told["metrics"]["sustained_accounts"] == len(steady) > 0
    assert told["metrics"]["sustained_worst"] == min(each["lowest"] for each in steady.values())
