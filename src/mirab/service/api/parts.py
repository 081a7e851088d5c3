"""What the routes work with, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mirab.service.api.bus import Bus
from mirab.service.api.ports import (
    ApiSettings,
    DeskPort,
    LivePort,
    MetricsPort,
    OutputsPort,
    StorePort,
    ViewsPort,
)
from mirab.service.auth.authenticate import Authenticator
from mirab.service.auth.sessions import Sessions
from mirab.service.auth.tokens import TokenBook
from mirab.service.watch import StoreWatch


@dataclass(eq=False, kw_only=True)
class Parts:
    """The parts of the service that the API speaks for. `trouble`: why it is not ready, "" = it is.

    `watch`: whether the store answers; None = nobody asks it. `reports`: the folder of replays that are kept; None =
    there is none.
    """

    desk: DeskPort
    views: ViewsPort
    live: LivePort
    store: StorePort
    outputs: OutputsPort
    auth: Authenticator
    trouble: Callable[[], str]
    watch: StoreWatch | None = None
    metrics: MetricsPort | None = None
    settings: ApiSettings = field(default_factory=ApiSettings)
    sessions: Sessions = field(default_factory=Sessions)
    reports: Path | None = None

    def __post_init__(self) -> None:
        self.started_at = self.live.now()
        self.tokens = TokenBook(self.store)
        self.bus = Bus(self.live, self.settings)
