"""The client: addresses, tokens, problems, and what happens when the server goes away."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirab.cli import client as client_module
from mirab.cli.address import Address, find_server, find_token, parse_address, token_file
from mirab.cli.client import Client, LostError, at
from mirab.cli.exits import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    TimedOutError,
    UnreachableError,
    UnusableError,
)
from tests.cli_live.double import Answer, Asked, Double, job, problem, serving

HEAVY = (
    "rich", "pydantic", "fastapi", "uvicorn", "starlette", "sqlalchemy", "ruamel", "jinja2", "asyncio", "psutil",
    "mirab.core", "mirab.service", "mirab.store", "mirab.sim", "mirab.backends", "mirab.study.words", "mirab.logs",
)  # fmt: skip
CLIENT_COMMANDS = (
    "submit", "run", "ls", "show", "share", "squatters", "logs", "await_", "cancel", "hold", "release", "requeue",
    "node", "checkpoint", "session", "token", "audit", "completion",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://host:1", Address("http", "host", 1)),
        ("http://host", Address("http", "host", 7077)),
        ("https://host/mirab/", Address("https", "host", 443, "/mirab")),
        ("host:5", Address("http", "host", 5)),
        ("http://[::1]:5", Address("http", "::1", 5)),
        ("unix:///run/m.sock", Address("unix", "/run/m.sock")),
        ("/run/m.sock", Address("unix", "/run/m.sock")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["ftp://x", "http://", "unix://x/y", "http://u@h", "http://h:99999", "http://h?x=1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidError, match="is no server"):
        parse_address(text)


def test_the_socket_is_found_and_what_was_looked_for_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        UnreachableError, match=f"no socket {tmp_path}/state/mirab.sock or {tmp_path}/runtime/mirab.sock"
    ):
        find_server(None)
    (tmp_path / "state").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "state" / "mirab.sock"))
        assert find_server(None) == Address("unix", f"{tmp_path}/state/mirab.sock")


def test_the_token_file_must_be_private(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_token() == ""
    path = Path(token_file())
    path.parent.mkdir(parents=True)
    path.write_text("abc\n", encoding="utf-8")
    path.chmod(0o640)
    with pytest.raises(DeniedError, match="chmod 600"):
        find_token()
    path.chmod(0o600)
    assert find_token() == "abc"
    monkeypatch.setenv("MIRAB_TOKEN", "other")
    assert find_token() == "other"
    monkeypatch.setenv("MIRAB_TOKEN", "two words")
    with pytest.raises(InvalidError, match="does not hold a token"):
        find_token()


def test_one_connection_serves_many_requests_and_carries_the_token(double: Double) -> None:
    with Client(parse_address(double.url), "abc") as client:
        client.get("/version")
        first = client._connection
        client.get("/whoami")
        assert client._connection is first
    assert [each.headers["authorization"] for each in double.asked] == ["Bearer abc"] * 2


def test_over_a_unix_socket_whose_path_is_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    (tmp_path / "s").symlink_to(deep)
    short = Path("/tmp") / f"mirab-test-{tmp_path.name}-{id(deep)}.sock"
    with serving(Double(), short) as found, Client(parse_address(found.url)) as client:
        short.rename(deep / "mirab.sock")
        assert len(str(deep / "mirab.sock")) > 107
        with Client(Address("unix", str(deep / "mirab.sock"))) as far:
            assert far.get("/version")["version"] == "9.9"
        client.close()
        (deep / "mirab.sock").unlink()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError), (401, DeniedError), (403, DeniedError), (404, NotFoundError), (408, TimedOutError),
        (409, ConflictError), (412, ConflictError), (422, InvalidError), (500, UnusableError), (503, UnreachableError),
        (504, TimedOutError),
    ],
)  # fmt: skip
def test_problems_become_exceptions_with_the_servers_own_words(
    double: Double, status: int, kind: type[Exception]
) -> None:
    double.special = lambda asked: problem(status, "said so: do this")
    with pytest.raises(kind, match=r"^said so: do this$"), Client(parse_address(double.url), "mirab_x") as client:
        client.get("/jobs")


def test_who_has_no_token_is_told_where_it_goes(double: Double) -> None:
    double.special = lambda asked: problem(401, "say who you are: send a token as `Authorization: Bearer mirab_...`")
    with pytest.raises(DeniedError) as raised, Client(parse_address(double.url)) as client:
        client.get("/jobs")
    assert f"the token that you were given into {token_file()} (mode 600), or into MIRAB_TOKEN" in str(raised.value)


def test_what_is_not_mirab_is_told_apart(double: Double) -> None:
    double.special = lambda asked: Answer(pieces=[b"<html>"])
    with pytest.raises(UnreachableError, match="not as mirab does"), Client(parse_address(double.url)) as client:
        client.get("/jobs")


def test_nobody_there_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = Client(parse_address(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(UnreachableError, match="nothing answers at"):
            client.get("/jobs")


def test_a_submission_whose_answer_was_lost_is_sent_again_and_made_once(double: Double) -> None:
    lost = 2

    def losing(asked: Asked) -> Answer | None:
        nonlocal lost
        if lost:
            lost -= 1
            double.usual(asked)
            return Answer(break_off=True)
        return None

    double.special = losing
    with Client(parse_address(double.url)) as client:
        reply = client.post("/jobs", {"name": "x"}, key="k1")
    assert reply["ids"] == ["7"]
    assert list(double.jobs) == ["7"]
    assert {each.headers["idempotency-key"] for each in double.asked} == {"k1"}


def test_a_server_that_comes_back_within_patience_gets_the_submission(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_module, "PAUSES_S", (0.0, 0.0))
    away = 4
    double = Double()

    def busy(asked: Asked) -> Answer | None:
        nonlocal away
        away -= 1
        return problem(503, "starting") if away >= 0 else None

    double.special = busy
    with serving(double), Client(parse_address(double.url)) as client:
        assert client.post("/jobs", {}, key="k")["ids"] == ["7"]
    assert capsys.readouterr().err == "starting; trying for 30 s.\n", "its own words for why not yet"


def test_a_server_that_is_away_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(monotonic=iter(range(0, 1_000, 5)).__next__, time=time.time, sleep=lambda _: None)
    monkeypatch.setattr(client_module, "time", clock)
    nowhere = parse_address(f"unix://{tmp_path}/none.sock")
    with pytest.raises(UnreachableError, match="there is no server"), Client(nowhere, patience=60) as client:
        client.post("/jobs", {}, key="k")
    assert capsys.readouterr().err == f"{nowhere} does not answer; trying for 60 s.\n"


def test_patience_ends(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt takes ten seconds, of a clock of our own."""
    clock = SimpleNamespace(monotonic=lambda: 10.0 * len(double.asked), time=time.time, sleep=lambda _: None)
    monkeypatch.setattr(client_module, "time", clock)
    double.special = lambda asked: problem(503, "the disk is full")
    with (
        pytest.raises(UnreachableError, match="the disk is full"),
        Client(parse_address(double.url), patience=25) as client,
    ):
        client.post("/jobs", {}, key="k")
    assert len(double.asked) == 3


