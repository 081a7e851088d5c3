"""`mirab outcome`: what was predicted beside what happened."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import click

from mirab.cli.client import Client, at, open_client
from mirab.cli.connection import SERVER_OPTION
from mirab.cli.exits import NotFoundError, UnusableError
from mirab.cli.output import check_input, check_outputs, json_object, reading_report, write_json

LIVE_S = 660.0
"""Seconds to wait for a live report: the service reads its journal."""
TRIED = re.compile(r"what-if (w[0-9a-f]{16}) ")
SHORTEST_H = 1


@click.command()
@click.argument("prediction", required=False)
@click.argument("report", required=False)
@click.option("--live", is_flag=True, help="The last window of the live service, in place of a REPORT.")
@click.option("--window", metavar="TIME", help="With --live: how far back. Default: the policy's window.")
@click.option("--changeset", metavar="N", type=int, help="A change of budgets: its what-if, and the time since.")
@click.option("--json", "json_file", metavar="FILE", help="As JSON; - for standard output, in place of the text.")
@SERVER_OPTION
def command(
    prediction: str | None, report: str | None, live: bool, window: str | None, changeset: int | None,
    json_file: str | None, server: str | None,
) -> None:  # fmt: skip
    """Hold PREDICTION, the JSON of `mirab whatif` or `mirab sim`, beside the REPORT of the time after.

    With --live the report is that of the service's last window; with --changeset N both come from the service.
    """
    from mirab.cli.results import show
    from mirab.study.outcome import outcome, outcome_sections

    if [prediction is None, report is None] != {True: [True, True]}.get(changeset is not None, [False, live]):
        raise click.UsageError("name PREDICTION and REPORT, or PREDICTION and --live, or --changeset N")
    if window is not None and not live:
        raise click.UsageError("--window is for --live")
    check_outputs((json_file,), (prediction, report))
    said, happened = _both(prediction, report, window, changeset, server)
    happened = _whole(happened, report or "the service")
    with reading_report(prediction, report):
        try:
            found = outcome(said, happened)
        except ValueError as error:
            raise UnusableError(f"{prediction}: {error}.") from error
        sections = outcome_sections(found)
    if json_file is not None:
        write_json(found, json_file)
    if json_file != "-":
        show(sections)


def _both(
    prediction: str | None, report: str | None, window: str | None, changeset: int | None, server: str | None
) -> tuple[Any, Any]:
    if prediction is not None and report is not None:
        return _read(prediction), _read(report)
    with open_client(server) as client:
        if changeset is not None:
            return _of_change(client, changeset)
        query = {"window": window} if window else None
        return _read(str(prediction)), client.get("/report", query, timeout=LIVE_S)


def _of_change(client: Client, number: int) -> tuple[Any, Any]:
    """The what-if that a change rests on, and the report of the time since it took effect."""
    told = client.get("/budgets/history")
    made = next((each for each in told["changesets"] if each["version"] == number), None)
    if made is None:
        raise NotFoundError(f"There is no version {number}: `mirab budget log` lists them.")
    name = TRIED.match(made["evidence"])
    if name is None:
        raise NotFoundError(f"Version {number} names no what-if of the service as evidence: name the file yourself.")
    since = datetime.fromisoformat(told["now"]) - datetime.fromisoformat(made["effective_at"])
    hours = int(since.total_seconds() // 3600)
    if hours < SHORTEST_H:
        raise UnusableError(f"Version {number} has been in effect for less than an hour: ask again later.")
    prediction = client.get(at("whatif", name[1]), {"whole": "true"})
    return prediction, client.get("/report", {"window": window_of(hours)}, timeout=LIVE_S)


def window_of(hours: int) -> str:
    """As the report takes it."""
    return f"{hours}h"


def _read(name: str) -> Any:
    return json_object(name, check_input(name).read_bytes(), "give the --json of mirab whatif or mirab sim")


def _whole(report: Any, name: str) -> dict[str, Any]:
    """A what-if is no report of what happened."""
    if isinstance(report, dict) and {"metrics", "by_account", "input", "policy"} <= set(report):
        return report
    raise UnusableError(f"{name} is no report of what happened: give the --json of mirab sim, or --live.")
