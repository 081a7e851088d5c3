"""`mirab release`: let held jobs into the queue again."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.operating import Chosen, Deed, choosing, do, meant

DEED = Deed("release", "Released", "to release")


@click.command()
@choosing
@click.pass_context
def command(ctx: click.Context, /, client: Client, chosen: Chosen, why: str, **told: Any) -> None:
    """Let held jobs into the queue again."""
    ctx.exit(do(client, DEED, meant(client, chosen, ("PENDING",)), why, **told))
