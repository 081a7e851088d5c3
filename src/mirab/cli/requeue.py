"""`mirab requeue`: stop runs and put them back into the queue."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.operating import Chosen, Deed, choosing, do, meant

DEED = Deed("requeue", "Requeued", "to requeue")


@click.command()
@choosing
@click.pass_context
def command(ctx: click.Context, /, client: Client, chosen: Chosen, why: str, **told: Any) -> None:
    """Stop jobs that run, with their notice, and put them back into the queue with their seniority."""
    ctx.exit(do(client, DEED, meant(client, chosen, ("RUNNING",)), why, **told))
