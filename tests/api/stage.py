"""A real service on real sockets for tests: SQLite, the loop, the desk, an engine that runs nothing, and the API."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import httpx

from mirab.backends.null import NullBackend
from mirab.model.accounts import Budgets
from mirab.model.policy import Policy
from mirab.model.records import Beginning
from mirab.model.resources import Cluster
from mirab.service.api.app import create_app
from mirab.service.api.parts import Parts
from mirab.service.api.ports import ApiSettings
from mirab.service.api.server import ApiServer, listening
from mirab.service.auth.authenticate import Authenticator, LocalUsers
from mirab.service.auth.principal import Principal, parse_grant
from mirab.service.auth.tokens import TokenBook
from mirab.service.clock import LiveClock
from mirab.service.desk.desk import Desk
from mirab.service.live import Live
from mirab.service.loop import Decider
from mirab.service.recover import Wanted, recover
from mirab.service.views import Views
from mirab.store import Store, open_store
from tests.service.house import BUDGETS, nodes

PATIENCE = 180.0
"""Seconds until a test gives up on something that takes milliseconds."""

PEOPLE: Mapping[str, tuple[str, ...]] = {
    "ada": ("researcher:vision/video",),
    "bob": ("researcher:vision/video",),
    "eve": ("researcher:llm",),
    "mia": ("manager:vision",),
    "max": ("manager:llm",),
    "ops": ("operator",),
    "opv": ("operator:vision",),
    "adv": ("admin:vision",),
    "adm": ("admin",),
}
"""User -> grants. Jobs of the tests are ada's, of vision/video."""


@dataclass
class Outputs:
    """Output files that a test names."""

    files: dict[tuple[str, int, str], Path] = field(default_factory=dict)
    uid: int = field(default_factory=os.geteuid)
    folders: dict[str, Path] = field(default_factory=dict)

    def path(self, job_id: str, attempt: int, stream: str) -> Path | None:
        return self.files.get((job_id, attempt, stream))

    def owner(self, job_id: str) -> int:
        return self.uid

    def folder(self, job_id: str) -> Path | None:
        return self.folders.get(job_id)


PLAIN = False
"""There is no TLS here, and to load the machine's certificates for each client costs more than the requests."""


class Stage:
    """Everything, until `close`. `http` talks over TCP as nobody; `client` as somebody."""

    def __init__(self, folder: Path, settings: ApiSettings, local: LocalUsers, cluster: Cluster | None = None,
                 budgets: Budgets = BUDGETS) -> None:  # fmt: skip
        self.store: Store = open_store(f"sqlite:///{folder}/mirab.db")
        self.store.lead()
        clock = LiveClock()
        found = recover(self.store, Wanted(), Beginning(cluster or nodes(4), budgets, Policy(), clock.now()))
        self.live = Live(self.store, found.state, clock, found.intents)
        self.engine = NullBackend(self.store.spec, clock.now, self.live.bell.ring)
        self.desk = Desk(self.live, run_as=lambda who: (None, None))
        self.outputs = Outputs()
        self.parts = Parts(
            desk=self.desk,
            views=Views(self.live, self.desk),
            live=self.live,
            store=self.store,
            outputs=self.outputs,
            auth=Authenticator(self.store, self.live.now, local, heirs=lambda: self.live.state.heirs),
            trouble=lambda: self.live.pulse.why_not_ready,
            settings=settings,
        )
        self.app = create_app(self.parts)
        self.decider = Decider(self.live, self.engine, coalesce=0)
        self.tokens = {user: self.token(user, *grants) for user, grants in PEOPLE.items()}

    def token(self, user: str, *grants: str) -> str:
        made = [parse_grant(grant) for grant in grants]
        secret, _ = TokenBook(self.store).issue(Principal("root"), self.live.now(), user, made)
        return secret

    def client(self, user: str | None = None, *, secret: str = "", timeout: float = PATIENCE) -> httpx.Client:
        token = secret or (self.tokens[user] if user else "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout, verify=PLAIN)

    def over_socket(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=PLAIN)
        return httpx.Client(base_url="http://localhost", transport=transport, headers=headers, timeout=PATIENCE)

    def submit(self, user: str = "ada", **fields: Any) -> dict[str, Any]:
        with self.client(user) as client:
            answer = client.post("/api/v1/jobs", json=job(**fields))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()["jobs"][0]
        return made

    @contextmanager
    def running(self, folder: Path) -> Iterator[Stage]:
        self.socket = folder / "mirab.sock"
        self.decider.start()
        with listening(("127.0.0.1", 0), self.socket) as listeners:
            port = listeners[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self.server = ApiServer(self.app, listeners, grace=5)
            ready = Flag()
            thread = Thread(target=self.server.serve_until_stopped, args=(ready.set,), daemon=True)
            thread.start()
            assert ready.wait(PATIENCE)
            try:
                yield self
            finally:
                self.server.stop()
                thread.join(PATIENCE)
                assert self.decider.stop(PATIENCE)
                self.live.state.check()
                self.store.dispose()
                assert not thread.is_alive()


def job(**fields: Any) -> dict[str, Any]:
    return {"account": "vision/video", "argv": ["sleep", "1000"], "gpus_per_node": 1, **fields}


@contextmanager
def stage(folder: Path, settings: ApiSettings | None = None, local: LocalUsers | None = None,
          cluster: Cluster | None = None, budgets: Budgets = BUDGETS) -> Iterator[Stage]:  # fmt: skip
    made = Stage(folder, settings or ApiSettings(), local or LocalUsers.of_this_process(), cluster, budgets)
    with made.running(folder) as running:
        yield running
