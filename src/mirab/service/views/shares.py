"""The share tree: what each account is promised, what it got, what it is owed, and who runs and waits in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Any, NamedTuple

from mirab.core.queues import User
from mirab.core.runs import Run
from mirab.core.shares import Account, compared
from mirab.core.state import State
from mirab.model.accounts import REST, Budget, Budgets, is_meant, ledger_of, ledger_path, plain
from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Charge, Instant, UserName, WorkloadId
from mirab.service.forms.sharing import ShareAccount, ShareLedger, ShareUser
from mirab.service.lookahead import Batch
from mirab.service.views import homes
from mirab.service.views.accruals import Got
from mirab.service.views.moments import iso

NOTHING = Got(0, 0)
USERS_MOST = 2_000
"""So many users of a tree, and they are not listed: ask for a part of it."""


@dataclass(slots=True)
class Crowd:
    """Who runs and waits, of an account or a user. Slots are GPUs; of a pool without, none are counted."""

    running_gpus: int = 0
    waiting_jobs: int = 0
    waiting_gpus: int = 0
    committed: Charge = 0

    def add(self, other: Crowd) -> None:
        self.running_gpus += other.running_gpus
        self.waiting_jobs += other.waiting_jobs
        self.waiting_gpus += other.waiting_gpus
        self.committed += other.committed

    @property
    def empty(self) -> bool:
        return not (self.running_gpus or self.waiting_jobs or self.committed)


@dataclass(slots=True)
class Line:
    """One account as it stands, in numbers of the core.

    `par`: the part of `used` that was never charged; `share_gpus`: its share of the GPUs that its ledger has.
    """

    account: Account
    used: Charge
    par: Charge
    promised: int
    crowd: Crowd
    share_gpus: float
    users: list[tuple[UserName, Charge, Crowd]] = field(default_factory=list)


def lines(state: State, now: Instant, below: str | None = None) -> list[Line]:
    """Every account that is open or has something, parents first; with `below`, it and those under it.

    Where pools have shares of their own the main tree comes first, then those of the pools; an account named without
    its pool is meant in all of them. Their users are listed where they are `USERS_MOST` at most: of a large tree ask
    for a part.
    """
    wanted = [account for path, account in state.accounts.items() if below is None or is_meant(below, path)]
    if state.divided:
        wanted.sort(key=lambda account: homes.order_of(state, account.path))
    crowds = _crowds(state, now)
    gpus = {name: _gpus(state, ledger.pools) for name, ledger in state.ledgers.items()}
    with_users = sum(len(account.users) for account in wanted) <= USERS_MOST
    runs = _runs_by_user(state) if with_users else {}
    found = []
    for account in wanted:
        crowd = crowds.get(account, Crowd())
        crowd.committed += account.held
        own = account.share / WHOLE * gpus[ledger_of(account.path)]
        line = Line(account, account.used(now), account.par(now), account.promised(now), crowd, own)
        if _shown(state, line, now):
            line.users = list(_users(account, runs, state, now)) if with_users else []
            found.append(line)
    return found


def _gpus(state: State, numbers: Sequence[int]) -> int:
    pools = [state.cluster.pools[number] for number in numbers]
    return sum(pool.gpus_per_node * len(pool.nodes) for pool in pools)


def _shown(state: State, line: Line, now: Instant) -> bool:
    path, window = line.account.path, line.account.window
    if path.rpartition("/")[2] != REST and state.is_open(plain(path)) and state.ledgers[ledger_of(path)].pools:
        return True
    return not line.crowd.empty or line.account.usage.between(window.at(now)[0], now) > 0


def _crowds(state: State, now: Instant) -> dict[Account, Crowd]:
    """Each account with all below it."""
    leaves = {account: _waiting(account.users.values()) for account in state.accounts.values() if account.users}
    for run in state.runs.values():
        _add_run(leaves.setdefault(run.account, Crowd()), run, state, now)
    sums: dict[Account, Crowd] = {}
    for leaf, crowd in leaves.items():
        for account in leaf.lineage:
            sums.setdefault(account, Crowd()).add(crowd)
    return sums


def _waiting(users: Iterable[User]) -> Crowd:
    jobs = gpus = 0
    for user in users:
        for queue in user.queues.values():
            count = len(queue.entries)
            jobs += count
            gpus += count * queue.info.shape.gpus
    return Crowd(waiting_jobs=jobs, waiting_gpus=gpus)


def _add_run(crowd: Crowd, run: Run, state: State, now: Instant) -> None:
    if state.cluster.pools[run.allocation.pool].gpus_per_node:
        crowd.running_gpus += run.allocation.slots
    crowd.committed += run.rate * max(0, run.committed_until - now)


def _runs_by_user(state: State) -> dict[User, list[Run]]:
    found: dict[User, list[Run]] = {}
    for run in state.runs.values():
        found.setdefault(run.user, []).append(run)
    return found


def _users(account: Account, runs: Mapping[User, list[Run]], state: State, now: Instant) -> Iterator[
    tuple[UserName, Charge, Crowd]
]:  # fmt: skip
    """The users of a leaf who have, run or want something."""
    for user in account.users.values():
        crowd = _waiting((user,))
        for run in runs.get(user, ()):
            _add_run(crowd, run, state, now)
        crowd.committed += user.held
        used = max(0, user.usage.between(account.window.at(now)[0], now))
        if used or not crowd.empty:
            yield user.name, used, crowd


class Next(NamedTuple):
    """The waiting job that is forecast to start first: in half of the runs forward by `p50`."""

    p50: Instant
    job: WorkloadId
    p90: Instant | None


def next_starts(state: State, batch: Batch, now: Instant) -> dict[str, Next]:
    """Of each account with all below it, as far as the newest forecasts know; one that is overdue is due now."""
    found: dict[str, Next] = {}
    for told in batch.forecasts.values():
        pending = state.pending.get(told.workload)
        if pending is None or pending.queue is None or told.p50 is None:
            continue
        p90 = None if told.p90 is None else max(now, told.p90)
        mine = Next(max(now, told.p50), told.workload, p90)
        for account in pending.queue.user.account.lineage:
            best = found.get(account.path)
            if best is None or mine[:2] < best[:2]:
                found[account.path] = mine
    return found


def ledgers(state: State) -> list[ShareLedger]:
    """The ledgers and what is in them, the main one first; none where there is but one."""
    if not homes.divided_now(state):
        return []
    found = sorted(state.ledgers.values(), key=lambda each: homes.order_of(state, ledger_path(each.name, "")))
    return [_ledger(state, each.name, each.pools) for each in found if each.pools]


def _ledger(state: State, name: str, numbers: Sequence[int]) -> ShareLedger:
    pools = [state.cluster.pools[number] for number in numbers]
    return ShareLedger(
        name=name,
        pools=[pool.name for pool in pools],
        gpus=sum(pool.slots for pool in pools if pool.gpus_per_node),
        units=sum(pool.charge_units for pool in pools) / UNIT,
        schedulable=state.schedulable(numbers) / UNIT,
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of accounts beside where they stand. Without `got`, owed and delivered are absent.

    `debts`: as `trend.ages` tells them; `nexts`: see `next_starts`.
    """

    got: Mapping[AccountPath, Got] | None
    debts: Mapping[str, Mapping[str, Any]]
    nexts: Mapping[str, Next]
    budgets: Budgets


