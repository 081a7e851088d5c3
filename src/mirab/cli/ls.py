"""`mirab ls`: the jobs, in squeue's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.columns import formatted, standard
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import terminal_width, wrapped
from mirab.cli.jobs import LIVE, PAGE, Job, jobs_of, of_account, parse_ids, parse_states
from mirab.cli.output import emit, say, to_json

USUAL = 1_000


@click.command()
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@click.option("--me", is_flag=True, help="Only my own.")
@click.option("--user", "-u", metavar="NAME", help="Only of this user.")
@click.option("--account", "-A", metavar="ACCOUNT", help="Only of this account, and of those below it.")
@click.option("--states", "-t", metavar="STATES", help="Such as PD,R or FAILED; all = those that have ended too.")
@click.option("--nodelist", "-w", "node", metavar="NODE", help="Only what runs on this node.")
@click.option("--label", metavar="TEXT", help="Only with this label.")
@click.option(
    "--format",
    "-o",
    "form",
    metavar="FORMAT",
    help="squeue's letters: '%.8i %20j %8u %2t %10M %R'; %G GPUs, %X protected until, %W why.",
)
@click.option("--long", "-l", is_flag=True, help="With time limit, protection, and why in a sentence.")
@click.option("--noheader", is_flag=True, help="Without the line of heads.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=USUAL,
    show_default=True,
    help="At most so many jobs; 0 = all.",
)
@JSON_OPTION
@connected
def command(client: Client, jobs: tuple[str, ...], as_json: bool, limit: int, **asked: Any) -> None:
    """Show the jobs that wait and run, in squeue's columns; with --states all also those that have ended."""
    of_account(asked["account"])
    found, more = _found(client, jobs, asked, limit)
    if not found:
        _check_names(client, asked)
    if as_json:
        emit(to_json({"jobs": found, "more": more}))
        return
    _show(found, asked)
    if more:
        say(f"There are more: these are the first {len(found):,}. --limit 0 shows all.")


def _found(client: Client, ids: tuple[str, ...], asked: Mapping[str, Any], limit: int) -> tuple[list[Job], bool]:
    if ids:
        return [job for job_id in parse_ids(ids) for job in jobs_of(client, job_id)], False
    return listed(client, query_of(client, asked), limit)


def _check_names(client: Client, asked: Mapping[str, Any]) -> None:
    """Where nothing is found, that may be because a name is misspelt.

    Raises:
        NotFoundError: there is no such account or node.
    """
    if account := asked["account"]:
        client.get(at("share", *account.split("/")))
    if node := asked["node"]:
        client.get(at("nodes", node))


def query_of(client: Client, asked: Mapping[str, Any]) -> dict[str, object]:
    """The query of GET /jobs for the options of this command."""
    user = client.get("/whoami")["user"] if asked["me"] else asked["user"]
    states = parse_states(asked["states"]) if asked["states"] else list(LIVE)
    chosen = {name: asked.get(name) for name in ("account", "node", "label")}
    return {"state": states, "user": user, **chosen}


def listed(client: Client, query: Mapping[str, object], limit: int) -> tuple[list[Job], bool]:
    """At most `limit` jobs (0 = all), and whether there are more."""
    found: list[Job] = []
    cursor: str | None = None
    while True:
        size = min(PAGE, limit - len(found)) if limit else PAGE
        page = client.get("/jobs", {**query, "limit": size, "cursor": cursor})
        found += page["jobs"]
        cursor = page["next"]
        if cursor is None or (limit and len(found) >= limit):
            return found, cursor is not None


def _show(jobs: list[Job], asked: Mapping[str, Any]) -> None:
    head = not asked["noheader"]
    if asked["form"]:
        emit("\n".join(formatted(asked["form"], jobs, head=head)) or "\n")
        return
    width = terminal_width()
    text = standard(jobs, width, long=asked["long"], head=head)
    if asked["long"]:
        text = _with_sentences(text.splitlines(), jobs, width, head)
    if text:
        emit(text)


def _with_sentences(lines: list[str], jobs: list[Job], width: int, head: bool) -> str:
    """Below the row of each job what there is to say about it."""
    told = lines[:1] if head else []
    for line, job in zip(lines[1:] if head else lines, jobs, strict=True):
        told.append(line)
        told += [wrapped(sentence, width, "    ") for sentence in (job["why"], job["progress_flag"]) if sentence]
    return "\n".join(told)
