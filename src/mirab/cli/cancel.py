"""`mirab cancel`: end jobs that wait or run."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.operating import Chosen, Deed, choosing, do, meant

DEED = Deed("cancel", "Cancelled", "to cancel")


@click.command()
@choosing
@click.pass_context
def command(ctx: click.Context, /, client: Client, chosen: Chosen, why: str, **told: Any) -> None:
    """End jobs: one that waits leaves the queue, one that runs gets its notice and is then stopped.

    Ids may be jobs, arrays, and tasks: 7, 12, 12_3, 12_[0-3]. Without ids, the filters say which.
    """
    ctx.exit(do(client, DEED, meant(client, chosen), why, **told))
