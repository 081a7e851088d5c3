"""`mirab hold`: keep jobs out of the queue."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.operating import Chosen, Deed, choosing, do, meant

DEED = Deed("hold", "Held", "to hold")


@click.command()
@choosing
@click.pass_context
def command(ctx: click.Context, /, client: Client, chosen: Chosen, why: str, **told: Any) -> None:
    """Keep jobs that wait out of the queue until `mirab release`; their place in it is kept."""
    ctx.exit(do(client, DEED, meant(client, chosen, ("PENDING",)), why, **told))
