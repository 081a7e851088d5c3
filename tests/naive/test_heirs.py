"""Accounts renamed, merged, moved, split and closed at random: usage and entitlement equal a naive bundle of pasts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets, child_path, parent_of
from mirab.model.changesets import applied
from mirab.model.events import BudgetsChanged, Outcome
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.units import HOUR, MINUTE, WHOLE, AccountPath, NodeName, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.study import budgetedits as edits
from tests.driven import rebuilt
from tests.examples import examples
from tests.naive.heirs import Books, shares_of
from tests.pretend import Conduct, HandClock, PretendEngine, Recorder

WINDOW = 20 * HOUR
CLUSTER = Cluster("c", (Pool("n", tuple(NodeName(f"n{number}") for number in range(4)), 8),))
CAPACITY = 32 * 1000
TREE = Budgets(
    (
        Budget("lab", WHOLE // 2, (Budget("a", WHOLE // 2), Budget("b", WHOLE // 4))),
        Budget("firm", WHOLE // 4, (Budget("a", WHOLE // 2),)),
        Budget("solo", WHOLE // 5),
    )
)


class Firm:
    """A cluster with a history, and the naive books of it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = HandClock()
        self.engine = PretendEngine(CLUSTER, self.clock)
        self.policy = replace(Policy(), window=WINDOW, headroom=0)
        self.state = State(CLUSTER, TREE, self.policy)
        self.journal = Recorder()
        self.books = Books(TREE, CAPACITY)
        self.names = 0
        self.wake_at: int | None = None
        self.former = [str(path) for path in shares_of(TREE)]

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def step(self) -> None:
        self._pass(self.clock.instant + self.random.choice((MINUTE, HOUR, 5 * HOUR)))
        kind = self.random.choice(("submit", "submit", "submit", "end", "change", "change"))
        if kind == "submit":
            self._submit()
        elif kind == "end" and self.books.running:
            self._settle()
            if self.books.running:
                self._end(self.random.choice(sorted(self.books.running)))
        elif kind == "change":
            self._settle()
            self._change()
        self._settle()

    def _submit(self) -> None:
        account = self.random.choice(self.former)
        shape = Shape(self.random.choice((1, 1, 2)), 8, min_runtime=self.random.choice((20 * MINUTE, 3 * HOUR)))
        workload = Workload(WorkloadId(self.fresh("w")), self.clock.instant, AccountPath(account),
                            UserName(self.random.choice("uv")), shape)  # fmt: skip
        self.engine.arrive(workload, Conduct())

    def _end(self, workload_id: str) -> None:
        run_id = self.engine.run_of(WorkloadId(workload_id))
        if run_id is not None:
            self.engine.end(run_id, Outcome.COMPLETED)

    def _change(self) -> None:
        budgets = self.state.budgets
        for _ in range(10):
            try:
                after = self._changed(budgets)
            except (ValueError, IndexError):
                continue
            self.former += [str(path) for path in shares_of(after) if path not in self.former]
            self.engine.fact(BudgetsChanged(self.clock.instant, after))
            self.books.change(after, self.clock.instant)
            return

    def _changed(self, budgets: Budgets) -> Budgets:
        paths = sorted(shares_of(budgets))
        path = self.random.choice(paths)
        kind = self.random.choice(("rename", "merge", "split", "divide", "close", "move", "share", "collapse"))
        if kind == "rename":
            return applied(budgets, edits.renamed(budgets, path, self.fresh("r")))
        if kind == "merge":
            other = self.random.choice([each for each in paths if parent_of(each) == parent_of(path) and each != path])
            into = self.random.choice((other, child_path(parent_of(path), self.fresh("m"))))
            return applied(budgets, edits.merged(budgets, [path, other], into))
        if kind == "divide":
            parts = [Budget(self.fresh("d"), WHOLE // 2), Budget(self.fresh("d"), WHOLE // 4)]
            return applied(budgets, edits.split(budgets, path, parts))
        if kind == "close":
            return applied(budgets, edits.closed(budgets, path, "2026-03-01"))
        if kind == "share":
            return applied(budgets, edits.terms_changed(budgets, {path: {"share": WHOLE // 5}}))
        return self._rebuilt(budgets, path, kind)

    def _rebuilt(self, budgets: Budgets, path: str, kind: str) -> Budgets:
        """What a file can say and a changeset cannot: splitting beside, moving elsewhere, giving up a level."""
        budget = budgets.find(path)
        assert budget is not None
        if kind == "split":
            heir = replace(budget, name=self.fresh("s"), share=budget.share // 2, formerly=(*budget.formerly, path))
            return _with(budgets, path, (heir, Budget(self.fresh("s"), budget.share // 2)))
        if kind == "move":
            moved = replace(budget, name=self.fresh("v"), formerly=(*budget.formerly, path), share=WHOLE // 8)
            target = self.random.choice([each for each in shares_of(budgets) if not each.startswith(path)])
            there = budgets.find(target)
            assert there is not None
            grown = replace(there, children=(*there.children, moved))
            return _with(_with(budgets, target, (grown,)), path, ())
        if not parent_of(path):
            raise ValueError("stands at the top")
        parent = budgets.find(parent_of(path))
        assert parent is not None
        if budget.children:
            raise ValueError("has children")
        return _with(
            _with(budgets, path, ()), parent_of(path),
            (replace(_found(_with(budgets, path, ()), parent_of(path)),
                     formerly=(*parent.formerly, *budget.formerly, path)),),
        )  # fmt: skip

    def _settle(self) -> None:
        """Decide until nothing is due, then compare."""
        while True:
            plan = cycle(self.state, self.clock, self.engine, self.journal)
            self.state.check()
            self._follow()
            due = self.engine.next_due()
            if due is None or due > self.clock.instant:
                break
        self.wake_at = plan.wake_at
        self._compare()

    def _pass(self, until: int) -> None:
        """Time goes by, with every decision that is due meanwhile."""
        while True:
            due = [at for at in (self.wake_at, self.engine.next_due()) if at is not None and at < until]
            if not due:
                self.clock.instant = until
                return
            self.clock.instant = min(due)
            self._settle()

    def _follow(self) -> None:
        now = self.clock.instant
        there = {run.workload.id: run for run in self.state.runs.values() if run.started_at is not None}
        for workload_id in [each for each in self.books.running if each not in there]:
            self.books.end(workload_id, now)
        for workload_id, run in there.items():
            if workload_id not in self.books.running:
                asked = run.workload.account
                self.books.begin(workload_id, self.books.account_of(asked), run.rate, now)
            assert run.account.path.removesuffix("/*") == self.books.running[workload_id][0]

    def _compare(self) -> None:
        now = self.clock.instant
        paths = [path for path in self.state.accounts if not path.endswith("*")]
        assert sorted(paths) == sorted(self.books.pasts)
        for path in paths:
            account = self.state.accounts[path]
            used = self.books.used(path, now, WINDOW)
            assert abs(account.used(now) - used) <= len(self.books.pasts[path]), (path, now)
            promised = self.books.promised(path, now, WINDOW)
            assert abs(account.promised(now) // WHOLE - promised) <= len(self.books.pasts[path]), (path, now)


def _found(budgets: Budgets, path: str) -> Budget:
    found = budgets.find(path)
    assert found is not None
    return found


def _with(budgets: Budgets, path: str, instead: tuple[Budget, ...]) -> Budgets:
    """The tree with one account replaced by others."""

    def walk(above: str, siblings: tuple[Budget, ...]) -> tuple[Budget, ...]:
        found: list[Budget] = []
        for budget in siblings:
            here = f"{above}{budget.name}"
            found += instead if here == path else [replace(budget, children=walk(f"{here}/", budget.children))]
        return tuple(found)

    return Budgets(walk("", budgets.roots))


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 25))
def test_what_was_used_and_promised_follows_the_account(random: Random, steps: int) -> None:
    firm = Firm(random)
    for _ in range(steps):
        firm.step()
    again = rebuilt(CLUSTER, TREE, firm.policy, firm.journal.entries)
    again.check()
    now = firm.clock.instant
    assert [(path, account.weigh(now)) for path, account in again.accounts.items()] == [
        (path, account.weigh(now)) for path, account in firm.state.accounts.items()
    ]
