"""Changesets under fire: two managers at once over HTTP, a hundred edits each, on both stores.

The edits really overlap: two threads, each with a connection of its own, read, change and write as fast as they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Barrier, Thread
from typing import Any

import httpx
import pytest

from mirab.model.codec import decode
from mirab.model.events import BudgetsChanged
from mirab.model.units import parse_share
from mirab.store import open_store
from mirab.study.budgethistory import History
from tests.api.stage import Stage, stage
from tests.live.postgres import postgres_server  # noqa: F401

EDITS = 100
BASE = "/api/v1/budgets"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
        monkeypatch.setattr("tests.api.stage.open_store", lambda _: open_store(url))
    with stage(tmp_path) as service:
        yield service


class Manager(Thread):
    """Somebody who makes a hundred edits, each on what they have just read.

    Attributes:
        made: name of a child -> share, in the order in which the service took them; told: how often others were first.
    """

    def __init__(self, service: Stage, user: str, begin: Barrier) -> None:
        super().__init__(daemon=True)
        self.client, self.user, self.begin = service.client(user), user, begin
        self.draw = Random(user)
        self.made: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        self.begin.wait()
        try:
            while len(self.made) < EDITS and not self.wrong:
                self.edit()
        finally:
            self.client.close()

    def edit(self) -> None:
        """Read all, change one child of vision, write."""
        raise NotImplementedError

    def took(self, answer: httpx.Response, name: str, share: str, *stale: int) -> None:
        if answer.is_success:
            self.made.append((name, share))
        elif answer.status_code in stale:
            self.told.append(answer.json()["detail"])
        else:
            self.wrong.append(f"{answer.status_code} {answer.text}")

    def choice(self) -> tuple[str, str]:
        return self.draw.choice(["video", "image"]), f"{self.draw.randint(1, 4_999) / 100:.2f}%"


class WholeTree(Manager):
    """By `PUT /budgets` with `If-Match`."""

    def edit(self) -> None:
        read = self.client.get(BASE)
        tree, (name, share) = read.json()["budgets"], self.choice()
        if tree["vision"]["children"][name]["share"] == share:
            return
        tree["vision"]["children"][name]["share"] = share
        body = {"budgets": tree, "why": f"{self.user} {len(self.made)}"}
        answer = self.client.put(BASE, json=body, headers={"If-Match": read.headers["ETag"]})
        self.took(answer, name, share, 412)


class OneChangeset(Manager):
    """By `POST /budgets/changes` on the version that was seen."""

    def edit(self) -> None:
        history, (name, share) = self.client.get(f"{BASE}/history").json(), self.choice()
        children = self.client.get(BASE).json()["budgets"]["vision"]["children"]
        if children[name]["share"] == share:
            return
        children[name]["share"] = share
        body = {"edits": {"vision": children}, "base": history["version"], "why": f"{self.user} {len(self.made)}"}
        self.took(self.client.post(f"{BASE}/changes", json=body), name, share, 409, 422)


def fight(service: Stage, kind: type[Manager]) -> list[Manager]:
    begin = Barrier(2)
    managers = [kind(service, user, begin) for user in ("mia", "adm")]
    for each in managers:
        each.start()
    for each in managers:
        each.join(300)
        assert not each.is_alive()
        assert each.wrong == []
    return managers


@pytest.mark.parametrize("kind", [WholeTree, OneChangeset])
def test_no_update_is_lost_and_the_log_makes_the_same_tree(served: Stage, kind: type[Manager]) -> None:
    managers = fight(served, kind)
    with served.client("adm") as client:
        told = client.get(f"{BASE}/history").json()
        tree = client.get(BASE).json()["budgets"]
    history = History(tuple(decode(each["edits"]) for each in told["changesets"]))
    assert history.head == 1 + 2 * EDITS, "each edit is one version"
    for each in managers:
        reasons = [made.reason for made in history.changesets if made.author == each.user]
        assert reasons == [f"{each.user} {number}" for number in range(EDITS)], "none is lost, none is twice"
    _check_steps(history, managers)
    state = served.live.state.budgets
    assert history.at(served.live.now()) == state, "the history makes the tree in force"
    assert last_in_journal(served) == state, "so does the journal"
    assert {name: parse_share(node["share"]) for name, node in tree["vision"]["children"].items()} == {
        child.name: child.share for child in state.roots[0].children
    }
    _check_words(managers, kind)


def _check_steps(history: History, managers: list[Manager]) -> None:
    """Each version changes just what its author meant, and keeps what the one before had made."""
    left = {each.user: iter(each.made) for each in managers}
    for made, before, after in history.steps()[1:]:
        name, share = next(left[made.author])
        was, now = ({child.name: child.share for child in tree.roots[0].children} for tree in (before, after))
        assert now == was | {name: parse_share(share)}, f"version {made.version} of {made.author}"


def _check_words(managers: list[Manager], kind: type[Manager]) -> None:
    """Who was second is told so, by whom, and what to do."""
    told = [text for each in managers for text in each.told]
    assert told, "two threads never met: this test tests nothing"
    for text in told:
        if kind is WholeTree:
            assert "the budgets have changed since you read them" in text
            assert "read them again, then make your change to those" in text
            assert "since then" in text and ("mia changed vision/" in text or "adm changed vision/" in text)
    if kind is OneChangeset:
        assert any("version" in text for text in told)


def last_in_journal(service: Stage) -> Any:
    last = None
    for _, facts, _ in service.store.records():
        for fact in facts:
            last = fact.budgets if isinstance(fact, BudgetsChanged) else last
    return last
