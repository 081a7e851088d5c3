"""The file form is strict: whatever is wrong is named with its file and line. (Lines 26, 39 and 43 of SCENARIOS.md.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.model.units import DAY, HOUR, MINUTE
from tests.scenarios import build
from tests.scenarios.expect import expected
from tests.scenarios.fileform import (
    BUDGET_LINES,
    CLUSTER_LINES,
    FACT_LINES,
    PLAN_LINES,
    ScenarioError,
    names_of,
    parse,
)
from tests.scenarios.runner import NotAsWrittenError, play

GOOD = """\
Prose for people.

# cluster
pool n nodes=2 gpus=8
# budgets
red  50%
blue 50%
# policy
budget window=10h   -- a comment

# at 0
submit a red 1x8 min=1h
-- another comment
# plan
start a on n0
"""
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "scenario-files.md"


def _said(text: str) -> str:
    """What the parser or the player says about a text that is not a scenario."""
    with pytest.raises(ScenarioError) as caught:
        scenario = parse(text, "bad.txt")
        play(scenario)
    return str(caught.value)


def _changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_good_one_is_good() -> None:
    scenario = parse(GOOD, "good.txt")
    assert scenario.prose == "Prose for people."
    assert [turn.at for turn in scenario.rounds] == [0]
    play(scenario)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("min=1h", "min=60", 12, "write a number with a unit"),
        ("min=1h", "min=1:00:00", 12, "write a number with a unit"),
        ("min=1h", "min=-5m", 12, "is not a duration"),
        ("min=1h", "min=soon", 12, "is not a duration"),
        ("min=1h", "minimum=1h", 12, "no setting 'minimum'"),
        ("min=1h", "min", 12, "settings are written key=value"),
        ("min=1h", "min=1h min=2h", 12, "stands twice"),
        ("min=1h", "resume=maybe", 12, "write yes or no"),
        ("min=1h", "priority=URGENT", 12, "LOW, NORMAL, HIGH"),
        ("min=1h", 'label="open', 12, "no closing quotation"),
        ("1x8", "8", 12, "NODESxGPUS"),
        ("submit a", "sumbit a", 12, "did you mean 'submit'"),
        ("submit a red 1x8", "submit a red", 12, "write 'submit WORKLOADS ACCOUNT NODES-X-GPUS'"),
        ("window=10h", "windw=10h", 9, "no setting 'windw'"),
        ("window=10h", "window=10", 9, "write a number with a unit"),
        ("budget window", "fairest window", 9, "the stock ones are"),
        ("blue 50%", "blue 51%", 6, "sum to 101%, more than 100%: red 50%, blue 51%"),
        ("blue 50%", "blue 50", 7, "is not a share"),
        ("blue 50%", "blue/x 50%", 7, "no line for its parent blue"),
        ("nodes=2", "nodes=two", 4, "write a whole number"),
        ("nodes=2", "domains=1+1", 4, "needs nodes=COUNT"),
        ("gpus=8", "gpus=8 domains=1+2", 4, "name 3 nodes, the pool has 2"),
        ("# at 0", "# at", 11, "write '# at 2h'"),
        ("# at 0", "# when 0", 11, "cannot stand here"),
        ("start a on n0", "", 11, "its '# plan' is empty"),
        ("start a on n0", "start a on node", 15, "is not a node or a range"),
        ("start a on n0", "start a why Luck", 15, "there is no reason 'Luck'"),
        ("start a on n0", "start a why InOrder luck=3", 15, "has no number 'luck'"),
        ("start a on n0", "ratio reds 1", 15, "there is no account reds"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, line: int, words: str) -> None:
    said = _said(_changed(old, new))
    assert said.startswith(f"bad.txt:{line}: "), said
    assert words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must end with a '# plan'"),
        (GOOD.replace("# cluster\npool n nodes=2 gpus=8\n", ""), "no '# cluster'"),
        (GOOD + "# at 0\nlook\n# plan\nnothing\n", "is not after the round before it"),
        (GOOD + "# at 1h\nlook\n", "must end with a '# plan'"),
        (GOOD + "# cluster\npool m nodes=1 gpus=1\n", "before the first '# at'"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(text: str, words: str) -> None:
    said = _said(text)
    assert said.startswith("bad.txt:")
    assert words in said


def test_durations_of_weeks_are_durations() -> None:
    scenario = parse(_changed("window=10h", "window=1w"), "weeks.txt")
    assert build.policy_of(scenario.policy).window == 7 * DAY


def test_ranges() -> None:
    assert names_of("b1..b3,c", "x:1") == ["b1", "b2", "b3", "c"]
    assert build.node_names("n0-2,m5", "x:1") == ["n0", "n1", "n2", "m5"]
    with pytest.raises(ScenarioError, match=r"x:1: b3\.\.b1 is not a range"):
        names_of("b3..b1", "x:1")


def test_what_is_expected_is_what_is_written() -> None:
    turn = parse(_changed("start a on n0", "start a1..a2 on n0..n1 min=1h why InOrder ratio=0.5"), "x.txt").rounds[0]
    first, second = expected(turn.plan[0])
    assert (first.subject, dict(first.details)) == ("a1", {"on": ("n0",), "min": HOUR})
    assert (second.subject, dict(second.details)) == ("a2", {"on": ("n1",), "min": HOUR})
    assert str(first.reason) == "InOrder ratio=0.5000"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("start a on n0", "nothing", "decided, not expected: start a"),
        ("start a on n0", "start a on n1", "expected, not decided: start a on=n1"),
        ("start a on n0", "start a min=2h", "expected, not decided: start a min=2h"),
        ("start a on n0", "start a why InOrder owed=yes", "expected, not decided: start a why InOrder owed=yes"),
        ("start a on n0", "start a\nstart b", "expected, not decided: start b"),
        ("start a on n0", "start a\nqueued a", "a is running"),
        ("start a on n0", "start a\nusage red 79h", "usage red is 3d8h, not 79h"),
        ("start a on n0", "start a\nratio red 1.2", "ratio red is 1.1000, not 1.2"),
        ("start a on n0", "start a\nwake 5h", "wakes at"),
        ("start a on n0", "start a\nprotected a until 2h", "not 7200000"),
        ("start a on n0", "start a\nwait a", "not waiting with a reason"),
    ],
)
def test_a_departure_is_told_with_what_was_expected(old: str, new: str, words: str) -> None:
    with pytest.raises(NotAsWrittenError, match=r"x\.txt:11") as caught:
        play(parse(_changed(old, new), "x.txt"))
    assert words in str(caught.value)


def test_decisions_between_the_rounds_are_departures_too() -> None:
    late = GOOD.replace("min=1h", f"min=1h start_delay={10 * MINUTE}ms never_starts=yes")
    with pytest.raises(NotAsWrittenError, match="before it nothing was to be decided"):
        play(parse(late + "# at 2h\nlook\n# plan\nnothing\n", "x.txt"))


def test_the_reference_knows_every_line_and_setting() -> None:
    reference = REFERENCE.read_text(encoding="utf-8")
    for forms in (CLUSTER_LINES, BUDGET_LINES, FACT_LINES, PLAN_LINES):
        for verb, form in forms.items():
            assert f"`{verb}" in reference, f"{verb} is not in {REFERENCE.name}"
            for setting in form.settings:
                assert f"`{setting}" in reference, f"{verb}'s setting {setting} is not in {REFERENCE.name}"
