"""Opening the doors: who may come in, where, and what is said when the service is there."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from mirab.logs.errors import LogError
from mirab.model.resources import Cluster
from mirab.model.units import WorkloadId, format_share, plural
from mirab.service.api.app import create_app
from mirab.service.api.parts import Parts
from mirab.service.api.ports import ApiSettings
from mirab.service.api.server import ApiServer, address_of, listening, names_of_this_host
from mirab.service.api.told import Told
from mirab.service.auth.authenticate import Authenticator, LocalUsers
from mirab.service.auth.sessions import Sessions, kept_key
from mirab.service.auth.tokens import first_admin_token, is_local, valid
from mirab.service.config import NONE, ConfigError, ServeConfig
from mirab.service.courier import Courier
from mirab.service.garbage import Garbage
from mirab.service.noticefile import open_secrets, read_receivers
from mirab.service.notices import Notices
from mirab.service.runtime import LiveEngine, Service
from mirab.service.views.moments import iso
from mirab.service.views.squatters import Silence
from mirab.service.watch import StoreWatch
from mirab.store import Store

log = structlog.get_logger("mirab.serve")

Say = Callable[[str], None]

PATIENCE, IMPATIENCE = 10.0, 0.2
"""Seconds for a record that the store does not take: when told to stop, and when told twice."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where runs write, for the API."""

    engine: LiveEngine
    store: Store

    def path(self, job_id: str, attempt: int, stream: str) -> Path | None:
        return self.engine.output_path(job_id, attempt or None, stream)

    def owner(self, job_id: str) -> int:
        spec = self.store.spec(job_id)
        return os.geteuid() if spec is None or spec.uid is None else spec.uid

    def folder(self, job_id: str) -> Path | None:
        return self.engine.run_dir(WorkloadId(job_id))


def open_doors(service: Service, say: Say) -> None:
    """Serve until a signal or a failure says stop, then take everything apart.

    Raises:
        ConfigError: nobody could come in.
        ListenError: an address cannot be used.
    """
    config = service.config
    patience = PATIENCE
    notices: Notices | None = None
    try:
        tcp = (config.host, config.port) if config.host is not None else None
        with listening(tcp, config.socket) as listeners:
            _introduce(service, say)
            check_doors(config, service.store, service.live.now())
            server = ApiServer(create_app(parts_of(service)), listeners)
            service.keeper.told = server.stop
            service.keeper.garbage = Garbage()
            notices = notices_of(service)
            service.start()
            if notices is not None:
                notices.start()
            if service.live.pulse.failed:
                return
            addresses = [address_of(each) for each in listeners]
            server.serve_until_stopped(lambda: _welcome(service, addresses, say))
            patience = IMPATIENCE if server.force_exit else PATIENCE
    finally:
        notify("STOPPING=1")
        service.stop(patience)
        if notices is not None:
            notices.stop()


def notices_of(service: Service) -> Notices | None:
    """Those who are to be told; None while nobody is named.

    Raises:
        ConfigError: the file cannot be used.
    """
    file = service.config.notices
    if file is None:
        return None
    try:
        receivers = read_receivers(file)
        for secret in open_secrets(file, receivers):
            log.warning("notice.open_secret", file=str(secret), hint=f"others can read it: chmod 600 {secret}")
    except (OSError, LogError) as error:
        raise ConfigError(f"--notices: {error}") from error
    couriers = [Courier(receiver) for receiver in receivers]
    return Notices(service.live, service.desk, service.views, couriers, service.config.state_dir)


def check_doors(config: ServeConfig, store: Store, now: int) -> None:
    """Raises ConfigError if there is no door, or one that other machines see and nobody has a key to."""
    if config.host is None and config.socket is None:
        raise ConfigError("--listen none and --socket none leave no way in: keep one")
    keys = [row for row in store.tokens() if valid(row, now) and not is_local(row)]
    if config.beyond_loopback and not keys:
        raise ConfigError(
            f"--listen {config.host}:{config.port} is open to other machines, and no valid token exists: start with "
            "--listen on 127.0.0.1, make one with `mirab token create`, then open it"
        )


def parts_of(service: Service) -> Parts:
    """What the API speaks for."""
    config, live, store = service.config, service.live, service.store
    service.desk.portfolio.trials.folder = config.state_dir / "whatif"
    names = tuple(names_of_this_host()) if config.beyond_loopback else ()
    parts = Parts(
        desk=service.desk,
        views=service.views,
        live=live,
        store=store,
        outputs=Outputs(service.engine, store),
        auth=Authenticator(store, live.now, local_users_of(config), heirs=lambda: live.state.heirs),
        trouble=lambda: live.pulse.why_not_ready,
        watch=StoreWatch(store.trouble, store.name),
        metrics=service.metrics,
        settings=ApiSettings(hosts=(*config.hosts, *names), metrics_open=config.metrics == "open"),
        sessions=Sessions(kept_key(config.state_dir)),
        reports=config.state_dir / "reports",
    )
    service.views.watch.on_flag.append(lambda silence: parts.bus.say(no_progress(silence, live.now())))
    return parts


def no_progress(silence: Silence, now: int) -> Told:
    """The event of a run that has shown no sign of progress for longer than it declared."""
    data = {"at": iso(now), "job": silence.workload, "what": "no-progress", "run": silence.run_id,
            "account": silence.account, "user": silence.user, "why": silence.flag(now)}  # fmt: skip
    return Told("job", data, silence.workload)


def local_users_of(config: ServeConfig) -> LocalUsers:
    """What users of this machine may do over the socket."""
    return LocalUsers.of_this_process("" if config.local_users == NONE else config.local_users)


def _introduce(service: Service, say: Say) -> None:
    """At a first start: what there is, and a key. The key is said as soon as it is made, whatever fails afterwards."""
    if service.recovered.first:
        say(f"A new ledger in {service.store.name}: {describe_cluster(service.live.cluster)}; accounts: "
            f"{describe_accounts(service)}.")  # fmt: skip
    if (token := first_admin_token(service.store, service.live.now())) is not None:
        say(f"Token of the administrator, shown this once: {token}")
        say("Keep it in ~/.config/mirab/token (mode 600) of who needs it; over the socket you need none.")


def _welcome(service: Service, addresses: Sequence[str], say: Say) -> None:
    say(f"mirab serves on {' and '.join(addresses)}; Ctrl-C stops it, and what runs goes on.")
    log.info("serving", addresses=list(addresses), **service.config.described())
    notify("READY=1")


def describe_cluster(cluster: Cluster) -> str:
    """``8 GPUs on 1 node, 16 cores on 1 node``."""
    return ", ".join(
        f"{plural(pool.slots, 'GPU' if pool.gpus_per_node else 'core')} on {plural(len(pool.nodes), 'node')}"
        for pool in cluster.pools
    )


def describe_accounts(service: Service) -> str:
    roots = service.live.state.budgets.roots
    return ", ".join(f"{budget.name} {format_share(budget.share)}" for budget in roots[:8])


def notify(message: str) -> None:
    """Tell systemd, if it started this (``Type=notify``)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
        speaking.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)
