"""`mirab squatters`: who holds GPUs without a sign of progress."""

from __future__ import annotations

import click

from mirab.cli.client import Client
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import emit, say, to_json
from mirab.study.formats import count, span

COLUMNS = (
    Column("JOBID", right=True),
    Column("USER", least=6),
    Column("ACCOUNT", least=10),
    Column("GPUS", right=True),
    Column("SILENT", right=True),
    Column("FLAG", least=20),
)


@click.command()
@JSON_OPTION
@connected
def command(client: Client, as_json: bool) -> None:
    """Show the runs that hold GPUs and have shown no progress for longer than they declared with --progress.

    Progress is a checkpoint, a touched checkpoint file, or `mirab checkpoint`.
    """
    report = client.get("/squatters")
    if as_json:
        emit(to_json(report))
        return
    rows = [
        [each["job"], each["user"], each["account"], count(each["gpus"]), span(each["silent_s"]), each["flag"]]
        for each in report["runs"]
    ]
    emit(table(COLUMNS, rows, terminal_width())) if rows else say("Nobody squats.")
