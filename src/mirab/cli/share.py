"""`mirab share`: the tree of accounts, what each was promised, and what it got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import emit, say, to_json
from mirab.model.accounts import ledger_of, plain
from mirab.model.units import plural
from mirab.study.formats import count, hours, percent, ratio, standing

Account = dict[str, Any]

COLUMNS = (
    Column("ACCOUNT", least=16),
    Column("SHARE", right=True),
    Column("USED_H", right=True),
    Column("OWED_H", right=True),
    Column("DELIVERED_H", right=True),
    Column("DEBT_H", right=True),
    Column("RATIO", right=True),
    Column("RUNNING", right=True),
    Column("WAITING", right=True),
    Column("WAITING_GPUS", right=True),
)
MORE = (
    Column("BORROWED", right=True),
    Column("NEXT_START", right=True),
    Column("DEBT_GONE_BY", right=True),
    Column("OWNER", least=8),
    Column("REVIEW"),
)
LEAST_DEBT = 0.05
"""GPU-hours below which a debt is none: it would be shown as 0.0."""
WIDE = 100
SPARED = ("DEBT_H", "WAITING_GPUS")
"""Left out on a narrow terminal: what an account is short of is what it is owed and was not delivered."""


@click.command()
@click.argument("account", metavar="[ACCOUNT]", default="")
@click.option("--users", "-u", is_flag=True, help="With the users of each account.")
@click.option(
    "--long",
    "-l",
    is_flag=True,
    help="With GPUs beyond the share, the next start, the age of the debt, owner and review date.",
)
@click.option("--formula", is_flag=True, help="How each ratio comes about, with its numbers.")
@JSON_OPTION
@connected
def command(client: Client, account: str, users: bool, long: bool, formula: bool, as_json: bool) -> None:
    """Show the tree of accounts: share, used, owed, delivered, debt, ratio, running GPUs, waiting jobs.

    Of one that is named it also tells how its ratio comes about, when its debt leaves the window, when its next job
    is forecast to start, who owns it, and when it is reviewed.

    Where pools have shares of their own, the tree of each comes after the main one, its accounts with the pool before
    their names (h100:vision); an account that is named without one is meant in all.

    Amounts are GPU-hours of the window (a week, unless the policy says another). Who has the lowest ratio goes first;
    below 1 an account has had less than its share, and nobody stops its runs.
    """
    shares = client.get(at("share", *account.split("/")) if account else "/share")
    if as_json:
        emit(to_json(shares))
    elif formula:
        emit("\n".join(formula_of(each) for each in shares["accounts"]))
    else:
        emit("\n\n".join(trees(shares, terminal_width(), users=users, long=long)))
        for each in _named(shares["accounts"], account):
            emit("\n" + "\n".join(sentences(each)))
        if terminal_width() and any(each.get("par_h") for each in shares["accounts"]):
            say("RATIO counts the time before an account's first day as delivered: `mirab share --formula` shows it.")


def _named(accounts: Sequence[Account], account: str) -> list[Account]:
    """The one that was asked for, in each ledger that has it."""
    return [each for each in accounts if account and account in (each["path"], plain(each["path"]))]


def trees(shares: dict[str, Any], width: int, *, users: bool = False, long: bool = False) -> Iterator[str]:
    """A table for each ledger, with what is in it; one without a heading where there is but one."""
    ledgers = {each["name"]: each for each in shares.get("ledgers", ())}
    if not ledgers:
        yield tree(shares["accounts"], width, users=users, long=long)
        return
    for name in dict.fromkeys(ledger_of(each["path"]) for each in shares["accounts"]):
        accounts = [each for each in shares["accounts"] if ledger_of(each["path"]) == name]
        yield f"{heading(name, ledgers.get(name))}\n{tree(accounts, width, users=users, long=long)}"


def heading(name: str, ledger: dict[str, Any] | None) -> str:
    """``Pool h100, 16 GPUs:``, ``All other pools (a100, l4), 64 GPUs:``; with what may be used of them, if not all."""
    if ledger is None:
        return f"Pool {name}, which has no shares of its own any more:"
    where = f"Pool {name}" if name else f"All other pools ({', '.join(ledger['pools'])})"
    amount = plural(ledger["gpus"], "GPU") if ledger["gpus"] else "no GPUs"
    if ledger["schedulable"] < ledger["units"]:
        amount += f", {percent(ledger['schedulable'] / ledger['units'])} of which may be used now"
    return f"{where}, {amount}:"


def tree(accounts: Sequence[Account], width: int, *, users: bool = False, long: bool = False) -> str:
    """The table; each account is indented below its parent."""
    top = min((each["path"].count("/") for each in accounts), default=0)
    rows: list[list[str]] = []
    for each in accounts:
        depth = each["path"].count("/") - top
        more = _more(each) if long else ()
        rows.append([_name(each["path"], depth), *_numbers(each), *more])
        rows += [[*_user_row(user, depth + 1), *("" for _ in more)] for user in (each["users"] if users else ())]
    columns = (*COLUMNS, *MORE) if long else COLUMNS
    return table(*_fitting(columns, rows, width), width)


def _fitting(
    columns: Sequence[Column], rows: Sequence[list[str]], width: int
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    """Columns and rows; on a terminal of fewer than 100 characters without the least important ones."""
    if not 0 < width < WIDE:
        return columns, rows
    kept = [index for index, column in enumerate(columns) if column.head not in SPARED]
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _name(path: str, depth: int) -> str:
    return "  " * depth + (path if depth == 0 else path.rpartition("/")[2])


def _numbers(each: Account) -> list[str]:
    amounts = [hours(each[name]) for name in ("used_h", "owed_h", "delivered_h", "debt_h")]
    numbers = [count(each[name]) for name in ("running_gpus", "waiting_jobs", "waiting_gpus")]
    return [percent(each["share"]), *amounts, ratio(each["ratio"]), *numbers]


def _more(each: Account) -> list[str]:
    gone = near(each.get("debt_gone_by")) if (each["debt_h"] or 0) >= LEAST_DEBT else ""
    borrowed = f"{each.get('borrowed_gpus', 0):g}"
    return [borrowed, near(each.get("next_start")), gone, each.get("owner", ""), each.get("review", "")]


def sentences(each: Account) -> Iterator[str]:
    """What the table has no room for, of one account."""
    yield formula_of(each)
    if each.get("debt_gone_by") and each["debt_h"] >= LEAST_DEBT:
        owed = f"its debt of {hours(each['debt_h'])} h leaves the window from {near(each['debt_from'])} on"
        yield f"{owed}, all of it by {near(each['debt_gone_by'])} if nothing is paid"
    if each.get("borrowed_gpus"):
        yield (
            f"it runs on {plural(each['borrowed_gpus'], 'GPU')} more than its share: borrowed from accounts "
            "that do not use theirs, who get them back past the minimums"
        )
    if each.get("next_start"):
        most = f", nine of ten by {near(each['next_start_p90'])}" if each.get("next_start_p90") else ""
        yield f"next start: job {each['next_job']}, in half of the runs forward by {near(each['next_start'])}{most}"
    elif each["waiting_jobs"]:
        yield "next start: later than the runs forward have looked, or not looked yet; `mirab when` tells of a job"
    else:
        yield "next start: nothing of it waits; `mirab when -A` tells of a request"
    owner = f"owner: {each['owner']}" if each.get("owner") else "nobody is named as its owner"
    yield owner + (f"; review: {each['review']}" if each.get("review") else "; no review is set")


def _user_row(user: dict[str, Any], depth: int) -> list[str]:
    name = "  " * depth + f"({user['user']})"
    return [
        name,
        "",
        hours(user["used_h"]),
        "",
        "",
        "",
        "",
        count(user["running_gpus"]),
        count(user["waiting_jobs"]),
        "",
    ]


def formula_of(each: Account) -> str:
    """``red: ratio = (used 12 h + committed 3.0 h) / entitled 40 h = 0.38, so below its share``.

    What lies in the window before the account's first day counts as delivered; while it does, it is a term too.
    """
    used, committed, entitled = (hours(each[name]) for name in ("used_h", "committed_h", "entitled_h"))
    before = each.get("par_h", 0)
    par = f" + before its first day {hours(before)} h" if before else ""
    sides = f"{each['path']}: ratio = (used {used} h{par} + committed {committed} h) / entitled {entitled} h"
    if each["ratio"] is None:
        return f"{sides}: it has no share, so it goes after all others"
    where = "below its share: it is owed" if each["ratio"] < 1 else "at or above its share"
    return f"{sides} = {standing(each['ratio'])}, {where}"
