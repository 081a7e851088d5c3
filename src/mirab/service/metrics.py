"""What `/metrics` shows, for Prometheus: prefix `mirab_`, base units, labels whose values are few.

Counters are fed by the decider after each cycle; what is true now is read from the state when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from mirab import __version__
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.model.events import Event, RunAdopted, RunEnded
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.units import SECOND, AccountPath, NodeMask, RunId
from mirab.service.inbox import UnavailableError
from mirab.service.live import Live
from mirab.service.loop import Timing

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """All metrics of one service, in a registry of their own."""

    def __init__(self, live: Live) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._live = live
        self._slots: dict[RunId, int] = {run: start.allocation.slots for run, start in live.intents.starts.items()}
        self.registry = registry = CollectorRegistry()
        ProcessCollector(namespace="mirab", registry=registry)
        version = Gauge("mirab_build_info", "1, labelled with the version.", ("version",), registry=registry)
        version.labels(__version__).set(1)
        self.decisions = Counter("mirab_decisions", "Decisions recorded.", registry=registry)
        self.facts = Counter("mirab_facts", "Facts taken in, by kind.", ("kind",), registry=registry)
        self.actions = Counter(
            "mirab_actions", "Actions that the engine was given, by kind.", ("kind",), registry=registry
        )
        self.preemptions = Counter(
            "mirab_preemptions", "Runs told to stop, by the kind of reason.", ("cause",), registry=registry
        )
        self.ended = Counter("mirab_runs_ended", "Runs that ended, by outcome.", ("outcome",), registry=registry)
        self.lost = Counter(
            "mirab_lost_gpu_seconds", "Running time that has to be repeated, times its GPUs or cores.", ("outcome",),
            registry=registry,
        )  # fmt: skip
        self.decide = Histogram(
            "mirab_decision_seconds", "Time to decide, without recording.", buckets=FAST, registry=registry
        )
        self.append = Histogram(
            "mirab_store_append_seconds", "Time to record a decision durably.", buckets=FAST, registry=registry
        )
        self.cycle = Histogram(
            "mirab_cycle_seconds", "Time of a whole cycle: observe, decide, record, apply.", buckets=FAST,
            registry=registry,
        )  # fmt: skip
        self.requests = Histogram(
            "mirab_http_request_seconds", "Time to answer a request, by route.", ("route", "method", "status"),
            buckets=FAST, registry=registry,
        )  # fmt: skip
        registry.register(StateCollector(live))

    def after_cycle(self, seq: int, facts: Sequence[Event], plan: Plan, timing: Timing) -> None:
        """Called by the decider after each cycle, before anything else changes the state."""
        self.decisions.inc()
        for fact in facts:
            self.facts.labels(type(fact).__name__).inc()
            if isinstance(fact, RunEnded):
                self._run_ended(fact)
            elif isinstance(fact, RunAdopted):
                self._slots[fact.run_id] = fact.allocation.slots
        for action in () if self._live.state.policy.observing else plan.actions:
            self.actions.labels(type(action).__name__).inc()
            if isinstance(action, Preempt):
                self.preemptions.labels(type(action.reason).__name__).inc()
            elif isinstance(action, Start):
                self._slots[action.run_id] = action.allocation.slots
        self.decide.observe(timing.decide)
        self.append.observe(timing.append)
        self.cycle.observe(timing.total)

    def _run_ended(self, fact: RunEnded) -> None:
        slots = self._slots.pop(fact.run_id, 0)
        self.ended.labels(fact.outcome.value).inc()
        if fact.lost:
            self.lost.labels(fact.outcome.value).inc(fact.lost * slots / SECOND)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the pattern of its path, not the path."""
        self.requests.labels(route, method, str(status)).observe(seconds)

    def render(self) -> tuple[bytes, str]:
        """The text of all metrics and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE

    def names(self) -> dict[str, str]:
        """Name and meaning of every metric, as they are scraped."""
        return {metric.name: metric.documentation for metric in self.registry.collect()}


@dataclass(slots=True)
class _Family:
    """A metric that is read from the state."""

    name: str
    means: str
    labels: tuple[str, ...] = ()
    values: dict[tuple[str, ...], float] = field(default_factory=dict)

    def metric(self) -> Metric:
        metric = GaugeMetricFamily(self.name, self.means, labels=self.labels)
        for labels, value in self.values.items():
            metric.add_metric(labels, value)
        return metric


class StateCollector(Collector):
    """What is true now. While the state may not be read, only what needs no state is told."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def describe(self) -> Iterable[Metric]:
        return [family.metric() for family in (*self._service(), *_state_families())]

    def collect(self) -> Iterator[Metric]:
        for family in self._service():
            yield family.metric()
        try:
            with self._live.reading() as state:
                families = list(_of_state(state))
        except UnavailableError:
            return
        for family in families:
            yield family.metric()

    def _service(self) -> Iterator[_Family]:
        pulse, trouble = self._live.pulse, self._live.store_trouble()
        age = (self._live.now() - pulse.decided_at) / SECOND if pulse.decided_at else 0.0
        for name, means, value in (
            ("mirab_up", "1 while the scheduler decides and records.", float(pulse.ready and not trouble)),
            ("mirab_inbox_depth", "Commands that wait for the next decision.", float(self._live.inbox.depth)),
            ("mirab_last_decision_age_seconds", "Time since the last recorded decision.", age),
            ("mirab_journal_record", "Number of the last record of the journal.", float(pulse.seq)),
            ("mirab_store_trouble", "1 while the store cannot record.", float(bool(trouble))),
            ("mirab_backend_trouble", "1 while the backend fails.", float(bool(pulse.engine_trouble))),
            ("mirab_clock_offset_seconds", "How far the wall clock is ahead of the scheduler's own.",
             self._live.clock.offset() / SECOND),
        ):  # fmt: skip
            yield _Family(name, means, (), {(): value})


