"""`mirab budget push`: the budgets of a file, made those of the live service."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.budgettools import REASON, TIMEZONE, calendar_of, now_ms, opened, sentences
from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.exits import ConflictError
from mirab.cli.output import emit, say, to_json


@click.command()
@click.argument("file")
@REASON
@click.option("--base", metavar="VERSION", help="The service's version you have seen. Default: the one it has now.")
@TIMEZONE
@JSON_OPTION
@connected
def push(client: Client, file: str, reason: str, base: str | None, timezone: str | None, as_json: bool) -> None:
    """Make the budgets that FILE says are in force those of the live service.

    The service keeps what accounts have used; one that FILE does not name is closed. If somebody else has changed them
    since --base, you are told, and nothing is changed.
    """
    from mirab.study.budgettext import tree_json

    with sentences():
        book = opened(file, calendar_of(timezone))
        if book.by_hand:
            raise ConflictError(f"{file} was edited by hand: record it first, `mirab budget set {file} --as-edited`.")
        tree = tree_json(book.at(now_ms()))
    seen: dict[str, Any] = client.get("/budgets")
    version = base or seen["version"]
    made = client.send("PUT", "/budgets", {"budgets": tree, "why": reason}, headers={"If-Match": f'"{version}"'})
    emit(to_json(made) if as_json else _told(seen["version"], made))
    closed = sorted(_closed(made["budgets"]) - _closed(seen["budgets"]))
    if closed:
        say(f"Closed: {', '.join(closed)}. What was used there is kept, and new work is refused.")


def _closed(tree: dict[str, Any], above: str = "") -> set[str]:
    """The paths of the accounts that take no new work."""
    found = {f"{above}{name}" for name, budget in tree.items() if budget.get("closed")}
    return found.union(*(_closed(budget.get("children") or {}, f"{above}{name}/") for name, budget in tree.items()))


def _told(before: str, made: dict[str, Any]) -> str:
    if made["version"] == before:
        return f"The service has these budgets already, version {before}."
    return f"The service has these budgets now, version {made['version']}."
