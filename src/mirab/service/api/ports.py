"""What the API asks of the rest of the service, and its own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import Any, Protocol

from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.records import AuditEntry, JobRow, JobState
from mirab.model.units import AccountPath, Instant
from mirab.service.auth.principal import Principal
from mirab.service.auth.tokens import TokenStore
from mirab.service.evidence import Calibration, WhenAnswer, WhyAnswer
from mirab.service.forms.jobs import Job, JobDetail, Jobs, SubmitRequest
from mirab.service.forms.machines import Node, Nodes, Squatters
from mirab.service.forms.sharing import Shares


class DeskPort(Protocol):
    """Every command of a person. Refuses with a `DeskError`."""

    def submit(self, who: Principal, request: SubmitRequest, key: str | None) -> Any: ...
    def dry_run(self, who: Principal, request: SubmitRequest) -> Any: ...
    def cancel(self, who: Principal, ids: Sequence[str], why: str = "") -> Any: ...
    def hold(self, who: Principal, ids: Sequence[str], why: str = "") -> Any: ...
    def release(self, who: Principal, ids: Sequence[str], why: str = "") -> Any: ...
    def requeue(self, who: Principal, ids: Sequence[str], why: str = "") -> Any: ...
    def checkpoint(self, who: Principal, name: str) -> Any: ...
    def node_drain(self, who: Principal, node: str, why: str) -> Any: ...
    def node_resume(self, who: Principal, node: str, why: str = "") -> Any: ...
    def node_report(self, who: Principal, node: str, xid: int | None = None, text: str = "") -> Any: ...
    def budgets(self) -> Any: ...
    def set_budgets(self, who: Principal, budgets: Any, base_version: str, why: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; None = any. `account` covers all below it."""

    states: tuple[JobState, ...] | None = None
    user: str | None = None
    account: str | None = None
    node: str | None = None
    label: str | None = None
    ids: tuple[str, ...] | None = None
    array_job: str | None = None
    after: str | None = None
    limit: int = 100
    newest_first: bool = False


class AnswersPort(Protocol):
    """Why and when."""

    def why(self, job_id: str, whatif: bool = True) -> WhyAnswer | None: ...
    def when(self, job_id: str, patience: float) -> WhenAnswer | None: ...
    def suppose(self, who: Principal, request: Any, patience: float) -> WhenAnswer: ...
    def calibration(self) -> Calibration: ...


class ViewsPort(Protocol):
    """What people read."""

    @property
    def answers(self) -> AnswersPort: ...
    def job(self, job_id: str) -> Job | None: ...
    def detail(self, job_id: str) -> JobDetail | None: ...
    def jobs(self, wanted: JobFilter) -> Jobs: ...
    def shares(self, path: str | None) -> Shares | None: ...
    def nodes(self) -> Nodes: ...
    def node(self, name: str) -> Node | None: ...
    def squatters(self) -> Squatters: ...
    def present(self) -> dict[str, Any]: ...
    def trend(self, path: str | None) -> dict[str, Any] | None: ...
    def observed_at(self, at: Instant) -> bool: ...
    def chronicle(self, before: int | None, limit: int, topics: Sequence[str], about: str | None) -> dict[str, Any]: ...


class LivePort(Protocol):
    """The running scheduler: its clock, what it decided, and whether it is well."""

    stopping: Flag

    def now(self) -> Instant: ...
    def heirs(self) -> Mapping[AccountPath, AccountPath]: ...
    def store_trouble(self) -> str: ...
    def subscribe(self, listener: Callable[[int, Sequence[Event], Plan], None]) -> Callable[[], None]: ...


class StorePort(TokenStore, Protocol):
    """The journal and the audit log, as far as they are shown, and the tokens."""

    def job(self, workload_id: str) -> JobRow | None: ...
    def records(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...], Plan]]: ...
    def last(self) -> tuple[int, Instant]: ...
    def decisions(
        self, after: int | None, before: int | None, limit: int, mentioning: str | None
    ) -> list[tuple[int, str, str]]: ...

    def audit(
        self, *, after: str | None, limit: int, who: str | None, target: str | None
    ) -> tuple[list[AuditEntry], str | None]: ...


class OutputsPort(Protocol):
    """Where a run writes."""

    def path(self, job_id: str, attempt: int, stream: str) -> Path | None:
        """The file of one attempt and stream (``out`` or ``err``); None = it has none."""

    def owner(self, job_id: str) -> int:
        """The Unix user that the job runs as, to whom its files belong."""

    def folder(self, job_id: str) -> Path | None:
        """The folder of the job's last attempt on this machine; None = it has none."""


class MetricsPort(Protocol):
    def render(self) -> tuple[bytes, str]:
        """All metrics and their content type."""

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Limits of the API.

    Attributes:
        hosts: names under which it may be asked over TCP, besides addresses and ``localhost``.
        body_max: bytes of a request's body.
        body_patience: seconds within which a body must have arrived.
        streams_max: event streams, followed outputs and long polls at a time.
        queue_max: decisions that an event stream may be behind before it is dropped.
        keep_alive: seconds between signs of life on a quiet stream.
        follow_every: seconds between two looks at a followed file.
        metrics_open: `/metrics` needs no token.
    """

    hosts: tuple[str, ...] = ()
    body_max: int = 8 << 20
    body_patience: float = 30.0
    streams_max: int = 400
    queue_max: int = 1_000
    keep_alive: float = 15.0
    follow_every: float = 0.3
    metrics_open: bool = True