def _state_families() -> tuple[_Family, ...]:
    return (
        _Family("mirab_jobs_waiting", "Jobs in the queue, by account.", ("account",)),
        _Family("mirab_jobs_running", "Runs that have not ended, by account.", ("account",)),
        _Family("mirab_jobs_held", "Jobs kept out of the queue."),
        _Family("mirab_account_gpus_running", "GPUs (or cores) in use, by account.", ("account",)),
        _Family(
            "mirab_account_share_ratio",
            "(Used + committed) over what was promised in the window; +Inf where nothing was.",
            ("account",),
        ),
        _Family(
            "mirab_gpus",
            "GPUs (or cores, in a CPU pool) by pool and state: busy, free, draining, unavailable.",
            ("pool", "state"),
        ),
        _Family("mirab_occupancy_ratio", "Busy over what may be used, by pool.", ("pool",)),
        _Family("mirab_holds", "Jobs for which nodes are kept."),
        _Family("mirab_nodes_troubled", "Nodes that are not simply up, by health.", ("health",)),
    )


def _of_state(state: State) -> Iterator[_Family]:
    waiting, running, held, slots, ratios, gpus, occupancy, holds, troubled = _state_families()
    now = state.now
    for path, account in state.accounts.items():
        if account.leaf:
            waiting.values[_name(path),] = _waiting(account)
            running.values[_name(path),] = slots.values[_name(path),] = 0
        ratios.values[_name(path),] = account.ratio(now)
    for run in state.runs.values():
        running.values[_name(run.account.path),] += 1
        slots.values[_name(run.account.path),] += run.allocation.slots
    held.values[()] = len(state.held)
    holds.values[()] = len(state.holds)
    for number in range(len(state.banks)):
        _pool(state, number, gpus, occupancy)
    for trouble in state.troubled.values():
        troubled.values[trouble.health.value,] = troubled.values.get((trouble.health.value,), 0) + 1
    yield from (waiting, running, held, slots, ratios, gpus, occupancy, holds, troubled)


def _name(path: AccountPath) -> str:
    return str(path)


def _waiting(account: Account) -> int:
    return sum(len(queue.entries) for user in account.users.values() for queue in user.queues.values())


def _pool(state: State, number: int, gpus: _Family, occupancy: _Family) -> None:
    bank, pool = state.banks[number], state.banks[number].pool
    everything: NodeMask = (1 << len(pool.nodes)) - 1
    usable = state.usable[number]
    free = bank.free_slots(usable)
    busy = pool.slots - bank.free_slots(everything)
    on_sick = everything & ~usable
    draining = on_sick.bit_count() * bank.slots - bank.free_slots(on_sick)
    counts = {"busy": busy - draining, "free": free, "draining": draining}
    counts["unavailable"] = pool.slots - sum(counts.values())
    for name, count in counts.items():
        gpus.values[pool.name, name] = count
    whole = usable.bit_count() * bank.slots
    occupancy.values[pool.name,] = (whole - free) / whole if whole else 0.0
