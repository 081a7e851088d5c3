"""Tokens, Unix users, and what becomes of those who are neither."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import httpx
import pytest

from mirab.model.records import Grant
from mirab.service.auth.authenticate import (
    Authenticator,
    LocalUsers,
    NotYourServiceError,
    TooManyFailuresError,
    UnknownCallerError,
)
from mirab.service.auth.failures import FailureLimit
from mirab.service.auth.peers import Peer, peer_of, unix_ids, user_name
from mirab.service.auth.principal import Principal
from mirab.service.auth.tokens import PREFIX, TokenBook, digest_of, first_admin_token
from mirab.service.config import load_config
from mirab.service.desk.errors import DeskError
from mirab.service.desk.identity import run_as
from mirab.service.doors import local_users_of
from mirab.store import Store, open_store
from tests.api.stage import Stage, job, stage

ADMIN = Principal("adm", (Grant("admin"),), "test")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/mirab.db")


def authenticator(store: Store, *, uid: int = 0, role: str = "researcher", now: int = 1_000) -> Authenticator:
    return Authenticator(store, lambda: now, LocalUsers(uid, role), FailureLimit(burst=3, refill=1, clock=lambda: 0.0))


# --- tokens --------------------------------------------------------------------------------------------------------
def test_a_token_is_kept_as_its_hash_only(store: Store, tmp_path: Path) -> None:
    secret, row = TokenBook(store).issue(ADMIN, 5, "ada", [Grant("researcher", "llm")])
    assert secret.startswith(PREFIX)
    assert len(secret) >= len(PREFIX) + 43, "256 bits"
    assert row.digest == digest_of(secret)
    store.dispose()
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())


def test_two_tokens_are_never_the_same(store: Store) -> None:
    book = TokenBook(store)
    assert len({book.issue(ADMIN, 5, "ada", [Grant("researcher")])[0] for _ in range(20)}) == 20


def test_a_token_says_who_and_what(store: Store) -> None:
    secret, row = TokenBook(store).issue(ADMIN, 5, "ada", [Grant("researcher", "llm")])
    who = authenticator(store).of_token(secret, "10.0.0.3")
    assert (who.user, who.grants, who.origin, who.token_id) == ("ada", row.grants, "10.0.0.3", row.id)


def test_an_expired_and_a_revoked_token_are_worth_nothing(store: Store) -> None:
    book = TokenBook(store)
    expiring, _ = book.issue(ADMIN, 0, "ada", [Grant("researcher")], lifetime=1_000)
    revoked, row = book.issue(ADMIN, 0, "ada", [Grant("researcher")])
    assert authenticator(store, now=999).of_token(expiring, "x")
    for late in (1_000, 5_000):
        with pytest.raises(UnknownCallerError):
            authenticator(store, now=late).of_token(expiring, "x")
    people = authenticator(store)
    assert people.of_token(revoked, "x")
    book.revoke(ADMIN, 7, row)
    with pytest.raises(UnknownCallerError):
        people.of_token(revoked, "x")


def test_the_first_admin_token_is_made_once(store: Store) -> None:
    secret = first_admin_token(store, 5)
    assert secret is not None
    assert authenticator(store).of_token(secret, "x").may("token.any")
    assert first_admin_token(store, 6) is None
    assert [entry.action for entry in store.audit()[0]] == ["token.create"]


def test_whoever_shows_bad_tokens_too_often_is_not_looked_up_but_neighbours_are(store: Store) -> None:
    good, _ = TokenBook(store).issue(ADMIN, 0, "ada", [Grant("researcher")])
    fresh, _ = TokenBook(store).issue(ADMIN, 0, "bob", [Grant("researcher")])
    people = authenticator(store)
    assert people.of_token(good, "10.0.0.3")
    for number in range(3):
        with pytest.raises(UnknownCallerError):
            people.of_token(f"mirab_guess{number}", "10.0.0.3")
    with pytest.raises(TooManyFailuresError):
        people.of_token("mirab_guess", "10.0.0.3")
    with pytest.raises(TooManyFailuresError):
        people.of_token(fresh, "10.0.0.3")
    assert people.of_token(good, "10.0.0.3"), "it was good before the failures"
    assert people.of_token(fresh, "10.0.0.4"), "another address"


def test_failures_are_forgiven_one_by_one() -> None:
    now = 0.0
    limit = FailureLimit(burst=2, refill=10, clock=lambda: now)
    for _ in range(2):
        assert limit.wait("x") == 0
        limit.failed("x")
    assert limit.wait("x") == 10
    now = 10.0
    assert limit.wait("x") == 0
    limit.failed("x")
    assert limit.wait("x") == 10


def test_a_local_grant_cannot_be_used_as_a_token(store: Store) -> None:
    row = TokenBook(store).grant_local(ADMIN, 5, "ada", [Grant("admin")])
    with pytest.raises(UnknownCallerError):
        authenticator(store).of_token(row.digest, "x")


# --- Unix users ----------------------------------------------------------------------------------------------------
def test_the_services_own_user_and_root_are_admins_over_the_socket(store: Store) -> None:
    people = authenticator(store, uid=1234)
    for uid in (0, 1234):
        who = people.of_peer(Peer(1, uid, uid))
        assert who.may("token.any")
        assert who.uid is None, "a service that is not root runs jobs only as itself"


def test_a_service_that_is_not_root_turns_other_users_away(store: Store) -> None:
    with pytest.raises(NotYourServiceError, match="would run your jobs as"):
        authenticator(store, uid=1234).of_peer(Peer(1, 77, 77))


def test_other_users_of_roots_service_are_researchers_or_what_was_granted(store: Store) -> None:
    people = authenticator(store)
    name = user_name(61_234)
    assert name == "uid-61234"
    who = people.of_peer(Peer(1, 61_234, 61_235))
    assert (who.user, who.uid, who.gid) == (name, 61_234, 61_235)
    assert who.may("job.submit", "llm")
    TokenBook(store).grant_local(ADMIN, 5, name, [Grant("manager", "vision")])
    who = people.of_peer(Peer(1, 61_234, 61_235))
    assert who.may("budget.set", "vision")
    assert not who.may("job.submit", "llm"), "what was granted stands in place of the default"


def test_without_a_default_a_local_user_has_nothing_until_it_is_granted(store: Store) -> None:
    people = authenticator(store, role="")
    assert not people.of_peer(Peer(1, 61_234, 61_234)).may("job.list")


def test_a_token_runs_nothing_as_root(store: Store) -> None:
    secret, _ = TokenBook(store).issue(ADMIN, 5, "root", [Grant("admin")])
    assert unix_ids("root") is None
    who = authenticator(store, uid=0).of_token(secret, "x")
    assert who.uid is None
    if os.geteuid() == 0:
        with pytest.raises(DeskError, match="nothing as root"):
            run_as(who)
        assert run_as(authenticator(store, uid=0).of_peer(Peer(1, 0, 0))) == (0, 0), "root itself may"


def test_the_kernel_tells_the_peer() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with here, there:
        assert peer_of(here) == Peer(os.getpid(), os.geteuid(), os.getegid())
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
        assert peer_of(tcp) is None


def test_over_the_socket_nobody_needs_a_token(service: Stage) -> None:
    with service.over_socket() as client:
        told = client.get("/api/v1/whoami").json()
    assert told["user"] == user_name(os.geteuid())
    assert told["origin"] == f"unix uid={os.geteuid()}"
    assert {"role": "admin", "account": ""} in told["grants"]


def test_a_token_over_the_socket_counts_more_than_the_user(service: Stage) -> None:
    with service.over_socket({"Authorization": f"Bearer {service.tokens['eve']}"}) as client:
        assert client.get("/api/v1/whoami").json()["user"] == "eve"


def test_over_tcp_nobody_can_claim_to_be_a_peer(service: Stage) -> None:
    claims = {"X-Forwarded-For": "unix", "X-Peer": "0", "Forwarded": "for=unix", "X-Remote-User": "root"}
    with service.client() as client:
        assert client.get("/api/v1/whoami", headers=claims).status_code == 401


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("service_uid", [0, 61_000])
def test_another_user_comes_over_the_socket(tmp_path: Path, service_uid: int) -> None:
    """A process of another user connects; the kernel, not the process, says who it is."""
    with stage(tmp_path, local=LocalUsers(service_uid)) as service:
        os.chmod(service.socket, 0o666)
        for folder in (tmp_path, *list(tmp_path.parents)[:3]):
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
        status, text = as_user(61_234, service)
    if service_uid == 0:
        assert (status, "uid-61234" in text, "researcher" in text) == (200, True, True)
    else:
        assert status == 403
        assert "would run your jobs as that user" in text


def as_user(uid: int, service: Stage) -> tuple[int, str]:
    """What `/whoami` answers a child process that has become that user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(service.socket))
                connection.sendall(b"GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while data := connection.recv(65_536):
                    os.write(writing, data)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return int(text.split()[1]), text


# --- over HTTP -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic YTpi", "Bearer mirab_wrong", "bearer x y z", "Bearer \xff\xfe", "x" * 900],
)
def test_what_is_no_token_is_a_401(service: Stage, header: str) -> None:
    with service.client() as client:
        answer = client.get("/api/v1/jobs", headers=httpx.Headers([("Authorization", header)], encoding="latin-1"))
    assert answer.status_code in (401, 429)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_token_is_made_shown_once_listed_without_itself_and_revoked(service: Stage) -> None:
    wanted = {"user": "zoe", "grants": [{"role": "researcher", "account": "llm"}], "expires_in": "7d", "note": "laptop"}
    with service.client("adm") as client:
        made = client.post("/api/v1/tokens", json=wanted).json()
        secret = made["token"]
        assert secret not in client.get("/api/v1/tokens").text
        with service.client(secret=secret) as zoe:
            assert zoe.get("/api/v1/whoami").json()["user"] == "zoe"
            assert [each["id"] for each in zoe.get("/api/v1/tokens").json()["tokens"]] == [made["id"]]
            assert client.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
            assert zoe.get("/api/v1/whoami").status_code == 401
        assert client.delete(f"/api/v1/tokens/{made['id']}").status_code == 204, "twice changes nothing"
        assert client.delete("/api/v1/tokens/abc").status_code == 404
        entries = client.get("/api/v1/audit", params={"target": made["id"]}).json()["entries"]
    assert [entry["action"] for entry in entries] == ["token.revoke", "token.create"]
    assert secret not in str(entries)


