"""What must be true of every state, asserted with the subject's story in the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirab.core.nodes import Bank, Health
from mirab.model.units import NodeMask

if TYPE_CHECKING:
    from mirab.core.state import State


def check(state: State) -> None:
    """Raise AssertionError if any invariant does not hold. Costs a pass over everything: for tests and for recovery."""
    _check_nodes(state)
    _check_accounts(state)
    _check_queues(state)
    _check_holds(state)


def _check_nodes(state: State) -> None:
    booked = [Bank(pool) for pool in state.cluster.pools]
    for run in state.runs.values():
        booked[run.allocation.pool].take(run.allocation)
        wanted, given = run.workload.shape.nodes, run.allocation.mask.bit_count()
        assert given == wanted or run.adopted, f"{run} has {run.allocation} and needs {wanted} nodes"
        payer = run.account.ledger.name
        assert payer == state.by_pool[run.pool], f"{run} is on pool {run.pool} and is charged to {run.account.path}"
    for bank, expected, usable in zip(state.banks, booked, state.usable, strict=True):
        assert bank.free == expected.free, f"pool {bank.pool.name} books other GPUs than its runs use"
        _check_look(bank, usable)
    for (number, node), trouble in state.troubled.items():
        takes_work = state.usable[number] >> node & 1
        assert trouble.runs == state.runs_on((number, node)), (
            f"node {node} of pool {number} knows other runs than run on it"
        )
        assert not takes_work, f"node {node} of pool {number} is {trouble.health} and takes work"
    emptying = {
        place: each for place, each in state.troubled.items() if each.health in (Health.DEGRADED, Health.DRAINING)
    }
    assert state.emptying == emptying, "other nodes are to be emptied than those that are sick or draining"
    for ledger in state.ledgers.values():
        known, there = ledger.window.capacity.rate, state.schedulable(ledger.pools)
        assert known == there, f"the capacity meter of {ledger} has another rate than the nodes"


def _check_look(bank: Bank, usable: NodeMask) -> None:
    name, look = bank.pool.name, bank.look
    assert look.slots_free in (-1, bank.free_slots(usable)), f"pool {name} has other free GPUs than it remembers"
    for width, wide in zip(range(bank.slots, -1, -1), look.wide, strict=False):
        assert wide == bank.with_free(width) & usable, f"pool {name} has other nodes with {width} free"
        assert look.counts[width] in (-1, wide.bit_count()), f"pool {name} counts its nodes with {width} free wrongly"


def _check_accounts(state: State) -> None:
    usage = dict.fromkeys(state.accounts, 0)
    commitment = dict.fromkeys(state.accounts, 0)
    slots = dict.fromkeys(state.accounts, 0)
    gpus = dict.fromkeys(state.accounts, 0)
    for run in state.runs.values():
        for account in run.account.lineage:
            usage[account.path] += run.rate if run.charged and run.started_at is not None else 0
            commitment[account.path] += run.rate if run.committed_until else 0
            slots[account.path] += state.uncharged_rate(run)
            gpus[account.home.path] += run.workload.shape.gpus
    for leaf, rate in state.charging.values():
        for account in leaf.lineage:
            usage[account.path] += rate
    for path, account in state.accounts.items():
        assert account.usage.rate == usage[path], f"{path} is charged {account.usage.rate}, its runs use {usage[path]}"
        assert account.commitment.rate == commitment[path], f"{path} commits another rate than its runs"
        assert account.running == slots[path], f"{path} counts {account.running} as running, runs {slots[path]}"
        assert account.gpus == gpus[path], f"{path} counts {account.gpus} GPUs, its runs have {gpus[path]}"
        assert account.held >= 0, f"{path} has given back more held charge than it took"


def _check_queues(state: State) -> None:
    queued = 0
    for account in state.accounts.values():
        waiting = 0
        for user in account.users.values():
            for shape, queue in user.queues.items():
                assert queue.entries, f"{account.path}/{user.name} keeps an empty queue for {shape}"
                ranks = [pending.rank for pending in queue.entries]
                assert ranks == sorted(ranks), f"the queue of {account.path}/{user.name} is out of order"
                waiting += len(queue.entries) if queue.info.charged else 0
                queued += len(queue.entries)
        waiting += sum(child.waiting for child in account.children)
        assert waiting == account.waiting, f"{account.path} counts {account.waiting} waiting, has {waiting}"
    assert queued == len(state.pending), f"{queued} are queued and {len(state.pending)} pending"
    for run in state.runs.values():
        assert run.workload.id not in state.pending, f"{run.workload.id} runs and waits at once"


def _check_holds(state: State) -> None:
    taken = {claim: [0] * len(state.banks) for claim in (False, True)}
    for workload_id, hold in state.holds.items():
        assert workload_id in state.pending, f"nodes are held for {workload_id}, which does not wait"
        if not hold.claim or hold.slots_per_node >= state.banks[hold.pool].slots:
            assert not taken[hold.claim][hold.pool] & hold.mask, f"nodes of {workload_id}'s hold are held twice"
            taken[hold.claim][hold.pool] |= hold.mask
    for workload_id, runs in state.victims.items():
        for run_id in runs:
            assert state.runs[run_id].stopping, f"{run_id} is a victim of {workload_id} and was not told to stop"
