"""`mirab reserve`: GPUs for an account from a fixed instant on."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.except_ import END, LASTS, TIMEZONE, tell_asked, tell_list, wanted


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("account", required=False)
@click.option("--nodes", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="So many nodes.")
@click.option(
    "--gpus-per-node", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="GPUs of each."
)
@click.option("--pool", metavar="NAME", default="", help="Of this pool only.")
@click.option("--from", "begin", metavar="WHEN", help="Its begin: a date, or 2d from now. Default: at once.")
@END
@LASTS
@click.option("--reason", "--why", "reason", metavar="TEXT", default="", help="Why it is needed.")
@TIMEZONE
@JSON_OPTION
@connected
def command(client: Client, account: str | None, as_json: bool, **given: Any) -> None:
    """Ask for nodes for ACCOUNT at a fixed time, such as for a release; without ACCOUNT, list the reservations.

    It is an exception like any other: somebody else approves it (`mirab except approve ID`), and it ends. One approved
    at least the longest minimum and the notice ahead is met, as long as enough nodes are up; one that cannot be kept
    beside others is refused when it is approved. It is charged whether it is used or not.
    """
    if account is None:
        tell_list(client, as_json, everything=False, kind="reservation")
        return
    tell_asked(client.post("/exceptions", wanted("reservation", account, given)), as_json)
