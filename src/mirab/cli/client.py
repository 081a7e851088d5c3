"""The client of the REST API: standard library only, over TCP or a Unix socket, one connection that is kept.

Answers that are problems (RFC 9457) become the exceptions of `mirab.cli.exits`. A request that is safe to repeat is
repeated when the server was restarted under it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

from mirab import __version__
from mirab.cli.address import Address, find_server, find_token, token_file
from mirab.cli.exits import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    TimedOutError,
    UnreachableError,
    UnusableError,
)
from mirab.cli.zone import zone_name

API = "/api/v1"
CONNECT_S = 5.0
ANSWER_S = 45.0
"""Longer than the server takes to give up by itself (30 s)."""
PATIENCE_S = 30.0
"""How long a request that is safe to repeat is tried, while a server restarts."""
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
CHUNK = 65_536
SOCKET_PATH_MAX = 107
"""Bytes of a Unix socket's path that the kernel takes; a deeper one is reached through its folder."""

KINDS: dict[int, type[Exception]] = {
    400: InvalidError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    408: TimedOutError,
    409: ConflictError,
    412: ConflictError,
    413: InvalidError,
    422: InvalidError,
    503: UnreachableError,
    504: TimedOutError,
}
"""What an answer's status is to the one who asked; any other is a plain failure."""