def told(found: Iterable[Line], seen: Evidence) -> list[ShareAccount]:
    """The lines as they go over the wire."""
    sums = None if seen.got is None else _with_all_below(seen.got)
    terms = {str(path): budget for path, budget, _ in seen.budgets.walk()}
    return [
        _told(line, None if sums is None else sums.get(line.account.path, NOTHING)).model_copy(
            update=_beside(line.account.path, terms.get(plain(line.account.path)), seen)
        )
        for line in found
    ]


def _beside(path: str, budget: Budget | None, seen: Evidence) -> dict[str, Any]:
    debt, first = seen.debts.get(path), seen.nexts.get(path)
    found: dict[str, Any] = {}
    if debt is not None and debt["debt_h"] > 0:
        found |= {"debt_from": debt["leaves_from"], "debt_gone_by": debt["gone_by"]}
    if first is not None:
        p90 = None if first.p90 is None else iso(first.p90)
        found |= {"next_job": first.job, "next_start": iso(first.p50), "next_start_p90": p90}
    if budget is not None:
        found |= {"owner": budget.owner, "review": budget.review, "hypothesis": budget.hypothesis}
    return found


def _with_all_below(got: Mapping[AccountPath, Got]) -> dict[str, Got]:
    """Leaves, and each account above them with the sum of its leaves."""
    sums: dict[str, Got] = {}
    for path, each in got.items():
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            above = "/".join(names[:depth])
            before = sums.get(above, NOTHING)
            sums[above] = Got(before.owed + each.owed, before.delivered + each.delivered)
    return sums


def _told(line: Line, got: Got | None) -> ShareAccount:
    account, crowd = line.account, line.crowd
    owed, delivered = (None, None) if got is None else got
    ratio = compared(line.used + crowd.committed, line.promised)
    return ShareAccount(
        path=account.path,
        ledger=ledger_of(account.path),
        share=account.share / WHOLE,
        used_h=hours(max(0, line.used - line.par)),
        par_h=hours(line.par),
        owed_h=None if owed is None else scaled_hours(owed),
        delivered_h=None if delivered is None else scaled_hours(delivered),
        debt_h=None if owed is None or delivered is None else scaled_hours(owed - delivered),
        entitled_h=scaled_hours(line.promised),
        committed_h=hours(crowd.committed),
        ratio=None if isinf(ratio) else round(ratio, 4),
        running_gpus=crowd.running_gpus,
        borrowed_gpus=round(max(0.0, crowd.running_gpus - line.share_gpus), 1),
        waiting_jobs=crowd.waiting_jobs,
        waiting_gpus=crowd.waiting_gpus,
        users=[_user(name, used, crowd) for name, used, crowd in sorted(line.users, key=lambda each: each[0])],
    )


def _user(name: UserName, used: Charge, crowd: Crowd) -> ShareUser:
    return ShareUser(
        user=name or "(all)",
        used_h=hours(used),
        committed_h=hours(crowd.committed),
        running_gpus=crowd.running_gpus,
        waiting_jobs=crowd.waiting_jobs,
    )


def hours(amount: Charge) -> float:
    """Charge as GPU-hours of weight 1."""
    return round(amount / (UNIT * HOUR), 3)


def scaled_hours(amount: int) -> float:
    """The same of charge times `WHOLE`."""
    return round(amount / (WHOLE * UNIT * HOUR), 3)