@pytest.mark.parametrize(
    ("asked", "answered", "skew"),
    [(0.0, 0.1, 0.0), (0.9, 5.0, 0.0), (-3.0, 0.0, 0.0), (-9.0, -4.0, 4.0), (4.5, 4.6, -3.5), (1.0, 1.0, 0.0)],
)
def test_a_clock_is_off_where_no_delay_of_an_answer_explains_it(asked: float, answered: float, skew: float) -> None:
    client = Client(Address("http", "host", 1))
    client.dated = ("Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000 + asked, 1_700_000_000 + answered)
    assert client.clock_skew() == pytest.approx(skew)


def test_what_is_not_safe_to_repeat_is_sent_once(double: Double) -> None:
    double.special = lambda asked: Answer(break_off=True)
    with pytest.raises(UnreachableError, match="is not known"), Client(parse_address(double.url)) as client:
        client.post("/jobs/7/cancel")
    assert len(double.asked) == 1


def test_a_stream_that_breaks_off_says_so(double: Double) -> None:
    double.special = lambda asked: Answer(pieces=[b"part"], break_off=True)
    got = []
    with pytest.raises(LostError), Client(parse_address(double.url)) as client:
        for piece in client.stream("/jobs/7/output"):
            got.append(piece)  # noqa: PERF402
    assert got == [b"part"]


def test_parts_of_paths_are_quoted() -> None:
    assert at("jobs", "../x y", "cancel") == "/jobs/..%2Fx%20y/cancel"


def test_text_that_is_not_utf8_is_refused_before_it_is_sent(double: Double) -> None:
    with pytest.raises(InvalidError, match="not text in UTF-8"), Client(parse_address(double.url)) as client:
        client.post("/jobs", {"argv": ["\udc80"]}, key="k")
    assert double.asked == []


@pytest.mark.parametrize("name", CLIENT_COMMANDS)
def test_client_commands_import_nothing_heavy(name: str) -> None:
    code = (
        f"import sys, mirab.cli.main, mirab.cli.{name}\n"
        f"heavy = [each for each in {HEAVY!r} if each in sys.modules]\n"
        "print(heavy)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_job_of_the_double_is_one_of_the_api() -> None:
    from mirab.service.forms.jobs import Job

    assert set(job()) == set(Job.model_fields)
