"""`mirab token`: who may do what: tokens, and the roles of this machine's users."""

from __future__ import annotations

import re
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.exits import InvalidError
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import emit, say, to_json

ROLES = ("researcher", "manager", "operator", "admin")
_ID = re.compile(r"[0-9a-f]{1,64}")
COLUMNS = (
    Column("ID"),
    Column("USER", least=6),
    Column("ROLES", least=12),
    Column("KIND"),
    Column("CREATED"),
    Column("EXPIRES"),
    Column("NOTE", least=8),
)


@click.group()
def command() -> None:
    """Make, show and revoke tokens, and give roles to users of this machine, who need no token over the socket."""


@command.command()
@click.argument("user")
@click.option(
    "--role",
    "roles",
    metavar="ROLE[:ACCOUNT]",
    multiple=True,
    required=True,
    help=f"{', '.join(ROLES)}; on the account and all below it, or on the whole cluster. Repeat for more.",
)
@click.option("--expires", metavar="TIME", help="After so long it is worth nothing, such as 90d. Default: never.")
@click.option("--note", metavar="TEXT", default="", help="What it is for.")
@click.option("--local", is_flag=True, help="No token: give the roles to this Unix user of the service's machine.")
@JSON_OPTION
@connected
def create(
    client: Client, user: str, roles: tuple[str, ...], expires: str | None, note: str, local: bool, as_json: bool
) -> None:
    """Make a token for USER; it is shown this once, on standard output."""
    wanted: dict[str, Any] = {"user": user, "grants": [grant(role) for role in roles], "note": note, "local": local}
    if expires is not None:
        wanted["expires_in"] = lifetime(expires)
    made = client.post("/tokens", wanted)
    if as_json:
        emit(to_json(made))
    elif local:
        say(f"{user} of the service's machine is now {_roles(made)}.")
    else:
        emit(made["token"])
        say(f"Token {made['id']} of {user}: {_roles(made)}. Keep it in ~/.config/mirab/token, mode 600.")
    _warn_of_unknown(client, made)


def grant(text: str) -> dict[str, str]:
    """``researcher:red/a`` as a role and an account.

    Raises:
        click.UsageError: there is no such role.
    """
    role, _, account = text.partition(":")
    if role not in ROLES:
        raise click.UsageError(f"--role: there is no role {role!r}; there are {', '.join(ROLES)}")
    return {"role": role, "account": account}


def lifetime(text: str) -> str:
    """The text, if it is a duration.

    Raises:
        click.UsageError: it is none.
    """
    from mirab.model.units import parse_duration

    try:
        parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--expires: {error}") from error
    return text


def _warn_of_unknown(client: Client, token: dict[str, Any]) -> None:
    """A role may be given before its account is there; a slip of the pen looks the same."""
    named = {each["account"] for each in token["grants"] if each["account"]}
    missing = sorted(named - {each["path"] for each in client.get("/share")["accounts"]}) if named else []
    for account in missing:
        say(f"mirab: there is no account {account} yet; until there is, the role on it gives nothing.")


def _roles(token: dict[str, Any]) -> str:
    return ", ".join(f"{each['role']}:{each['account']}".rstrip(":") for each in token["grants"])


@command.command("ls")
@click.option("--all", "everything", is_flag=True, help="Those that were revoked or have expired too.")
@JSON_OPTION
@connected
def list_tokens(client: Client, everything: bool, as_json: bool) -> None:
    """Show your tokens; an admin sees everybody's. The tokens themselves are stored nowhere."""
    tokens = client.get("/tokens")["tokens"]
    if not everything:
        tokens = [token for token in tokens if token["revoked_at"] is None]
    if as_json:
        emit(to_json({"tokens": tokens}))
    else:
        emit(table(COLUMNS, [_row(token) for token in tokens], terminal_width()))


def _row(token: dict[str, Any]) -> list[str]:
    kind = "local" if token["local"] else "token"
    kind = "revoked" if token["revoked_at"] else kind
    expires = near(token["expires_at"]) or "never"
    return [token["id"], token["user"], _roles(token), kind, near(token["created_at"]), expires, token["note"]]


@command.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@JSON_OPTION
@connected
def revoke(client: Client, ids: tuple[str, ...], as_json: bool) -> None:
    """From now on these tokens are worth nothing."""
    if not all(_ID.fullmatch(token_id) for token_id in ids):
        raise InvalidError("a token is revoked by its id, not by itself: `mirab token ls` shows the ids.")
    for token_id in ids:
        client.send("DELETE", at("tokens", token_id))
    if as_json:
        emit(to_json({"revoked": list(ids)}))
    else:
        say(f"Revoked {' '.join(ids)}.")
