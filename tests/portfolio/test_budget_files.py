"""`mirab budget` on files: comments stay, decisions are kept beside the file, and wrong input gets its sentence."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirab.logs.budgetedit import PlannedTree, edited
from mirab.logs.budgethistory import append_changesets, history_path, locked, read_changesets
from mirab.logs.clusterfile import read_cluster_file
from mirab.logs.dump import write_cluster
from mirab.logs.errors import LogError
from mirab.logs.moments import Calendar
from mirab.model.accounts import Budget, Budgets
from mirab.model.changesets import Changeset
from mirab.model.resources import Cluster, Pool
from mirab.model.units import WHOLE, NodeName
from mirab.study.budgetbook import Book, change, open_book, view
from mirab.study.budgetedits import terms_changed
from mirab.study.budgethistory import Draft, History
from mirab.study.whatif import whatif
from tests.portfolio.conftest import Mirab
from tests.portfolio.made_up import side

TEXT = """\
# the division of 2027
cluster:
    name: ours
    pools: {h100: {nodes: "n[000-007]", gpus_per_node: 8}}   # bought in May
policy: {window: 7d, margin: 10%}
budgets:
    # language pays for half
    language:
        share: 40%      # agreed on 3 May
        owner: mira
        review: 2025-03-01
        hypothesis: "beats last year's model"
        equal_users: no
        children:
            pretrain: {share: "70%"}   # the big one
            # small things
            data: {share: 30%}
    vision: {share: 30%}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "budgets.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def shares(file: Path) -> dict[str, str]:
    budgets = read_cluster_file(file).budgets
    assert budgets is not None
    return {path: f"{budget.share / WHOLE:.0%}" for path, budget, _ in budgets.walk()}


# --- the file ---------------------------------------------------------------------------------------------------------
def test_only_what_changes_changes(mirab: Mirab, file: Path) -> None:
    said = mirab("budget", "set", file, "language/data=25%", "--reason", "less", "--author", "ann")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [f"Version 2 of {file}, by ann", "  language/data share 30% -> 25%"]
    assert file.read_text(encoding="utf-8") == TEXT.replace("data: {share: 30%}", "data: {share: 25%}")


def test_a_rename_takes_its_comment_along(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "--rename", "language/pretrain=base", "--reason", "name")
    text = file.read_text(encoding="utf-8")
    assert 'base: {share: "70%", formerly: [language/pretrain]}' in text
    assert "# the big one" in text
    assert text.index("base:") < text.index("# small things") < text.index("data:")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "policy: fifo\n"])
