"""The share tree: what each account is promised, what it got, what it is owed, and who runs and waits in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf

from mirab.core.runs import Run
from mirab.core.shares import REST, Account, compared
from mirab.core.state import State
from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Charge, Instant, UserName
from mirab.service.schemas import ShareAccount, ShareUser
from mirab.service.views.accruals import Got

NOTHING = Got(0, 0)


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


@dataclass(slots=True)
class Line:
    """One account as it stands, in numbers of the core."""

    account: Account
    used: Charge
    promised: int
    crowd: Crowd
    users: dict[UserName, tuple[Charge, Crowd]] = field(default_factory=dict)


def lines(state: State, now: Instant, below: str | None = None) -> list[Line]:
    """Every account that is open or has something, parents first; with `below`, it and those under it."""
    crowds = _crowds(state, now)
    sums = _summed(crowds)
    found = []
    for path, account in state.accounts.items():
        if below is not None and not (path == below or path.startswith(f"{below}/")):
            continue
        crowd = sums.get(account, Crowd())
        crowd.committed += account.held
        users = _users(account, state, now, crowds.get(account, {}))
        line = Line(account, account.used(now), account.promised(now), crowd, users)
        if _shown(state, line, now):
            found.append(line)
    return found


def _shown(state: State, line: Line, now: Instant) -> bool:
    path = line.account.path
    if path.rpartition("/")[2] != REST and state.is_open(path):
        return True
    busy = line.crowd.running_gpus or line.crowd.waiting_jobs or line.crowd.committed
    return bool(busy or line.account.usage.between(now - state.policy.window, now) > 0)


def _crowds(state: State, now: Instant) -> dict[Account, dict[UserName, Crowd]]:
    """Leaf -> user -> who runs and waits."""
    found: dict[Account, dict[UserName, Crowd]] = {}
    for run in state.runs.values():
        crowd = found.setdefault(run.account, {}).setdefault(run.user.name, Crowd())
        pool = state.cluster.pools[run.allocation.pool]
        crowd.running_gpus += run.allocation.slots if pool.gpus_per_node else 0
        crowd.committed += _committed(run, now)
    for account in state.accounts.values():
        for user in account.users.values():
            for queue in user.queues.values():
                crowd = found.setdefault(account, {}).setdefault(user.name, Crowd())
                crowd.waiting_jobs += len(queue.entries)
                crowd.waiting_gpus += len(queue.entries) * queue.info.shape.gpus
    return found


def _summed(crowds: Mapping[Account, Mapping[UserName, Crowd]]) -> dict[Account, Crowd]:
    """Each account with all below it."""
    sums: dict[Account, Crowd] = {}
    for leaf, members in crowds.items():
        for account in leaf.lineage:
            crowd = sums.setdefault(account, Crowd())
            for each in members.values():
                crowd.add(each)
    return sums


def _committed(run: Run, now: Instant) -> Charge:
    return run.rate * max(0, run.committed_until - now)


def _users(account: Account, state: State, now: Instant, crowds: Mapping[UserName, Crowd]) -> dict[
    UserName, tuple[Charge, Crowd]
]:  # fmt: skip
    found = {}
    for name, user in account.users.items():
        used = max(0, user.usage.between(now - state.policy.window, now))
        crowd = crowds.get(name, Crowd())
        crowd.committed += user.held
        if used or crowd != Crowd():
            found[name] = used, crowd
    return found


def told(found: Iterable[Line], got: Mapping[AccountPath, Got] | None) -> list[ShareAccount]:
    """The lines as they go over the wire; without `got`, owed and delivered are absent."""
    sums = None if got is None else _with_all_below(got)
    return [_told(line, None if sums is None else sums.get(line.account.path, NOTHING)) for line in found]


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
        share=account.share / WHOLE,
        used_h=hours(line.used),
        owed_h=None if owed is None else scaled_hours(owed),
        delivered_h=None if delivered is None else scaled_hours(delivered),
        debt_h=None if owed is None or delivered is None else scaled_hours(owed - delivered),
        entitled_h=scaled_hours(line.promised),
        committed_h=hours(crowd.committed),
        ratio=None if isinf(ratio) else round(ratio, 4),
        running_gpus=crowd.running_gpus,
        waiting_jobs=crowd.waiting_jobs,
        waiting_gpus=crowd.waiting_gpus,
        users=[_user(name, used, crowd) for name, (used, crowd) in sorted(line.users.items())],
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