def test_one_may_make_tokens_for_oneself_with_no_more_than_one_has(service: Stage) -> None:
    def ask(user: str, name: str, role: str, account: str = "", **rest: object) -> int:
        with service.client(user) as client:
            wanted = {"user": name, "grants": [{"role": role, "account": account}], **rest}
            return client.post("/api/v1/tokens", json=wanted).status_code

    assert ask("eve", "eve", "researcher", "llm") == 201
    assert ask("eve", "eve", "researcher", "llm/chat") == 201
    assert ask("eve", "eve", "researcher") == 403
    assert ask("eve", "eve", "admin", "llm") == 403
    assert ask("eve", "ada", "researcher", "llm") == 403
    assert ask("eve", "eve", "researcher", "llm", local=True) == 403
    assert ask("mia", "mia", "researcher", "vision/video") == 201
    assert ask("adv", "zoe", "researcher", "vision") == 403, "an admin of a part is nobody's master elsewhere"
    assert ask("adm", "zoe", "king") == 422
    assert ask("adm", "zoe", "researcher", "/llm") == 422


def test_a_local_user_is_granted_roles_without_a_token(service: Stage) -> None:
    with service.client("adm") as client:
        wanted = {"user": "lea", "grants": [{"role": "operator"}], "local": True}
        made = client.post("/api/v1/tokens", json=wanted).json()
        assert made["token"] is None
        again = client.post("/api/v1/tokens", json=wanted | {"grants": [{"role": "researcher"}]}).json()
        assert again["id"] == made["id"], "the later grant stands in place of the earlier"
        [entry] = client.get("/api/v1/audit", params={"target": made["id"], "limit": 1}).json()["entries"]
    assert "operator" in entry["before"]
    assert "researcher" in entry["after"]


def test_a_role_that_was_taken_away_takes_effect_at_once(service: Stage) -> None:
    secret = service.token("eve", "researcher:llm")
    with service.client(secret=secret) as client:
        assert client.post("/api/v1/jobs", json=job(account="llm")).status_code == 201
        row = service.store.token(digest_of(secret))
        assert row is not None
        service.parts.tokens.revoke(ADMIN, service.live.now(), row)
        assert client.post("/api/v1/jobs", json=job(account="llm")).status_code == 401


@pytest.mark.parametrize(("setting", "role"), [("researcher", "researcher"), ("none", "")])
def test_what_local_users_are_is_a_setting(tmp_path: Path, setting: str, role: str) -> None:
    config = load_config({"local_users": setting, "state_dir": str(tmp_path)}, {})
    assert local_users_of(config) == LocalUsers.of_this_process(role)