def test_budgets_come_into_any_file(text: str) -> None:
    made = edited(text, Path("x.yaml"), Budgets((Budget("a", WHOLE // 2),)), ())
    assert made.endswith("budgets:\n  a: {share: 50%}\n")
    assert made.startswith(text.strip())


def test_a_plan_stands_in_the_file_where_a_replay_finds_it() -> None:
    later = Budgets((Budget("language", WHOLE // 4), Budget("vision", WHOLE // 2)))
    tree = read_budgets(TEXT)
    made = edited(TEXT, Path("x.yaml"), tree, (PlannedTree(1_893_456_000_000, later, "ann", "new year"),))
    assert "at: 2030-01-01\n" in made
    assert "author: ann" in made
    assert edited(made, Path("x.yaml"), tree, ()) == TEXT


def read_budgets(text: str) -> Budgets:
    from mirab.logs.budgetfile import budgets_from
    from mirab.logs.yamltree import parse_yaml

    return budgets_from(parse_yaml(text.encode(), Path("x.yaml")).table("x")["budgets"])


def test_what_budgets_may_say_is_written_and_read_again(tmp_path: Path) -> None:
    budget = Budget(
        "a", WHOLE, owner="x: y # z", outcome='well: "done"', formerly=("b", "c/d"), closed="2027-01-01",
        save_for_gangs=True, equal_users=False,
    )  # fmt: skip
    tree = Budgets((budget,))
    assert read_budgets(edited("", Path("x.yaml"), tree, ())) == tree
    path = tmp_path / "cluster.yaml"
    write_cluster(path, Cluster("c", (Pool("p", (NodeName("n0"),), 8),)), tree)
    assert read_cluster_file(path).budgets == tree


# --- the history ------------------------------------------------------------------------------------------------------
def test_the_history_begins_with_what_was_found(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more video", "--author", "ann")
    found = read_changesets(history_path(file))
    assert [(each.version, each.author, each.reason) for each in found] == [
        (1, "ann", "as found in the file"), (2, "ann", "more video"),
    ]  # fmt: skip
    assert view(History(found))[0] == read_cluster_file(file).budgets


def test_a_line_cut_short_by_a_crash_is_passed_over_and_then_cut_away(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    beside = history_path(file)
    beside.write_bytes(beside.read_bytes() + b'{"type":"Changeset","versi')
    assert len(read_changesets(beside)) == 2
    mirab("budget", "set", file, "vision=35%", "--reason", "less")
    assert [each.version for each in read_changesets(beside)] == [1, 2, 3]


def test_a_command_that_was_stopped_before_the_file_was_written_is_finished(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    before = file.read_text(encoding="utf-8")
    mirab("budget", "set", file, "vision=45%", "--reason", "still more")
    file.write_text(before, encoding="utf-8")
    said = mirab("budget", "set", file, "language/data=20%", "--reason", "less")
    assert said.code == 0
    assert (shares(file)["vision"], shares(file)["language/data"]) == ("45%", "20%")


@pytest.mark.parametrize("line", ["nonsense", '{"type":"Budget","name":"a","share":0}', "[]"])
def test_a_history_that_is_none_is_told_with_its_line(mirab: Mirab, file: Path, line: str) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    beside = history_path(file)
    beside.write_text(line + "\n" + beside.read_text(encoding="utf-8"), encoding="utf-8")
    said = mirab("budget", "log", file)
    assert said.code == 1
    assert f"{beside}:1: holds a line that is no changeset" in said.sentence


def test_a_history_with_a_hole_is_told(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    beside = history_path(file)
    beside.write_text(beside.read_text(encoding="utf-8").split("\n", 1)[1], encoding="utf-8")
    with pytest.raises(LogError, match="holds version 2 where 1 is due"):
        open_book(file)


def test_nothing_is_appended_behind_half_a_line(tmp_path: Path, mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    whole = read_changesets(history_path(file))
    target = tmp_path / "other.jsonl"
    target.write_bytes(b"half")
    with locked(target):
        append_changesets(target, whole)
    assert read_changesets(target) == whole


def test_two_at_once_lose_nothing(file: Path) -> None:
    """Each waits for its turn; whoever decides on an older version is told."""

    def decide(path: str, percent: int) -> Changeset:
        def make(book: Book, now: int) -> Draft:
            tree = book.history.at(now)
            made = tuple(terms_changed(tree, {path: {"share": percent * WHOLE // 100}}))
            return Draft("ann", "because", book.history.head, made)

        return change(file, make, "ann", lambda: time.time_ns() // 1_000_000, Calendar())

    with ThreadPoolExecutor(4) as pool:
        paths = ["language/data", "vision"] * 6
        made = list(pool.map(decide, paths, range(1, 13)))
    assert sorted(each.version for each in made) == list(range(2, 14))
    book = open_book(file)
    assert (book.history.head, book.by_hand) == (13, False)


# --- the commands -----------------------------------------------------------------------------------------------------
def test_show_tells_what_is_in_force_and_whose_review_is_due(mirab: Mirab, file: Path) -> None:
    said = mirab("budget", "show", file)
    assert said.code == 0
    assert "2025-03-01 due" in said.out
    assert "language is to achieve: beats last year's model" in said.out
    assert "30% of the cluster is promised to nobody" in said.out
    rows = json.loads(mirab("budget", "show", file, "language/data", "--json").out)["budgets"]
    assert [(row["account"], row["share"], row["share_of_all"]) for row in rows] == [("language/data", "30%", 0.12)]


def test_a_plan_is_shown_and_holds_on_its_day(mirab: Mirab, file: Path) -> None:
    said = mirab("budget", "set", file, "vision=50%", "--from", "2060-01-01", "--reason", "then", "--author", "ann")
    assert "by ann, from 2060-01-01" in said.out
    assert shares(file)["vision"] == "30%"
    assert "Planned from 2060-01-01: version 2 of ann, then" in mirab("budget", "show", file).err
    rows = json.loads(mirab("budget", "show", file, "--at", "2060-01-02", "--json").out)["budgets"]
    assert {row["account"]: row["share"] for row in rows}["vision"] == "50%"
    changes = read_cluster_file(file).budget_changes(0)
    assert [(change.author, change.at > 0) for change in changes] == [("ann", True)]
    said = mirab("budget", "set", file, "vision=35%", "--reason", "sooner")
    assert said.code == 5
    assert "version 2 of ann is to change the top accounts later" in said.sentence
    assert mirab("budget", "revert", file, "2", "--reason", "no").code == 0
    assert mirab("budget", "set", file, "vision=35%", "--reason", "sooner").code == 0
    assert "budget_changes" not in file.read_text(encoding="utf-8")


def test_what_somebody_else_has_changed_is_told(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more", "--author", "bob")
    said = mirab("budget", "set", file, "language=45%", "--reason", "mine", "--base", "1")
    assert said.code == 5
    assert "version 2 of bob has changed the top accounts since version 1" in said.sentence
    assert shares(file)["language"] == "40%"


def test_an_edit_by_hand_is_told_and_can_be_taken_in(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    file.write_text(
        file.read_text(encoding="utf-8").replace("data: {share: 30%}", "data: {share: 28%}"), encoding="utf-8"
    )
    assert "language/data  share     30%    28%" in mirab("budget", "diff", file).out
    said = mirab("budget", "set", file, "vision=41%", "--reason", "more")
    assert said.code == 5
    assert "was edited by hand since version 2 (language/data share)" in said.sentence
    said = mirab("budget", "set", file, "--as-edited", "--reason", "by hand", "--author", "cid")
    assert said.out.splitlines()[1:] == ["  language/data share 30% -> 28%"]
    assert mirab("budget", "set", file, "vision=41%", "--reason", "more").code == 0
    assert shares(file)["language/data"] == "28%"
    said = mirab("budget", "set", file, "--as-edited", "--reason", "again")
    assert (said.code, "nothing to take in" in said.sentence) == (1, True)


def test_an_account_that_was_cut_out_by_hand_is_not_lost(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    text = file.read_text(encoding="utf-8").replace("            data: {share: 30%}\n", "")
    file.write_text(text, encoding="utf-8")
    said = mirab("budget", "set", file, "--as-edited", "--reason", "gone")
    assert said.code == 1
    assert "account language/data would vanish with what it used: close it" in said.sentence


def test_a_whole_tree_comes_in_as_one_changeset(mirab: Mirab, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "proposal.yaml"
    other.write_text(TEXT.replace("30%", "25%").replace("vision:", "sight:").replace(
        "sight: {share: 25%}", "sight: {share: 25%, formerly: vision}"), encoding="utf-8")  # fmt: skip
    said = mirab("budget", "set", file, "--with", other, "--reason", "the proposal", "--author", "ann")
    assert said.out.splitlines()[1:] == [
        "  language/data share 30% -> 25%", "  vision goes on as sight", "  sight share 30% -> 25%",
    ]  # fmt: skip
    assert mirab("budget", "diff", file, other).out.endswith("They are the same.\n")


def test_structure_changes(mirab: Mirab, file: Path) -> None:
    said = mirab(
        "budget", "set", file, "--split", "vision=small:60%,big:40%", "--close", "language/data=language/pretrain",
        "--reason", "tidy", "--json",
    )  # fmt: skip
    made = json.loads(said.out)
    assert (made["version"], made["based_on"]) == (2, 1)
    assert shares(file) == {
        "language": "40%", "language/pretrain": "100%", "language/data": "0%", "vision": "30%", "vision/small": "60%",
        "vision/big": "40%",
    }  # fmt: skip
    assert mirab("budget", "set", file, "--merge", "vision/small,vision/big=vision/all", "--reason", "again").code == 0
    assert shares(file)["vision/all"] == "100%"
    assert "vision/all goes on for vision/small, vision/big" in mirab("budget", "show", file).out


def test_log_blame_and_revert(mirab: Mirab, file: Path) -> None:
    mirab("budget", "set", file, "vision=40%", "--reason", "more video", "--author", "bob")
    assert "Version 2" in mirab("budget", "log", file, "vision").out
    assert mirab("budget", "log", file, "language/data", "--json").out.count('"version"') == 1
    rows = json.loads(mirab("budget", "blame", file, "--json").out)["accounts"]
    assert {row["account"]: (row["author"], row["reason"]) for row in rows}["vision"] == ("bob", "more video")
    said = mirab("budget", "revert", file, "2", "--reason", "too much", "--author", "ann")
    assert said.out.splitlines()[1:] == ["  vision share 40% -> 30%"]
    assert file.read_text(encoding="utf-8") == TEXT
    assert "takes back version 2" in mirab("budget", "log", file).out
    assert mirab("budget", "diff", file, "--version", "2").out.count("vision") == 1


def test_reviews_are_due_and_held(mirab: Mirab, file: Path) -> None:
    assert "1 review due" in mirab("budget", "review", file).out
    due = json.loads(mirab("budget", "review", file, "--json").out)["due"]
    assert [(each["account"], each["owner"]) for each in due] == [("language", "mira")]
    said = mirab("budget", "review", file, "language", "--outcome", "it did: by 3 points", "--next", "2061-01-01")
    assert said.code == 0
    assert "0 reviews due" in mirab("budget", "review", file).out
    assert "outcome: 'it did: by 3 points'" in file.read_text(encoding="utf-8")


def test_what_the_evidence_says_stands_in_the_log_while_it_is_what_it_was(mirab: Mirab, file: Path) -> None:
    proof = file.parent / "whatif.json"
    proof.write_text(json.dumps(whatif(side(), side(seed=4, red={"more": 12.0}, blue={"more": -15.0}))))
    assert mirab("budget", "set", file, "vision=31%", "--reason", "why", "--evidence", proof).code == 0
    assert re.search(r"evidence: whatif.json sha256:\w{64} says: 1 account gains: lab/red", flat(mirab, file))
    told = json.loads(mirab("budget", "log", file, "--json").out)["changesets"][-1]["evidence_told"]
    assert told[0].startswith("1 account gains: lab/red")
    proof.write_text("{}")
    assert "says:" not in flat(mirab, file)
    assert "evidence: whatif.json sha256:" in flat(mirab, file)


def flat(mirab: Mirab, file: Path) -> str:
    return " ".join(mirab("budget", "log", file).out.split())


def test_the_log_of_an_account_goes_back_through_its_earlier_names(mirab: Mirab, file: Path) -> None:
    assert mirab("budget", "set", file, "vision=31%", "--reason", "first").code == 0
    assert mirab("budget", "set", file, "--rename", "vision=sight", "--reason", "second").code == 0
    assert mirab("budget", "set", file, "sight=30%", "--reason", "third").code == 0
    told = json.loads(mirab("budget", "log", file, "sight", "--json").out)["changesets"]
    assert [each["reason"] for each in told][-3:] == ["first", "second", "third"]


def test_evidence_is_kept_by_its_hash(mirab: Mirab, file: Path, tmp_path: Path) -> None:
    proof = tmp_path / "whatif.json"
    proof.write_text("{}", encoding="utf-8")
    made = json.loads(mirab("budget", "set", file, "vision=31%", "--reason", "why", "--evidence", proof, "--json").out)
    assert made["evidence"].startswith("whatif.json sha256:44136fa3")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ["vision=70%", "--reason", "x"],
            1,
            "sum to 110%, more than 100%: language 40%, vision 70%; lower another by 10%",
        ),
        (["vision=40", "--reason", "x"], 1, "write a percentage such as 12.5%"),
        (["visoin=40%", "vision", "--reason", "x"], 1, "vision: nothing is to change"),
        (["visoin", "--owner", "y", "--reason", "x"], 3, "did you mean vision?"),
        (["vision=40%"], 1, "needs the reason"),
        (["vision=40%", "--reason", "x", "--author", " "], 1, "needs the author"),
        (["vision=40%", "--reason", "x", "--from", "2001-01-01"], 1, "what was delivered is not rewritten"),
        (["vision=40%", "--reason", "x", "--from", "soon"], 2, "'soon' is not a date"),
        (["vision=40%", "--reason", "x", "--base", "9"], 1, "there is no version 9"),
        (["vision=40%", "vision=41%", "--reason", "x"], 1, "vision is named twice"),
        ([":vision=40%", "--reason", "x"], 1, "no pool stands before the colon"),
        (["--reason", "x"], 2, "nothing is to change"),
        (["--rename", "vision", "--reason", "x"], 2, "is not of the form OLD=NEW"),
        (["--rename", "vision=language", "--reason", "x"], 1, "exists already: merge"),
        (["--rename", "vision=language/sight", "--reason", "x"], 1, "keeps its parent; write --rename vision=sight"),
        (["--rename", "vision=sight/", "--reason", "x"], 2, "is not of the form OLD=NEW"),
        (["--rename", "vision=*", "--reason", "x"], 1, "'*' cannot be an account"),
        (["vision", "--review", "soon", "--reason", "x"], 2, "--review: 'soon' is not a day"),
        (["vision", "--review", "2027-02-30", "--reason", "x"], 2, "'2027-02-30' is not a day: write one such as"),
        (["--merge", "vision,language/data=all", "--reason", "x"], 1, "not accounts of one parent"),
        (["--split", "language=a:50%", "--reason", "x"], 1, "has children already"),
        (["--split", "vision=a:50", "--reason", "x"], 1, "write a percentage"),
        (["--close", "vision=language/data", "--reason", "x"], 1, "no sibling"),
        (["vision=40%", "--as-edited", "--reason", "x"], 2, "stand alone"),
        (["vision=30%", "--reason", "x"], 1, "it changes nothing"),
    ],
)
def test_wrong_input_gets_its_sentence_and_changes_nothing(
    mirab: Mirab, file: Path, words: list[str], code: int, told: str
) -> None:
    said = mirab("budget", "set", file, *words)
    assert said.code == code, said.err
    assert told in said.sentence
    assert file.read_text(encoding="utf-8") == TEXT
    assert not history_path(file).exists()


@pytest.mark.parametrize("verb", ["show", "diff", "log", "blame", "review"])
def test_a_file_without_budgets_is_told(mirab: Mirab, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("policy: fifo\n", encoding="utf-8")
    said = mirab("budget", verb, path)
    assert said.code == 1
    assert "has no budgets: write a section budgets:" in said.sentence
    assert mirab("budget", verb, tmp_path / "no.yaml").code == 3


def test_no_history_no_blame(mirab: Mirab, file: Path) -> None:
    said = mirab("budget", "blame", file)
    assert (said.code, "has no history yet" in said.sentence) == (3, True)
    assert "Nothing has been decided yet" in mirab("budget", "log", file).out
    assert mirab("budget", "show", file, "nobody").code == 3
    assert mirab("budget", "revert", file, "7", "--reason", "x").code == 1


class FakeService:
    """Answers as the service does, and remembers what it was sent."""

    sent: list[tuple[str, str, object, dict[str, str]]]

    def __init__(self) -> None:
        self.sent = []

    def __enter__(self) -> FakeService:
        return self

    def __exit__(self, *_: object) -> None: ...

    def get(self, path: str) -> dict[str, object]:
        return {
            "version": "v1",
            "budgets": {"everyone": {"share": "100%"}, "old": {"share": "0%", "closed": "2026-01-01"}},
        }

    def send(self, method: str, path: str, body: object, headers: dict[str, str]) -> dict[str, object]:
        self.sent.append((method, path, body, headers))
        closed = {name: {"share": "0%", "closed": "2026-01-01"} for name in ("everyone", "old")}
        return {"version": "v2", "budgets": {**closed, "vision": {"share": "100%"}}}


def test_push_sends_what_is_in_force_against_the_version_seen(
    mirab: Mirab, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    monkeypatch.setattr("mirab.cli.connection.open_client", lambda server: service)
    mirab("budget", "set", file, "vision=40%", "--reason", "more")
    said = mirab("budget", "push", file, "--why", "new quarter")
    assert (said.code, said.out) == (0, "The service has these budgets now, version v2.\n")
    assert "Closed: everyone." in said.err
    ((method, path, body, headers),) = service.sent
    assert (method, path, headers) == ("PUT", "/budgets", {"If-Match": '"v1"'})
    assert isinstance(body, dict)
    assert body["why"] == "new quarter"
    assert body["budgets"]["vision"] == {"share": "40%"}
    assert body["budgets"]["language"]["children"]["data"] == {"share": "30%"}
    assert body["budgets"]["language"]["equal_users"] is False
    file.write_text(
        file.read_text(encoding="utf-8").replace("vision: {share: 40%}", "vision: {share: 41%}"), encoding="utf-8"
    )
    assert mirab("budget", "push", file, "--why", "x").code == 5
