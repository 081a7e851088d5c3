"""Sending notices: by HTTP and SMTP, by a thread of its own, several together, tried again, in nobody's way."""

from __future__ import annotations

import json
import smtplib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog

from mirab.model.units import Instant
from mirab.service.noticefile import Receiver
from mirab.service.views.moments import iso

MOST_WAITING = 10_000
TOGETHER = 1.0
"""Seconds for which notices are gathered: a decision that stops a hundred runs is one message."""
LINES_MOST = 50
TIMEOUT = 20.0
AGAIN = (1.0, 10.0, 60.0)
"""Pauses between attempts; after the last one the notice is given up, and the log says so."""

log = structlog.get_logger("mirab.notices")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that somebody should know.

    Attributes:
        kind: of `noticefile.KINDS`; about: the job, node, exception or account.
        account, user: whose it is; "" = nobody's in particular.
    """

    at: Instant
    kind: str
    about: str
    text: str
    account: str = ""
    user: str = ""

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "at": iso(self.at)}


class Courier:
    """One receiver's thread and queue. `again`: pauses in seconds between attempts."""

    def __init__(self, receiver: Receiver, again: Sequence[float] = AGAIN, together: float = TOGETHER) -> None:
        self.receiver = receiver
        self._again, self._together = again, together
        self._queue: Queue[Notice] = Queue(MOST_WAITING)
        self._stop = Event()
        self._thread = Thread(target=self._work, daemon=True, name=f"mirab-notices-{receiver.form}")
        self.sent = self.given_up = 0

    def start(self) -> None:
        self._thread.start()

    def take(self, notice: Notice) -> None:
        """Queue it, if the receiver wants it. Returns at once; a queue that is full loses it, and the log says so."""
        if self.receiver.wants(notice.kind, notice.account):
            try:
                self._queue.put_nowait(notice)
            except Full:
                self.given_up += 1
                log.error("notice.lost", to=self.receiver.name, kind=notice.kind, about=notice.about)

    def stop(self, patience: float = 5.0) -> None:
        """Send what waits, once, and end."""
        self._stop.set()
        self._thread.join(patience)

    def _work(self) -> None:
        while not (self._stop.is_set() and self._queue.empty()):
            notices = self._gathered()
            if notices:
                self._deliver(notices)

    def _gathered(self) -> list[Notice]:
        try:
            found = [self._queue.get(timeout=0.2)]
        except Empty:
            return []
        self._stop.wait(self._together)
        while len(found) < LINES_MOST:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                break
        return found

    def _deliver(self, notices: Sequence[Notice]) -> None:
        for pause in (*self._again, None):
            try:
                send(self.receiver, notices)
            except (OSError, ValueError, smtplib.SMTPException) as error:
                why = f"{type(error).__name__}: {error}"
                log.warning("notice.not_sent", to=self.receiver.name, count=len(notices), error=why[:300])
                if pause is None or self._stop.wait(pause):
                    break
            else:
                self.sent += len(notices)
                return
        self.given_up += len(notices)
        log.error("notice.given_up", to=self.receiver.name, count=len(notices))


def send(receiver: Receiver, notices: Sequence[Notice]) -> None:
    """Send them, as one message.

    Raises:
        OSError, ValueError, SMTPException: it was not taken.
    """
    _SENDERS[receiver.form](receiver, notices)


class _NoRedirect(HTTPRedirectHandler):
    """What is posted goes where the file says, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(receiver: Receiver, body: Any) -> None:
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "mirab"}
    if receiver.token_file is not None:
        headers["Authorization"] = f"Bearer {receiver.token_file.read_text('utf-8').strip()}"
    request = Request(receiver.url, data, headers, method="POST")
    with build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
        answer.read(1 << 16)


def _webhook(receiver: Receiver, notices: Sequence[Notice]) -> None:
    _post(receiver, {"notices": [notice.json() for notice in notices]})


def _slack(receiver: Receiver, notices: Sequence[Notice]) -> None:
    lines = [f"*{notice.kind}* {_escaped(notice.text)}" for notice in notices]
    _post(receiver, {"text": "\n".join(lines)})


def _escaped(text: str) -> str:
    """Slack's three signs: nobody's job name calls a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _email(receiver: Receiver, notices: Sequence[Notice]) -> None:
    message = EmailMessage()
    kinds = ", ".join(dict.fromkeys(notice.kind for notice in notices))
    message["Subject"] = f"mirab: {kinds}" + (f" ({len(notices)})" if len(notices) > 1 else "")
    message["From"], message["To"] = receiver.sender, ", ".join(receiver.addresses)
    message.set_content("\n\n".join(f"{iso(notice.at)}  {notice.kind}\n{notice.text}" for notice in notices) + "\n")
    context = ssl.create_default_context() if receiver.tls != "no" else None
    with _connected(receiver, context) as server:
        if receiver.tls == "starttls":
            server.starttls(context=context)
        if receiver.user and receiver.password_file is not None:
            server.login(receiver.user, receiver.password_file.read_text("utf-8").strip())
        server.send_message(message)


def _connected(receiver: Receiver, context: ssl.SSLContext | None) -> smtplib.SMTP:
    if receiver.tls == "yes":
        return smtplib.SMTP_SSL(receiver.server, receiver.port, timeout=TIMEOUT, context=context)
    return smtplib.SMTP(receiver.server, receiver.port, timeout=TIMEOUT)


_SENDERS: dict[str, Callable[[Receiver, Sequence[Notice]], None]] = {
    "webhook": _webhook,
    "slack": _slack,
    "email": _email,
}
