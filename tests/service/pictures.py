"""What a state knows, as plain values that can be compared."""

from __future__ import annotations

from mirab.core.state import State


def picture(state: State) -> dict[str, object]:
    """Equal pictures: the same runs, queues, nodes and holds, and the same usage to the last unit."""
    accounts = {
        path: (account.share, account.used(state.now), account.promised(state.now), account.committed(state.now),
               account.running, account.waiting)
        for path, account in state.accounts.items()
    }  # fmt: skip
    runs = {
        run_id: (run.started_at, run.protected_until, run.stop_by, run.rate, run.allocation, run.checkpoint_at)
        for run_id, run in state.runs.items()
    }
    waits = {each: (pending.attempt, pending.waiting) for each, pending in state.pending.items()}
    nodes = {place: (node.health, node.since) for place, node in state.troubled.items()}
    return {
        "accounts": accounts, "runs": runs, "pending": waits, "held": list(state.held), "holds": state.holds,
        "nodes": nodes, "free": [bank.free for bank in state.banks], "now": state.now, "folded": state.folded,
        "reservations": state.reservations, "exemptions": state.exemptions,
    }  # fmt: skip
