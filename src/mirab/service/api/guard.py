"""The door of the API: every request passes here before any route, and every answer on its way out."""

from __future__ import annotations

import ipaddress
import re
import secrets
from email.utils import formatdate
from functools import cache
from time import monotonic
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio
import structlog
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mirab.service.api.parts import Parts
from mirab.service.api.problems import ProblemError, denied, printable, problem_of, respond
from mirab.service.auth.authenticate import UnknownCallerError
from mirab.service.auth.peers import Peer
from mirab.service.auth.principal import Principal
from mirab.service.views.waiting import READER_ZONE

log = structlog.get_logger("mirab.api")

GUARDED = "/api/"
SESSION = "/api/v1/session"
METRICS = "/metrics"
READING = ("GET", "HEAD", "OPTIONS")
PEER = "peer"
"""Key of the connection's state under which the server puts the kernel's word for the other end."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Middleware: gives a request its id, looks at where it is from and who sends it, and bounds its body.

    A header that a route states itself (a page's own security policy) stays; the others are added.

    What a handler lets through as an exception becomes a 500 that says nothing of the inside.
    """

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app, self.parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._not_http(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = Answer(send, _request_id(request))
        request.state.request_id = answer.request_id
        body_read = False
        try:
            receive = await self._admitted(request, receive)
            body_read = True
            await self.app(scope, receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            problem = problem_of(error)
            if problem.status == 500:
                log.exception("request.failed", request_id=answer.request_id, path=printable(scope["path"]))
            if not body_read and _brings_body(request):
                problem.headers["Connection"] = "close"
            await respond(problem, answer.request_id)(scope, receive, answer.send)
        finally:
            self._note(request, answer)

    async def _not_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _admitted(self, request: Request, receive: Receive) -> Receive:
        """What to read the body from, which is complete and not too long."""
        peer = getattr(request.state, PEER, None)
        if peer is None:
            check_host(request, self.parts.settings.hosts)
        check_origin(request)
        if self._asks_who(request):
            await self._answering()
            READER_ZONE.set(zone_of(request.headers.get("x-time-zone", "")))
            await self._introduced(request, peer)
            self._able(request)
        return await self._whole_body(request, receive)

    async def _introduced(self, request: Request, peer: Peer | None) -> None:
        """Who it is, on the request; only the question whether somebody is logged in may be asked by nobody."""
        try:
            request.state.principal = await run_sync(self._principal, request, peer)
        except UnknownCallerError:
            if request.scope["path"] != SESSION or request.method not in READING:
                raise

    async def _answering(self) -> None:
        """Of a store that does not answer everybody hears at once; each request alone would wait for it."""
        watch = self.parts.watch
        if watch is not None and watch.last_trouble() and (trouble := await silence_of_store(self.parts)):
            raise ProblemError(503, trouble, headers={"Retry-After": "2"})

    def _able(self, request: Request) -> None:
        """While nothing can be recorded, a change is refused at once: it would keep its place until it is too late."""
        changes = request.method not in READING and request.scope["path"] != SESSION
        if changes and (trouble := self.parts.trouble()):
            raise ProblemError(503, f"{trouble}; nothing was done", headers={"Retry-After": "2"})

    def _asks_who(self, request: Request) -> bool:
        path = request.scope["path"]
        if path == SESSION and request.method == "DELETE":
            return False
        return path.startswith(GUARDED) or (path == METRICS and not self.parts.settings.metrics_open)

    def _principal(self, request: Request, peer: Peer | None) -> Principal:
        origin = peer.origin if peer else request.client.host if request.client else "?"
        stated = request.headers.get("authorization")
        if stated is not None:
            kind, _, secret = stated.partition(" ")
            if kind.lower() != "bearer" or not secret.strip():
                raise UnknownCallerError("the header is not understood: send `Authorization: Bearer mirab_...`")
            return self.parts.auth.of_token(secret.strip(), origin)
        if request.method in READING and (digest := self._session(request)):
            return self.parts.auth.of_session(digest, origin)
        if peer is not None:
            return self.parts.auth.of_peer(peer)
        raise UnknownCallerError("say who you are: send a token as `Authorization: Bearer mirab_...`")

    def _session(self, request: Request) -> str | None:
        """What the cookie of the pages vouches for: enough to read, never to change anything."""
        return self.parts.sessions.digest(request.headers.get("cookie", ""), self.parts.live.now())

    async def _whole_body(self, request: Request, receive: Receive) -> Receive:
        most = self.parts.settings.body_max
        if int(_digits(request.headers.get("content-length", "0"))) > most:
            raise _too_large(most)
        body = bytearray()
        with anyio.move_on_after(self.parts.settings.body_patience):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ProblemError(400, "the connection broke off in the middle of the request")
                body += message.get("body", b"")
                if len(body) > most:
                    raise _too_large(most)
                if not message.get("more_body", False):
                    return _replay(bytes(body), receive)
        raise ProblemError(408, "the body of the request did not arrive in time")

    def _note(self, request: Request, answer: Answer) -> None:
        """One line in the log and one observation for the metrics."""
        seconds = monotonic() - answer.began
        route = getattr(request.scope.get("route"), "path", "none")
        who = getattr(request.state, "principal", None)
        told = log.info if request.method not in READING or answer.status >= 500 else log.debug
        told(
            "request",
            request_id=answer.request_id,
            method=printable(request.method),
            route=route,
            status=answer.status,
            ms=round(seconds * 1000, 1),
            user=who.user if who else "",
            origin=who.origin if who else "",
        )
        if self.parts.metrics is not None:
            self.parts.metrics.request(route, _known_method(request.method), answer.status, seconds)


async def silence_of_store(parts: Parts) -> str:
    """Why the store does not answer; "" = it does. Threads of its own: there is one also when all others wait."""
    return "" if parts.watch is None else await run_sync(parts.watch.trouble, limiter=_watching())


@cache
def _watching() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(8)


class Answer:
    """What is sent back: its headers are added here, its status is remembered."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        self.began = monotonic()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            stated = list(message.get("headers", ()))
            names = {name.lower() for name, _ in stated}
            usual = [header for header in HEADERS if header[0] not in names]
            date = (b"date", formatdate(usegmt=True).encode("ascii"))
            own = (b"x-request-id", self.request_id.encode("ascii"))
            message = {**message, "headers": [date, *stated, *usual, own]}
        await self._send(message)


def check_host(request: Request, known: tuple[str, ...]) -> None:
    """Against DNS rebinding: over TCP only addresses, ``localhost`` and the names that the service was given.

    Raises:
        ProblemError: 421.
    """
    host = _host_of(f"//{request.headers.get('host', '')}")
    if host is None or not (host == "localhost" or host in known or _is_address(host)):
        raise ProblemError(
            421, "the service is not known under this name: use its address, or start it with --hosts NAME"
        )


def check_origin(request: Request) -> None:
    """Against forged requests: a browser page of another origin gets nothing, but may link to a page of ours.

    Raises:
        ProblemError: 403.
    """
    if _follows_link(request):
        return
    origin = request.headers.get("origin")
    foreign = origin is not None and _netloc(origin) != request.headers.get("host", "").lower()
    if foreign or request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise denied("pages of other origins may not use this service")


def _follows_link(request: Request) -> bool:
    """A person comes to a page of ours from wherever the link stood; the page itself holds no data."""
    to_page = request.method in READING and not request.scope["path"].startswith(GUARDED)
    return to_page and request.headers.get("sec-fetch-mode") == "navigate" and "origin" not in request.headers


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone that a reader named, for sentences; None = they named none that is known here."""
    if not _ZONE.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _host_of(text: str) -> str | None:
    try:
        return urlsplit(text).hostname
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _request_id(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _digits(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ProblemError(400, "the header Content-Length is not a number")
    return text


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"the body is larger than {most >> 20} MiB: put data into files")


def _brings_body(request: Request) -> bool:
    """Then the connection is of no use to another request once this one is refused: the body is still to come."""
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _known_method(method: str) -> str:
    """A label of few values, whatever is sent."""
    return method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH") else "other"


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever else the connection says."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
