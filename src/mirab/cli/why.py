"""`mirab why`: every blocker of a job that waits, who goes before it, what would help; or its story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, paragraph, table, terminal_width
from mirab.cli.jobs import jobs_of, parse_ids
from mirab.cli.output import emit, to_json
from mirab.study.formats import count, hours, plural, printable, ratio

Answer = dict[str, Any]
COLUMNS = (
    Column("ACCOUNT", least=12),
    Column("RATIO", right=True),
    Column("USED_H", right=True),
    Column("COMMITTED_H", right=True),
    Column("ENTITLED_H", right=True),
    Column("WAITING", right=True),
    Column("FIRST"),
    Column("CHARGED FOR", least=16),
)


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--quick", is_flag=True, help="What is recorded alone: no rehearsals of changed requests.")
@JSON_OPTION
@connected
def command(client: Client, jobs: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Tell why a job waits, or what became of it.

    Every blocker with its numbers and what would remove it, the first one first; the accounts that go before its own,
    and what they were charged for; what a changed request would get (rehearsed on a copy of the scheduler now). Of a
    job that runs, was stopped or has ended: its story.
    """
    query = {"whatif": "false"} if quick else None
    found = [
        client.get(at("jobs", job["id"], "why"), query) for name in parse_ids(jobs) for job in jobs_of(client, name)
    ]
    if as_json:
        emit(to_json({"jobs": found}))
    else:
        emit("\n\n".join("\n".join(lines_of(each)) for each in found))


def lines_of(answer: Answer) -> Iterator[str]:
    """The answer as lines."""
    if answer["text"]:
        yield printable(answer["text"].rstrip("\n"))
        if not answer["blockers"]:
            return
        yield ""
    state = "held" if any(each["code"].startswith("Held") for each in answer["blockers"]) else "waiting"
    yield f"{answer['id']} is {state}, as of {near(answer['at'])}:"
    for number, blocker in enumerate(answer["blockers"], 1):
        yield from _blocker(number, blocker, answer["id"])
    if answer.get("charged_to"):
        yield from paragraph(f"{answer['charged_to'][:1].upper()}{answer['charged_to'][1:]}.")
    yield from _standings(answer)
    if answer["whatif"]:
        yield ""
        yield "Rehearsed now on a copy of the scheduler, not promised:"
        for each in answer["whatif"]:
            yield from paragraph(f"{each['change']} {each['sentence']}", "  ")
    if answer["in_vain"]:
        yield ""
        yield from paragraph(f"Rehearsed now as well, and no help: {'; '.join(answer['in_vain'])}.")


def _blocker(number: int, blocker: Answer, job_id: str) -> Iterator[str]:
    about = f"of {blocker['about']}, first of its queue: " if blocker["about"] not in ("", job_id) else ""
    yield from paragraph(f"{about}{blocker['fact']} [{blocker['code']}]", f"  {number}. ")
    if blocker["action"]:
        yield from paragraph(blocker["action"], "     -> ")


def _standings(answer: Answer) -> Iterator[str]:
    if len(answer["ahead"]) < 2:
        return
    yield ""
    yield "Who goes before, by what they have had of their share (the last line is its own):"
    yield table(COLUMNS, [_row(each) for each in answer["ahead"]], terminal_width())
    if any(each.get("par_h", 0) >= 0.05 for each in answer["ahead"]):
        note = "RATIO counts the time before an account's first day as delivered: `mirab share --formula` shows it."
        yield from paragraph(note, "  ")
    if answer["level"]:
        yield from paragraph(answer["level"], "  ")


def _row(each: Answer) -> list[str]:
    amounts = [hours(each[name]) for name in ("used_h", "committed_h", "entitled_h")]
    return [each["account"], ratio(each["ratio"]), *amounts, count(each["waiting_jobs"]), each["first_job"],
            _entries(each)]  # fmt: skip


def _entries(each: Answer) -> str:
    if not each["runs"]:
        return "nothing in the window"
    told = ", ".join(f"{entry['run']} of {entry['user']} {hours(entry['gpu_h'])} h" for entry in each["entries"])
    return f"{plural(each['runs'], 'run')}: {told}" + (" ..." if each["runs"] > len(each["entries"]) else "")
