"""Who waits: FIFO queues by account, user and shape, so that a pass looks at heads only."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

from mypy_extensions import mypyc_attr

from mirab.core.meter import Commitment, add_up, usage_meter
from mirab.core.runs import NOTHING_IN_VAIN, InVain
from mirab.model.plans import Waiting
from mirab.model.resources import Shape
from mirab.model.units import FOREVER, Charge, ChargeRate, Duration, Instant, UserName, WorkloadId
from mirab.model.workloads import Workload

if TYPE_CHECKING:
    from mirab.core.shares import Account

Rank: TypeAlias = tuple[Instant, int, bool, Instant, WorkloadId]


def rank(workload: Workload, attempt: int) -> Rank:
    """The order inside a user: (1) least slack to the deadline, (2) own priority, (3) resumed before new,
    (4) submission, (5) id.

    Slack = deadline - now - time limit; `now` is the same for all, so it is left out.
    """
    slack = FOREVER if workload.deadline_at is None else workload.deadline_at - (workload.shape.time_limit or 0)
    return slack, -workload.priority, attempt == 1, workload.submitted_at, workload.id


Size: TypeAlias = tuple[tuple[tuple[int, int], ...], int]
"""((pool, slots per node), ...) and how many nodes: what decides whether free nodes are enough."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Pending:
    """A workload that waits. `attempt` is the number its next run will have; `vain`: see `Run.vain`."""

    __slots__ = ("attempt", "id", "queue", "rank", "vain", "waiting", "workload")

    def __init__(self, workload: Workload, attempt: int, vain: InVain = NOTHING_IN_VAIN) -> None:
        self.workload = workload
        self.id = workload.id
        self.attempt = attempt
        self.vain = vain
        self.rank = rank(workload, attempt)
        self.queue: Queue | None = None
        self.waiting: Waiting | None = None
        """The last reason recorded for it."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class ShapeInfo:
    """What is worked out once for each distinct shape, and the queues that wait with it, by account."""

    __slots__ = (
        "charged",
        "commitment",
        "gang",
        "min_runtime",
        "nodes",
        "pairs",
        "pools",
        "queues",
        "rates",
        "shape",
        "size",
        "slots",
        "stake",
        "stay",
        "widths",
    )

    def __init__(self, shape: Shape, pools: tuple[int, ...], widths: tuple[int, ...], rates: tuple[ChargeRate, ...],
                 min_runtime: Duration, commitment: Duration, stay: Duration, charged: bool,
                 gang: bool) -> None:  # fmt: skip
        self.shape = shape
        self.nodes = shape.nodes
        self.pools = pools
        self.widths = widths
        """Slots per node in each of `pools`."""
        self.pairs = tuple(zip(pools, widths, strict=True))
        self.rates = rates
        """Charge rate in each of `pools`."""
        self.min_runtime = min_runtime
        """The contract in force: what was asked, bounded by the cap."""
        self.commitment = commitment
        """How long a start counts as committed."""
        self.stake = max(rates, default=0) * commitment
        """The most that a start commits its account to."""
        self.stay = stay
        """How long after its start it can be made to have left; `FOREVER` = not known."""
        self.charged = charged
        """Whether it is charged: under a minimum above 0, or whatever it asks where there is no contract."""
        self.size = (self.pairs, self.nodes)
        """Shapes of one size find room together."""
        self.slots = self.nodes * min(widths, default=0)
        self.gang = gang
        """Large enough to earn a hold."""
        self.queues: dict[str, dict[UserName, Queue]] = {}

    def rate_in(self, pool: int) -> ChargeRate:
        """The charge rate in one of `pools`."""
        return self.rates[self.pools.index(pool)]


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class User:
    """A user inside one leaf account: own usage, own commitment, own queues."""

    __slots__ = ("account", "commitment", "held", "name", "queues", "uncharged", "usage")

    def __init__(self, name: UserName, account: Account, now: Instant, half_life: Duration | None) -> None:
        self.name = name
        self.account = account
        self.usage = usage_meter(now, half_life)
        self.uncharged = usage_meter(now, half_life)
        self.commitment = Commitment()
        self.held: Charge = 0
        self.queues: dict[Shape, Queue] = {}

    def take_over(self, other: User, now: Instant) -> None:
        """What another user, of a former account, used and has running counts here."""
        add_up(self.usage, other.usage, now)
        add_up(self.uncharged, other.uncharged, now)
        self.commitment.shift(other.commitment)
        self.held += other.held


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Queue:
    """The pending workloads of one user in one account with one shape, in the user's order."""

    __slots__ = ("_ranks", "entries", "info", "user")

    def __init__(self, user: User, info: ShapeInfo) -> None:
        self.user = user
        self.info = info
        self.entries: list[Pending] = []
        self._ranks: list[Rank] = []

    def push(self, pending: Pending) -> None:
        place = bisect_left(self._ranks, pending.rank)
        self._ranks.insert(place, pending.rank)
        self.entries.insert(place, pending)
        pending.queue = self

    def remove(self, pending: Pending) -> None:
        place = bisect_left(self._ranks, pending.rank)
        if place >= len(self.entries) or self.entries[place] is not pending:
            raise AssertionError(f"{pending.id} is not in its queue")
        del self._ranks[place], self.entries[place]
        pending.queue = None

    @property
    def head(self) -> Pending:
        return self.entries[0]
