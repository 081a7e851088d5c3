"""What `mirab doctor` finds of the live service and of this machine as an engine: server, rights, GPUs, file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from mirab.cli.address import find_server, find_token, state_folder
from mirab.cli.client import Client
from mirab.cli.exits import DeniedError, InvalidError, TimedOutError, UnreachableError, UnusableError
from mirab.study.formats import span

Check = dict[str, Any]

SKEW_S = 2.0
"""A clock that is off by more makes times in lists odd; leases and tokens do not depend on it."""
TROUBLES = (UnreachableError, TimedOutError, DeniedError, InvalidError, UnusableError)


def look_at_service(server: str | None) -> Iterator[Check]:
    """Is a server reachable, which, since when, is its clock ours, and what may I do there?

    That none was found lacks only where one was named.
    """
    try:
        address, token = find_server(server), find_token()
    except TROUBLES as error:
        yield check("server", server is None and isinstance(error, UnreachableError), str(error))
        return
    with Client(address, token) as client:
        try:
            yield from _answers(client)
        except TROUBLES as error:
            yield check("server", False, str(error))


def _answers(client: Client) -> Iterator[Check]:
    version = client.get("/version")
    yield check("server", True, f"mirab {version['version']} at {client.address}{_since(version)}")
    if unready := client.unready():
        yield check("its decisions", False, unready)
    skew = client.clock_skew()
    if skew is not None:
        off = "with ours" if abs(skew) <= SKEW_S else f"{span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} ours"
        yield check("server's clock", abs(skew) <= SKEW_S, off)
    me = client.get("/whoami")
    roles = ", ".join(f"{each['role']} on {each['account'] or 'the whole cluster'}" for each in me["grants"])
    yield check("rights there", bool(me["grants"]), f"{me['user']} ({me['origin']}): {roles or NOBODY}")
    if client.token and client.address.kind == "http" and not _loopback(client.address.place):
        yield check("token", False, "goes over the network unencrypted: use https, or a tunnel to the socket")


NOBODY = "no role, so nothing may be submitted: ask an admin for one (mirab token create)"


def _since(version: dict[str, Any]) -> str:
    from mirab.cli.clock import near

    return f", since {near(version['started_at'])}" if version.get("started_at") else ""


def _loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def look_at_machine() -> Iterator[Check]:
    """What `mirab serve` would find here: GPUs, and a file system that can hold its store."""
    yield check("GPUs", True, _gpus())
    yield _file_system()


def _gpus() -> str:
    from mirab.backends.local import DetectionError, detect

    try:
        pools = [pool for pool in detect(None).pools if pool.gpus_per_node]
    except DetectionError as error:
        return str(error)
    if not pools:
        return f"none seen ({_nvml()}): `mirab serve --pretend-gpus 8` acts as if there were"
    return ", ".join(f"{pool.slots} x {pool.gpu_type or 'GPU'}" for pool in pools) + f" ({_nvml()})"


def _nvml() -> str:
    from mirab.backends.local.hardware import load_nvml

    library = load_nvml()
    if library is None:
        return "no NVML here"
    driver = library.nvmlSystemGetDriverVersion()
    return f"NVML, driver {driver.decode() if isinstance(driver, bytes) else driver}"


def _file_system() -> Check:
    from pathlib import Path

    from mirab.store.filesystems import unsafe_kind

    folder = Path(state_folder())
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if (kind := unsafe_kind(there)) is not None:
        remedy = "name a local folder with --state-dir, or a PostgreSQL with --db"
        return check("state folder", False, f"{folder} is on {kind}, where SQLite loses data: {remedy}")
    mine = os.access(there, os.W_OK)
    return check("state folder", True, str(folder) if mine else f"{folder}, which is not yours to write: its service's")


def check(what: str, ok: bool, found: str) -> Check:
    return {"what": what, "ok": ok, "found": found}
