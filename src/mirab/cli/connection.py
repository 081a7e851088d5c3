"""What every client command has: `--server`, `--json`, and a client that is closed at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from mirab.cli.client import open_client

F = TypeVar("F", bound=Callable[..., Any])

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="As JSON, with keys that stay.")
SERVER_OPTION = click.option(
    "--server", metavar="URL", help="http://host:7077 or unix:///path/mirab.sock. Default: MIRAB_SERVER, else the "
    "socket of this machine's service."
)  # fmt: skip


def connected(command: F) -> F:
    """The option `--server`; the command gets a `client` of that server."""

    @wraps(command)
    def connecting(server: str | None, **given: Any) -> Any:
        with open_client(server) as client:
            return command(client=client, **given)

    wrapped: Any = SERVER_OPTION(connecting)
    return wrapped  # type: ignore[no-any-return]
