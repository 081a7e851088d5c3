"""Where the server is, and which token it gets: options, environment, files, sockets."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from mirab.cli.exits import DeniedError, InvalidError, UnreachableError

PORT = 7077
SYSTEM_STATE = "/var/lib/mirab"
SOCKET = "mirab.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address; `str()` gives it as people write it.

    Attributes:
        kind: ``unix``, ``http`` or ``https``.
        place: the path of the socket, or the host.
        prefix: what stands before ``/api``, where a proxy serves it below a path.
    """

    kind: str
    place: str
    port: int = 0
    prefix: str = ""

    def __str__(self) -> str:
        if self.kind == "unix":
            return f"unix://{self.place}"
        host = f"[{self.place}]" if ":" in self.place else self.place
        return f"{self.kind}://{host}:{self.port}{self.prefix}"


def parse_address(text: str) -> Address:
    """``http://host:7077``, ``unix:///path/mirab.sock``, a path of a socket, or ``host:7077``.

    Raises:
        InvalidError: it is none of these.
    """
    if text.startswith("/"):
        return Address("unix", text)
    parts = _split(text if "://" in text else f"http://{text}")
    if parts.scheme == "unix" and not parts.netloc and parts.path:
        return Address("unix", parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise InvalidError(f"{text!r} is no server: write http://host:{PORT} or unix:///path/{SOCKET}.")
    port = parts.port or (443 if parts.scheme == "https" else PORT)
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidError(f"{text!r} is no server ({error}): write http://host:{PORT}.") from error
    return parts


def state_folder() -> str:
    """Where a service of this user keeps its state: ``MIRAB_STATE_DIR_ROOT``, or the usual place."""
    if named := os.environ.get("MIRAB_STATE_DIR_ROOT"):
        return named
    return SYSTEM_STATE if os.geteuid() == 0 else os.path.expanduser("~/.local/state/mirab")


def sockets() -> list[str]:
    """The sockets that are looked for, the first that exists is used: what was named comes before what is usual."""
    named, runtime = os.environ.get("MIRAB_STATE_DIR_ROOT"), os.environ.get("XDG_RUNTIME_DIR")
    folders = [named, runtime, state_folder(), "/run/mirab", SYSTEM_STATE]
    found = [os.environ.get("MIRAB_SOCKET"), *(os.path.join(folder, SOCKET) for folder in folders if folder)]
    return list(dict.fromkeys(path for path in found if path and path != "none"))


def find_server(named: str | None) -> Address:
    """The server named by the option or ``MIRAB_SERVER``, else the first socket that is there.

    Raises:
        InvalidError: what was named is no address.
        UnreachableError: nothing was named, and no socket is there.
    """
    if chosen := named or os.environ.get("MIRAB_SERVER"):
        return parse_address(chosen)
    looked = sockets()
    for path in looked:
        if _is_socket(path):
            return Address("unix", path)
    raise UnreachableError(
        f"no server was found: there is no socket {' or '.join(looked)}. Start one with `mirab serve`, "
        "or say where it is with --server or MIRAB_SERVER."
    )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def token_file() -> str:
    """The file that holds this user's token."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "mirab", "token")


def find_token() -> str:
    """``MIRAB_TOKEN``, or the first line of the token file; "" = none.

    Raises:
        DeniedError: others can read the file.
    """
    if given := os.environ.get("MIRAB_TOKEN", "").strip():
        return _clean(given, "MIRAB_TOKEN")
    path = token_file()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.readline().strip()
    except FileNotFoundError:
        return ""
    if mode & 0o077:
        raise DeniedError(f"{path} can be read by others, and whoever has the token is you: chmod 600 {path}")
    return _clean(text, path)


def _clean(token: str, where: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError(f"{where} does not hold a token: copy the one line that you were given.")
    return token