Query = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `key`: it may be sent again, the server answers as it did the first time."""

    method: str
    path: str
    body: bytes | None = None
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def repeatable(self) -> bool:
        return self.method == "GET" or bool(self.key)


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        if len(os.fsencode(self.path)) <= SOCKET_PATH_MAX:
            self.sock.connect(self.path)
            return
        folder = os.open(os.path.dirname(self.path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(self.path)}")
        finally:
            os.close(folder)


class NotSentError(Exception):
    """No connection could be made, so the server knows nothing of the request."""


class LostError(Exception):
    """The connection broke after the request was sent: what the server did is not known."""


class Client:
    """Talks to one server. Not for use by several threads at once."""

    def __init__(self, address: Address, token: str = "", patience: float = PATIENCE_S) -> None:
        self.address = address
        self.token = token
        self.patience = patience
        self.dated: tuple[str, float, float] | None = None
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, query: Query | None = None, *, timeout: float = ANSWER_S) -> Any:
        """The JSON that answers a GET below ``/api/v1``."""
        return _data(self._answered(Request("GET", _target(path, query)), timeout), self.address)

    def post(self, path: str, body: Any = None, *, query: Query | None = None, key: str = "") -> Any:
        """The JSON that answers a POST. With a `key` it is repeated for `patience` seconds while nobody answers."""
        return self.send("POST", path, body, query=query, key=key)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON that answers any request."""
        request = Request(method, _target(path, query), _bytes(body), key, headers or {})
        return _data(self._answered(request, ANSWER_S), self.address)

    def stream(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """The bytes of an answer as they come, for as long as the server sends.

        Raises:
            LostError: the connection broke; what was given so far is right.
        """
        response = self._open_stream(Request("GET", _target(path, query)))
        try:
            while chunk := response.read1(CHUNK):
                yield chunk
        except (OSError, HTTPException) as error:
            raise LostError(str(error)) from error
        finally:
            self.close()

    def unready(self) -> str:
        """Why the service that answers does not decide and record; "" = it does."""
        try:
            _data(self._answered(Request("GET", "/readyz"), ANSWER_S), self.address)
        except UnreachableError as error:
            return str(error)
        return ""

    def clock_skew(self) -> float | None:
        """Seconds that the server's clock was ahead of ours at its last answer, at the least; None = it did not say.

        It says a whole second, and it said so at some instant between our question and its answer: 0 = it may be right.
        """
        from email.utils import parsedate_to_datetime

        if self.dated is None:
            return None
        date, asked, answered = self.dated
        try:
            said = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return None
        return min(0.0, said + 1 - asked) + max(0.0, said - answered)

    def _open_stream(self, request: Request) -> HTTPResponse:
        response = self._answered(request, ANSWER_S)
        assert self._connection is not None
        if self._connection.sock is not None:
            self._connection.sock.settimeout(None)
        return response

    def _answered(self, request: Request, timeout: float) -> HTTPResponse:
        """The answer, which is no problem; with patience where the request allows it."""
        give_up = time.monotonic() + (self.patience if request.key else 0)
        count = 0
        while True:
            try:
                return self._once(request, timeout)
            except (NotSentError, LostError, UnreachableError) as error:
                self.close()
                if not self._again(request, error, count, give_up):
                    raise self._final(error) from error
            count += 1

    def _again(self, request: Request, error: Exception, count: int, give_up: float) -> bool:
        """Whether to try once more, after a pause."""
        if not request.key:
            return request.repeatable and isinstance(error, LostError) and count == 0
        if time.monotonic() >= give_up:
            return False
        if count == len(PAUSES_S):
            told = str(error).rstrip(".") if isinstance(error, UnreachableError) else f"{self.address} does not answer"
            print(f"{told}; trying for {self.patience:.0f} s.", file=sys.stderr, flush=True)
        time.sleep(PAUSES_S[min(count, len(PAUSES_S) - 1)])
        return True

    def _final(self, error: Exception) -> Exception:
        if isinstance(error, LostError):
            return UnreachableError(
                f"{self.address} broke off before it answered ({error}); whether it did what was asked is not known: "
                "look with `mirab ls`, then try again."
            )
        return _unreachable(self.address, error.__cause__) if isinstance(error, NotSentError) else error

    def _once(self, request: Request, timeout: float) -> HTTPResponse:
        """One attempt.

        Raises:
            NotSentError, LostError: no answer.
            Exception: of `KINDS`, for an answer that is a problem.
        """
        connection = self._connected()
        assert connection.sock is not None
        connection.sock.settimeout(timeout)
        asked = time.time()
        try:
            connection.request(request.method, self.address.prefix + request.path, request.body, self._head(request))
            response = connection.getresponse()
        except TimeoutError as error:
            self.close()
            raise _too_late(self.address, timeout) from error
        except (OSError, HTTPException) as error:
            raise LostError(str(error) or type(error).__name__) from error
        if date := response.getheader("Date"):
            self.dated = date, asked, time.time()
        if response.status == 401 and not self.token:
            raise _nobody(self.address)
        if response.status >= 300:
            raise _problem(response, self.address)
        return response

    def _connected(self) -> HTTPConnection:
        if self._connection is None or self._connection.sock is None:
            connection = _connection(self.address)
            try:
                connection.connect()
            except (OSError, HTTPException) as error:
                raise NotSentError(str(error)) from error
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._connection = connection
        return self._connection

    def _head(self, request: Request) -> dict[str, str]:
        head = {"Accept": "application/json, */*", "User-Agent": f"mirab/{__version__}", **request.headers}
        zone = zone_name()
        if zone:
            head["X-Time-Zone"] = zone
        if request.body is not None:
            head["Content-Type"] = "application/json"
        if request.key:
            head["Idempotency-Key"] = request.key
        if self.token:
            head["Authorization"] = f"Bearer {self.token}"
        return head


def open_client(server: str | None = None) -> Client:
    """A client of the server that is named, or found. It connects at the first request.

    Raises:
        UnreachableError, InvalidError, DeniedError: as `find_server` and `find_token` say.
    """
    return Client(find_server(server), find_token())


def new_key() -> str:
    """An Idempotency-Key: 128 random bits."""
    return os.urandom(16).hex()


def at(*parts: str) -> str:
    """A path below the API with each part quoted: ``/jobs/12_3/cancel``."""
    return "".join("/" + quote(part, safe="") for part in parts)


def _target(path: str, query: Query | None) -> str:
    pairs = [(name, value) for name, value in (query or {}).items() if value is not None and value != ""]
    return f"{API}{path}" + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")


def _bytes(body: Any) -> bytes:
    try:
        return json.dumps({} if body is None else body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidError(f"{error.object[:60]!r} is not text in UTF-8: the service takes no other.") from error


def _connection(address: Address) -> HTTPConnection:
    if address.kind == "unix":
        return _UnixConnection(address.place, CONNECT_S)
    if address.kind == "https":
        from http.client import HTTPSConnection

        return HTTPSConnection(address.place, address.port, timeout=CONNECT_S)
    return HTTPConnection(address.place, address.port, timeout=CONNECT_S)


def _data(response: HTTPResponse, address: Address) -> Any:
    try:
        text = response.read()
        return json.loads(text) if text else None
    except (OSError, HTTPException) as error:
        raise UnreachableError(f"{address} broke off in the middle of its answer: try again.") from error
    except ValueError as error:
        raise UnreachableError(f"{address} answers, but not as mirab does: check the address.") from error


def _problem(response: HTTPResponse, address: Address) -> Exception:
    """The exception for an answer that is not what was asked for."""
    try:
        text = response.read()
        problem = json.loads(text) if text else {}
    except (OSError, HTTPException, ValueError):
        problem = {}
    detail = problem.get("detail") if isinstance(problem, dict) else None
    if not isinstance(detail, str) or not detail:
        return UnusableError(f"{address} answered {response.status} {response.reason} without saying why.")
    return KINDS.get(response.status, UnusableError)(detail)


def _nobody(address: Address) -> DeniedError:
    return DeniedError(
        f"{address} wants to know who you are: put the token that you were given into {token_file()} (mode 600), or "
        "into MIRAB_TOKEN."
    )


def _too_late(address: Address, timeout: float) -> TimedOutError:
    return TimedOutError(
        f"{address} did not answer within {timeout:.0f} s; whether it did what was asked is not known: "
        "look with `mirab ls`, then try again."
    )


def _unreachable(address: Address, cause: BaseException | None) -> Exception:
    if isinstance(cause, PermissionError):
        return DeniedError(f"you may not use the socket of {address}: ask its owner, or use --server with a token.")
    if isinstance(cause, FileNotFoundError):
        return UnreachableError(f"there is no server at {address}: start it with `mirab serve`, or check the path.")
    if isinstance(cause, ConnectionRefusedError):
        return UnreachableError(f"nothing answers at {address}: start it with `mirab serve`, or check the address.")
    reason = getattr(cause, "strerror", None) or str(cause) or "no reason given"
    return UnreachableError(f"{address} cannot be reached ({reason}): check the address, and that the server runs.")
