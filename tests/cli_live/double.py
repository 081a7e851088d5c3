"""A stand-in for the service that answers by the table of the REST API, for tests of the client commands.

It remembers what was asked, keeps a few jobs in memory, and can be told to break off, to be away, or to be slow.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Job = dict[str, Any]


def job(job_id: str = "7", **changes: Any) -> Job:
    """A job as the API gives it."""
    return {
        "id": job_id, "name": "train", "user": "ann", "account": "red/a", "state": "PENDING", "reason": "Resources",
        "why": "needs 1 node with 8 free GPUs; 0 are", "nodes": 1, "gpus_per_node": 8, "gpus": 8, "cpus_per_node": 16,
        "min_runtime_s": 900, "time_limit_s": 7200, "submitted_at": "2026-03-01T12:00:00Z", "started_at": None,
        "ended_at": None, "protected_until": None, "attempt": 0, "node_names": [], "exit_code": None, "preemptions": 0,
        "lost_s": 0, "label": "", "array_job": None, "array_task": None, "held": "", "checkpoint_at": None,
        "progress_flag": "", "interactive": False, **changes,
    }  # fmt: skip


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: Any
    headers: dict[str, str]


@dataclass
class Answer:
    """What is answered: a status and JSON, or pieces of a stream, with what to do before and after."""

    data: Any = None
    status: int = 200
    pieces: Iterable[bytes] | None = None
    break_off: bool = False
    """Close the connection without an answer, or after the pieces without an end."""


Handler = Callable[[Asked], Answer | None]


@dataclass
class Double:
    """What the stand-in knows. `special` is asked first; None from it = the usual answer."""

    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    special: Handler | None = None
    replies: dict[str, Any] = field(default_factory=dict)
    made: int = 6
    notes: list[str] = field(default_factory=list)
    url: str = ""
    me: str = "ann"

    def requests(self, method: str, path: str = "") -> list[Asked]:
        return [each for each in self.asked if each.method == method and each.path.startswith(path)]

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if self.special is not None and (answer := self.special(asked)) is not None:
            return answer
        return self.usual(asked)

    def usual(self, asked: Asked) -> Answer:
        match asked.method, asked.path.strip("/").split("/"):
            case "POST", ["jobs"]:
                return self.submit(asked)
            case "GET", ["jobs"]:
                return self.listing(asked)
            case "GET", ["jobs", job_id, *rest]:
                return self.look(job_id, rest)
            case "POST", ["jobs", job_id, deed]:
                return self.deed(job_id, deed)
            case "GET", ["whoami"]:
                return Answer({"user": self.me, "origin": "unix uid=1000", "rights": ["job.submit"], "grants": []})
            case "GET", ["version"]:
                return Answer({"version": "9.9", "api": "v1"})
            case "GET", ["nodes"]:
                return Answer({"nodes": self.nodes})
            case _, ["nodes", name, *_]:
                found = [node for node in self.nodes if node["name"] == name]
                return Answer(found[0]) if found else problem(404, f"there is no node {name}")
            case _:
                return problem(404, f"{asked.method} {asked.path} is not part of this API")

    def submit(self, asked: Asked) -> Answer:
        if "dry_run" in asked.query:
            return Answer({"decision": "wait", "sentence": "needs 8 free GPUs", "reason": {}, "nodes": [], "notes": []})
        key = asked.headers.get("idempotency-key", "")
        if key not in self.replies:
            self.made += 1
            body = asked.body
            made = job(str(self.made), name=body.get("name", ""), account=body.get("account", ""))
            self.jobs[made["id"]] = made
            self.replies[key] = {"ids": [made["id"]], "job": made["id"], "jobs": [made], "notes": self.notes}
        return Answer(self.replies[key], 201)

    def listing(self, asked: Asked) -> Answer:
        wanted = [each for each in self.jobs.values() if _fits(each, asked.query)]
        begin, limit = int(asked.query.get("cursor", ["0"])[0]), int(asked.query.get("limit", ["100"])[0])
        end = begin + limit
        return Answer({"jobs": wanted[begin:end], "next": str(end) if end < len(wanted) else None})

    def look(self, job_id: str, rest: list[str]) -> Answer:
        found = self.jobs.get(job_id)
        if found is None:
            return problem(404, f"there is no job {job_id}")
        if rest == ["output"]:
            return Answer(pieces=[b"hello\n", b"world\n"])
        return Answer(found if rest == ["await"] else {**found, "runs": [], "spec": None})

    def deed(self, job_id: str, deed: str) -> Answer:
        found = self.jobs.get(job_id)
        if found is None:
            return problem(404, f"there is no job {job_id}")
        if found["state"] == "COMPLETED":
            return problem(409, f"job {job_id} has ended: there is nothing to {deed}")
        return Answer(found)


def problem(status: int, detail: str) -> Answer:
    return Answer({"type": "about:blank", "title": "?", "status": status, "detail": detail}, status)


def _fits(each: Job, query: dict[str, list[str]]) -> bool:
    for name in ("user", "account", "label", "array_job"):
        if name in query and each[name] != query[name][0]:
            return False
    return "state" not in query or each["state"] in query["state"]


class _Tcp(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no news."""


class _Unix(_Tcp):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0


def handler_of(double: Double) -> type[BaseHTTPRequestHandler]:
    """The class that http.server wants."""

    class Handling(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def address_string(self) -> str:
            return "test"

        def handle_one(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            path = unquote(parts.path).removeprefix("/api/v1")
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(text) if text else None
            self.give(double.answer(Asked(self.command, path, parse_qs(parts.query), body, headers)))

        do_GET = do_POST = do_PUT = do_DELETE = handle_one  # noqa: N815

        def give(self, answer: Answer) -> None:
            if answer.pieces is not None:
                self.stream(answer)
            elif answer.break_off:
                self.close_connection = True
            else:
                data = json.dumps(answer.data).encode()
                kind = "application/problem+json" if answer.status >= 400 else "application/json"
                self.head(answer.status, {"Content-Type": kind, "Content-Length": str(len(data))})
                self.wfile.write(data)

        def stream(self, answer: Answer) -> None:
            self.head(200, {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"})
            for piece in answer.pieces or ():
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            if answer.break_off:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    return Handling


@contextmanager
def serving(double: Double, socket_path: Path | None = None) -> Iterator[Double]:
    """The stand-in, answering on a free port of this machine, or on a Unix socket."""
    kind: Any = _Tcp if socket_path is None else _Unix
    address: Any = ("127.0.0.1", 0) if socket_path is None else str(socket_path)
    server = kind(address, handler_of(double))
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_port}" if socket_path is None else f"unix://{socket_path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
