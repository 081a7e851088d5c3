"""`mirab node`: look at the nodes, drain them, put them back, report what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.nodenames import unfolded
from mirab.cli.output import emit, say, to_json
from mirab.study.formats import count

Node = dict[str, Any]

COLUMNS = (
    Column("NODE"),
    Column("POOL"),
    Column("STATE"),
    Column("GPUS", right=True),
    Column("USED", right=True),
    Column("JOBS", least=10),
    Column("CLEAR_BY"),
    Column("REASON", least=16),
)
WHY = click.option("--why", "--reason", "why", metavar="TEXT", default="", help="For the audit log and for users.")
NODES = click.argument("nodes", metavar="NODE...", nargs=-1, required=True)


@click.group()
def command() -> None:
    """Look at the nodes, drain them for repair, and put them back.

    A drain asks nobody: no new run starts there, and those that run are stopped when their minimums are over, at the
    latest after the policy's cap and the notice.
    """


@command.command("ls")
@click.argument("nodes", metavar="[NODE...]", nargs=-1)
@JSON_OPTION
@connected
def list_nodes(client: Client, nodes: tuple[str, ...], as_json: bool) -> None:
    """Show the nodes: what they have, what runs there, until when a drain takes at the latest."""
    found = [client.get(at("nodes", name)) for name in unfolded(nodes)] if nodes else client.get("/nodes")["nodes"]
    emit(to_json({"nodes": found}) if as_json else table(COLUMNS, [_row(node) for node in found], terminal_width()))


def _row(node: Node) -> list[str]:
    jobs = ",".join(node["jobs"])
    numbers = [count(node["gpus"]), count(node["gpus_used"])]
    return [node["name"], node["pool"], node["state"], *numbers, jobs, near(node["drain_until"]), node["reason"]]


@command.command()
@NODES
@WHY
@JSON_OPTION
@connected
def drain(client: Client, nodes: tuple[str, ...], why: str, as_json: bool) -> None:
    """Take nodes out of use; runs there may finish their minimums. NODE may be a list: n[0-3,7]."""
    _each(nodes, lambda name: client.post(at("nodes", name, "drain"), {"why": why}), as_json)


@command.command()
@NODES
@WHY
@JSON_OPTION
@connected
def resume(client: Client, nodes: tuple[str, ...], why: str, as_json: bool) -> None:
    """Put nodes back into use."""
    _each(nodes, lambda name: client.post(at("nodes", name, "resume"), {"why": why}), as_json)


@command.command()
@click.argument("node", metavar="NODE")
@click.argument("text", metavar="[TEXT...]", nargs=-1)
@click.option("--xid", metavar="N", type=click.IntRange(1, 1_000), help="The number that NVIDIA's driver logged.")
@JSON_OPTION
@connected
def report(client: Client, node: str, text: tuple[str, ...], xid: int | None, as_json: bool) -> None:
    """Report what is wrong with a node: an NVIDIA XID, or words. mirab drains it where the hardware is at fault."""
    words = " ".join(text)
    if xid is None and not words:
        raise click.UsageError("say what is wrong: --xid N, or words", click.get_current_context())
    body = {"text": words} if xid is None else {"xid": xid, "text": words}
    _each((node,), lambda name: client.post(at("nodes", name, "report"), body), as_json)


def _each(nodes: tuple[str, ...], ask: Callable[[str], Node], as_json: bool) -> None:
    """One request for each node; where one fails, those before it are done."""
    answers = [ask(name) for name in unfolded(nodes)]
    if as_json:
        emit(to_json({"nodes": answers}))
        return
    for node in answers:
        until = f", clear by {near(node['drain_until'])} at the latest" if node["drain_until"] else ""
        say(f"{node['name']} is {node['state']}{until}.")
