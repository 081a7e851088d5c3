"""`mirab rollout`: from observing to enforcing, and back with one command."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import check_input, emit, json_object, to_json

COLUMNS = (
    Column("ACCOUNT", least=8),
    Column("MODE"),
    Column("BY", least=4),
    Column("SINCE"),
    Column("GROUNDS", least=8),
    Column("UNTIL"),
    Column("WHY", least=12),
)
DIGITS = 12
"""Of a digest, enough to tell one report from another."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Which accounts mirab only observes, and upon which it enforces."""


@command.command()
@JSON_OPTION
@connected
def status(client: Client, as_json: bool) -> None:
    """Show the accounts: observed or enforced upon, by whose decision, on what grounds, until when."""
    _tell(client.get("/rollout"), as_json)


@command.command("set")
@click.argument("account")
@click.argument("mode", type=click.Choice(("observe", "enforce")))
@click.option("--gates", "report", metavar="FILE", help="The gate report that it rests on, as `mirab gate --keep FILE "
              "--sign NAME` kept it.")  # fmt: skip
@click.option("--exception", metavar="ID", default="", help="Or an exception of kind rollout that is in force.")
@click.option("--why", metavar="TEXT", default="", help="Why; it stands in the log beside your name.")
@JSON_OPTION
@connected
def set_(client: Client, account: str, mode: str, report: str | None, exception: str, why: str, as_json: bool) -> None:
    """Let ACCOUNT be enforced upon, or only observed; * is everybody, and the only account where Slurm is not used.

    To enforce takes grounds: gates that are met and were signed off in the last 30 days, or an exception that ends;
    when that ends, the account is observed again. To observe takes none.
    """
    body: dict[str, Any] = {"account": account, "mode": mode, "why": why, "exception": exception}
    if report is not None:
        kept = check_input(report).read_bytes()
        body["report"] = json_object(report, kept, "name a report that `mirab gate --keep` wrote")
    _tell(client.post("/rollout", body), as_json)


def _tell(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(to_json(told))
    else:
        emit(table(COLUMNS, [_row(each) for each in told["accounts"]], terminal_width()))


def _row(each: dict[str, Any]) -> list[str]:
    grounds = f"gates {each['gates'][:DIGITS]}" if each["gates"] else f"exception {each['exception']}"
    grounds = grounds if each["gates"] or each["exception"] else "-"
    return [each["account"], each["mode"], each["by"] or "-", near(each["at"]) or "-", grounds,
            near(each["until"]) or "-", each["why"]]  # fmt: skip
