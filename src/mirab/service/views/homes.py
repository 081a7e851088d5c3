"""Which ledger work belongs to, and why, for people: where pools have shares of their own."""

from __future__ import annotations

from collections.abc import Sequence

from mirab.core.state import State
from mirab.model.accounts import ledger_of, ledger_path
from mirab.model.resources import Shape
from mirab.model.units import WHOLE, AccountPath
from mirab.study.formats import Names

Promises = Sequence[tuple[str, int]]


def divided_now(state: State) -> bool:
    """Whether a ledger beside the main one is in force; `state.divided` says whether there was one, too."""
    return sum(ledger.in_force for ledger in state.ledgers.values()) > 1


def order_of(state: State, path: str) -> int:
    """The place of an account's ledger for people: the main one, those of pools as the cluster has them, past ones."""
    name = ledger_of(path)
    if not name:
        return 0
    return 1 + state.by_pool.index(name) if name in state.by_pool else 1 + len(state.by_pool)


def pools_of(state: State, path: str) -> tuple[int, ...] | None:
    """The pools of an account's ledger; None = it is the only one, and has all."""
    return state.ledgers[ledger_of(path)].pools if state.divided else None


def home_of(state: State, account: AccountPath, shape: Shape) -> tuple[AccountPath, str]:
    """The account as the ledger calls it that work goes to, and the sentence why; "" where there is but one ledger."""
    name = state.ledger_for(account, shape)
    path = ledger_path(name, account)
    if not divided_now(state):
        return path, ""
    own = [ledger.name for ledger in state.ledgers.values() if ledger.name and ledger.in_force]
    return path, home_sentence(account, shape, state.promised(account, shape), own, Names(0, state.cluster.unit))


def home_sentence(account: AccountPath, shape: Shape, promised: Promises, own: Sequence[str], names: Names) -> str:
    """``it is charged to h100:vision: only pool h100, which has shares of its own, could hold it``.

    Args:
        promised: as `mirab.core.promises.promises` says it; own: pools with shares of their own.
    """
    if not promised:
        return ""
    (name, most), others = promised[0], promised[1:]
    told = f"it is charged to {ledger_path(name, account)}"
    if not others and name:
        return f"{told}: only pool {name}, which has shares of its own, could hold it"
    if not others:
        return f"{told}: no pool with shares of its own ({', '.join(own)}) could hold it"
    if not shape.gpus_per_node:
        return f"{told}: it asks for no GPU, and goes where it takes none from others, or most is promised to it"
    rest = ", ".join(f"{_amount(amount)} as {ledger_path(ledger, account)}" for ledger, amount in others)
    if most == others[0][1]:
        return f"{told}, whose pool comes first: its account is promised as much there as elsewhere ({rest})"
    there = f"{_amount(most)} of the {names.many} that could hold it"
    return f"{told}, where its account is promised most: {there}, against {rest}"


def _amount(promised: int) -> str:
    return f"{promised / WHOLE:,.1f}"
