"""Notices: to a real HTTP server and a real SMTP server on this machine, off until a file says otherwise."""

from __future__ import annotations

import json
import shutil
import smtplib
import socketserver
import ssl
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from email import message_from_bytes
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mirab.logs.errors import LogError
from mirab.model.plans import CallHuman
from mirab.model.units import DAY, HOUR, NodeName, RunId
from mirab.service.config import load_config
from mirab.service.courier import Courier, Notice, send
from mirab.service.desk.exceptions import Wish
from mirab.service.noticefile import KINDS, Receiver, read_receivers
from mirab.service.notices import Notices
from mirab.service.views import Views
from tests.portfolio.conftest import Mirab
from tests.service.house import ADA, EVE, ROOT, Bench

PATIENCE = 180.0


class Post:
    """An HTTP server that keeps what it gets. `answers`: statuses to give, the last one for ever."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], Any]] = []
        self.answers = [200]
        post = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = post.answers.pop(0) if len(post.answers) > 1 else post.answers[0]
                if status == 200:
                    post.got.append((dict(self.headers), body))
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Tests are quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"


class Mail:
    """An SMTP server that keeps what it gets: envelope and message.

    `tls`: no, starttls or yes, with `context`; `logins`: who logged in with which password, encrypted or not.
    """

    def __init__(self, tls: str = "no", context: ssl.SSLContext | None = None) -> None:
        self.tls, self.context = tls, context
        self.got: list[tuple[str, list[str], Any]] = []
        self.logins: list[tuple[str, str, bool]] = []
        self.refuses = False
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), partial(Talk, self))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is no fault
        self.port = self.server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"


class Talk(socketserver.StreamRequestHandler):
    """One connection to it."""

    def __init__(self, mail: Mail, *given: Any) -> None:
        self.mail, self.safe = mail, False
        self.sender, self.to = "", list[str]()
        super().__init__(*given)

    def setup(self) -> None:
        super().setup()
        if self.mail.tls == "yes":
            self._encrypt()

    def handle(self) -> None:
        words = {"EHLO": self._hello, "STAR": self._start, "AUTH": self._login, "MAIL": self._from, "RCPT": self._for,
                 "DATA": self._data}  # fmt: skip
        with suppress(OSError):
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                if line.upper() == "QUIT":
                    self._say("221 bye")
                    return
                words.get(line[:4].upper(), self._whatever)(line)

    def _hello(self, _: str) -> None:
        offers = ["250-STARTTLS\r\n"] if self.mail.tls == "starttls" and not self.safe else []
        self._say(f"250-here\r\n{''.join(offers)}250 AUTH PLAIN")

    def _start(self, _: str) -> None:
        self._say("220 go on")
        self._encrypt()

    def _login(self, line: str) -> None:
        _, user, password = b64decode(line.split()[2]).decode().split("\0")
        self.mail.logins.append((user, password, self.safe))
        self._say("235 welcome" if password == "s3cret" else "535 who are you")

    def _from(self, line: str) -> None:
        self.sender = line.partition(":")[2].split()[0]
        self._say("250 ok")

    def _for(self, line: str) -> None:
        self.to.append(line.partition(":")[2])
        self._say("550 nobody of that name" if self.mail.refuses else "250 ok")

    def _data(self, _: str) -> None:
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line)
        self.mail.got.append((self.sender, self.to, message_from_bytes(b"".join(lines))))
        self._say("250 ok")

    def _whatever(self, _: str) -> None:
        self._say("250 ok")

    def _encrypt(self) -> None:
        assert self.mail.context is not None
        self.connection = self.request = self.mail.context.wrap_socket(self.request, server_side=True)
        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        self.safe = True

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def post() -> Iterator[Post]:
    made = Post()
    yield from _serving(made)


@pytest.fixture
def mail() -> Iterator[Mail]:
    made = Mail()
    yield from _serving(made)


def _serving(made: Any) -> Iterator[Any]:
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(PATIENCE)


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def notice(kind: str = "preempted", text: str = "Job 7 is being stopped.", account: str = "vision/video") -> Notice:
    return Notice(1_800_000_000_000, kind, "7", text, account, "ada")


def settings(tmp_path: Path, text: str) -> tuple[Receiver, ...]:
    file = tmp_path / "notices.yaml"
    file.write_text(text)
    return read_receivers(file)


# --- the forms -------------------------------------------------------------------------------------------------------
def test_a_webhook_gets_json_and_its_token(post: Post, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (receiver,) = settings(tmp_path, f"notices: [{{to: webhook, url: '{post.url}', token_file: token}}]")
    send(receiver, [notice(), notice("resumed")])
    ((headers, body),) = post.got
    assert headers["Authorization"] == "Bearer s3cret"
    assert [each["kind"] for each in body["notices"]] == ["preempted", "resumed"]
    assert body["notices"][0]["at"].startswith("2027-01-15T08:00:00")


def test_slack_gets_a_text_that_calls_nobody(post: Post, tmp_path: Path) -> None:
    (receiver,) = settings(tmp_path, f"notices: [{{to: slack, url: '{post.url}'}}]")
    send(receiver, [notice(text="Job <!channel> & co")])
    assert post.got[0][1] == {"text": "*preempted* Job &lt;!channel&gt; &amp; co"}


def test_mail_goes_to_all_its_addresses(mail: Mail, tmp_path: Path) -> None:
    text = f"notices: [{{to: email, address: [a@x.org, b@x.org], from: mirab@x.org, server: '{mail.address}'}}]"
    (receiver,) = settings(tmp_path, text)
    send(receiver, [notice(text="Jöb 7\r\nBcc: evil@x.org"), notice("needs-human")])
    ((sender, to, message),) = mail.got
    assert (sender, to) == ("<mirab@x.org>", ["<a@x.org>", "<b@x.org>"])
    assert message["Subject"] == "mirab: preempted, needs-human (2)"
    assert message["Bcc"] is None
    assert "Jöb 7" in message.get_payload(decode=True).decode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of localhost that nobody but this test trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here, which makes the certificate")
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(file),
             "-out", str(file.with_suffix(".crt"))]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


@pytest.fixture
def sealed(certificate: Path, request: pytest.FixtureRequest) -> Iterator[Mail]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    yield from _serving(Mail(request.param, context))


def secret(tmp_path: Path, mail: Mail, tls: str, host: str = "localhost") -> Receiver:
    """The receiver of a file, with a login."""
    (tmp_path / "password").write_text("s3cret\n")
    text = (
        f"notices: [{{to: email, address: a@x.org, from: mirab@x.org, server: '{host}:{mail.port}', tls: {tls}, "
        "user: mirab, password_file: password}]"
    )
    (receiver,) = settings(tmp_path, text)
    return receiver


@pytest.mark.parametrize("sealed", ["starttls", "yes"], indirect=True)
def test_mail_goes_by_a_login_over_tls(
    sealed: Mail, request: pytest.FixtureRequest, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's trusted certificates are those of SSL_CERT_FILE: here the test's own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    send(secret(tmp_path, sealed, request.node.callspec.params["sealed"]), [notice()])
    assert sealed.logins == [("mirab", "s3cret", True)]
    ((_, to, message),) = sealed.got
    assert (to, message["Subject"]) == (["<a@x.org>"], "mirab: preempted")


@pytest.mark.parametrize("sealed", ["starttls", "yes"], indirect=True)
def test_nothing_is_said_to_a_mail_server_that_cannot_show_who_it_is(
    sealed: Mail, request: pytest.FixtureRequest, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = secret(tmp_path, sealed, request.node.callspec.params["sealed"])
    with pytest.raises(ssl.SSLCertVerificationError):
        send(receiver, [notice()])
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
        send(replace(receiver, server="127.0.0.1"), [notice()])
    assert (sealed.logins, sealed.got) == ([], [])


def test_no_password_goes_to_a_server_without_tls_although_it_was_asked_for(mail: Mail, tmp_path: Path) -> None:
    with pytest.raises(smtplib.SMTPException, match="STARTTLS"):
        send(secret(tmp_path, mail, "starttls"), [notice()])
    assert (mail.logins, mail.got) == ([], [])


def test_a_wrong_password_is_told(mail: Mail, tmp_path: Path) -> None:
    receiver = secret(tmp_path, mail, "no")
    (tmp_path / "password").write_text("guess")
    with pytest.raises(smtplib.SMTPAuthenticationError, match="who are you"):
        send(receiver, [notice()])
    assert mail.got == []


def test_a_password_over_the_wire_without_tls_is_refused_in_the_file(mail: Mail, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"password .* in the clear"):
        secret(tmp_path, mail, "no", host="mail.example.org")


def test_a_redirect_is_not_followed(post: Post) -> None:
    post.answers = [302]
    with pytest.raises(OSError, match="302"):
        send(Receiver("webhook", url=post.url), [notice()])


# --- the courier -----------------------------------------------------------------------------------------------------
def test_what_was_not_taken_is_sent_again_and_given_up_in_the_end(post: Post) -> None:
    post.answers = [503, 500, 200]
    courier = Courier(Receiver("webhook", url=post.url), again=(0.01, 0.01, 0.01), together=0.01)
    courier.start()
    courier.take(notice())
    until(lambda: courier.sent == 1)
    post.answers = [503]
    courier.take(notice())
    until(lambda: courier.given_up == 1)
    post.answers = [200]
    courier.take(notice())
    until(lambda: courier.sent == 2)
    courier.stop()


def test_many_at_once_are_one_message_and_the_last_ones_go_out_at_the_end(mail: Mail) -> None:
    host, _, port = mail.address.partition(":")
    receiver = Receiver("email", addresses=("a@x.org",), sender="m@x.org", server=host, port=int(port))
    courier = Courier(receiver, together=30)
    for number in range(20):
        courier.take(notice(text=f"number {number}"))
    courier.start()
    courier.stop(PATIENCE)
    assert courier.sent == 20
    assert len(mail.got) == 1


def test_a_mail_server_that_refuses_is_told_in_the_log_and_stops_nothing(mail: Mail) -> None:
    mail.refuses = True
    host, _, port = mail.address.partition(":")
    receiver = Receiver("email", addresses=("a@x.org",), sender="m@x.org", server=host, port=int(port))
    courier = Courier(receiver, again=(), together=0.01)
    courier.start()
    courier.take(notice())
    until(lambda: courier.given_up == 1)
    courier.stop()


def test_each_gets_what_it_wants() -> None:
    receiver = Receiver("slack", about=("preempted",), accounts=("vision",), url="http://x")
    assert receiver.wants("preempted", "vision/video")
    assert receiver.wants("preempted", "")
    assert not receiver.wants("resumed", "vision")
    assert not receiver.wants("preempted", "visions")


# --- what is told ----------------------------------------------------------------------------------------------------
class Kept(Courier):
    """A courier that only keeps."""

    def __init__(self) -> None:
        super().__init__(Receiver("webhook"))
        self.kept: list[Notice] = []

    def take(self, notice: Notice) -> None:
        self.kept.append(notice)

    def of(self, kind: str) -> list[Notice]:
        return [each for each in self.kept if each.kind == kind]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def listening(bench: Bench, folder: Path) -> tuple[Kept, Notices]:
    kept = Kept()
    views = Views(bench.live, bench.desk)
    return kept, Notices(bench.live, bench.desk, views, [kept], folder)


def test_who_is_stopped_for_whom_and_when_it_goes_on(bench: Bench, tmp_path: Path) -> None:
    kept, _ = listening(bench, tmp_path)
    (victim,) = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")
    bench.wait(2 * DAY)
    assert not kept.kept, "a first start is no news"
    (other,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="15m")
    bench.wait(HOUR)
    (told,) = kept.of("preempted")
    assert (told.about, told.account, told.user) == (victim, "llm", "eve")
    assert f"for {other}" in told.text and told.text.startswith(f"Job {victim}")
    bench.end(other)
    bench.wait(HOUR)
    (again,) = kept.of("resumed")
    assert again.text == f"Job {victim} of eve for llm runs again, as attempt 2."


def test_a_human_is_called(bench: Bench, tmp_path: Path) -> None:
    kept, notices = listening(bench, tmp_path)
    (job,) = bench.submit(ADA)
    bench.settle()
    plan = bench.cycle()
    from dataclasses import replace

    notices._hear(1, (), replace(plan, actions=(CallHuman(NodeName("n0"), RunId(f"{job}.1"), "does not stop"),)))
    (told,) = kept.of("needs-human")
    assert told.text.startswith("Node n0 needs a human: does not stop")
    assert told.account == "vision/video"


def test_a_review_that_is_due_is_told_once_even_after_a_restart(bench: Bench, tmp_path: Path) -> None:
    kept, notices = listening(bench, tmp_path)
    tree = bench.desk.budgets().tree
    tree["llm"] |= {"review": "2020-01-01", "owner": "Eva", "hypothesis": "halves the loss"}
    tree["vision"] |= {"review": "2999-01-01"}
    bench.desk.set_budgets(ROOT, tree, "*", "dates")
    notices.look()
    notices.look()
    (told,) = kept.of("review-due")
    assert told.about == "llm" and "Eva" in told.text and "halves the loss" in told.text
    later, anew = listening(bench, tmp_path)
    anew.look()
    assert not later.of("review-due")


def test_an_exception_that_ends_is_told_a_day_before(bench: Bench, tmp_path: Path) -> None:
    kept, notices = listening(bench, tmp_path)
    exceptions = bench.desk.portfolio.exceptions
    case = exceptions.request(ADA, Wish("guaranteed", "vision/video", "a release", bench.live.now() + 5 * DAY))
    exceptions.approve(ROOT, case.id, "agreed")
    bench.wait(3 * DAY)
    notices.look()
    assert not kept.of("exception-ending")
    bench.wait(DAY + HOUR)
    notices.look()
    (told,) = kept.of("exception-ending")
    assert (told.about, told.account) == (case.id, "vision/video")
    assert "a release" in told.text


def test_an_account_that_got_less_than_it_was_owed_for_a_day(bench: Bench, tmp_path: Path) -> None:
    """llm holds everything under a longer minimum; vision/video asks for its share and gets nothing."""
    kept, notices = listening(bench, tmp_path)
    exceptions = bench.desk.portfolio.exceptions
    wish = Wish("longer-minimum", "llm", "a long one", bench.live.now() + 6 * DAY, cap=5 * DAY)
    exceptions.approve(ROOT, exceptions.request(EVE, wish).id, "agreed")
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="5d")
    bench.wait(HOUR)
    bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
    for hour in range(30):
        bench.wait(HOUR)
        notices.look()
        assert hour > 20 or not kept.of("under-served"), "a day is a day"
    (told,) = kept.of("under-served")
    assert told.about == "vision/video"
    assert "was owed" in told.text and "got 0" in told.text
    notices.look()
    assert len(kept.of("under-served")) == 1, "once a day"


def test_nothing_is_told_of_advice(bench: Bench, tmp_path: Path) -> None:
    from dataclasses import replace

    kept, notices = listening(bench, tmp_path)
    (job,) = bench.submit(ADA)
    plan = bench.cycle()
    call = (CallHuman(NodeName("n0"), RunId(f"{job}.1"), "does not stop"),)
    bench.state.policy = replace(bench.state.policy, mode="observe")
    notices._hear(1, (), replace(plan, actions=call))
    assert not kept.kept
    bench.state.policy = replace(bench.state.policy, mode="enforce")


# --- the file --------------------------------------------------------------------------------------------------------
def test_off_until_a_file_says_otherwise(tmp_path: Path) -> None:
    assert load_config({"state_dir": str(tmp_path)}, {}).notices is None
    assert load_config({"state_dir": str(tmp_path), "notices": "n.yaml"}, {}).notices == Path("n.yaml").absolute()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{to: pigeon}", "'pigeon' is no to"),
        ("{to: slack}", "needs 'url'"),
        ("{to: slack, url: 'ftp://x'}", "is no address"),
        ("{to: slack, url: 'http://x', server: x}", "has no 'server'"),
        ("{to: webhook, url: 'http://x', about: preemted}", "preempted"),
        ("{to: webhook, url: 'http://x', token_file: none}", "there is no file"),
        ("{to: email, address: a@x, from: a@x}", "needs 'server'"),
        ("{to: email, address: 'a@x b', from: a@x, server: s}", "no e-mail address"),
        ("{to: email, address: a@x, from: a@x, server: 's:99999'}", "no mail server"),
        ("{to: email, address: a@x, from: a@x, server: s, tls: maybe}", "is no tls"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(LogError, match=says):
        settings(tmp_path, f"notices: [{line}]")


def test_what_is_not_said_is_all(tmp_path: Path) -> None:
    (receiver,) = settings(tmp_path, "notices: [{to: email, address: a@x, from: m@x, server: s}]")
    assert (receiver.about, receiver.accounts, receiver.port) == (KINDS, (), 25)


def test_the_command_checks_and_tries(mirab: Mirab, post: Post, tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    file.write_text(f"notices: [{{to: slack, url: '{post.url}', about: needs-human, accounts: [llm]}}]")
    told = mirab("notice", "check", file)
    assert told.code == 0 and "needs-human" in told.out and "llm" in told.out and not post.got
    assert "/hook" not in told.out, "a Slack address is a secret"
    (receiver,) = json.loads(mirab("notice", "check", file, "--json").out)["receivers"]
    assert (receiver["about"], receiver["accounts"]) == (["needs-human"], ["llm"]) and "/hook" not in str(receiver)
    assert mirab("notice", "check", file, "--send").code == 0
    assert "test" in post.got[0][1]["text"]
    post.answers = [404]
    assert "Not everybody was reached" in mirab("notice", "check", file, "--send").err


def test_the_command_tells_of_secrets_that_others_can_read_and_of_nobody(mirab: Mirab, tmp_path: Path) -> None:
    file, token = tmp_path / "n.yaml", tmp_path / "token"
    token.write_text("secret")
    file.write_text("notices: [{to: webhook, url: 'http://127.0.0.1:1/x', token_file: token}]")
    token.chmod(0o640)
    assert (
        f"others can read {token}, in which a secret stands: chmod 600 {token}." in mirab("notice", "check", file).err
    )
    token.chmod(0o600)
    assert mirab("notice", "check", file).err == ""
    refused = mirab("notice", "check", file, "--send").err
    assert refused == "mirab: Not everybody was reached: webhook 127.0.0.1:1: Connection refused.\n"
    file.write_text("notices: []")
    assert "Nobody is told anything" in mirab("notice", "check", file).err
