"""What the commands about budgets share: their options, dates, errors, and how results are told."""

from __future__ import annotations

import getpass
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirab.cli.exits import ConflictError, NotFoundError, UnusableError
from mirab.cli.output import check_input, emit, to_json

if TYPE_CHECKING:
    from mirab.logs.moments import Calendar
    from mirab.model.accounts import Budgets
    from mirab.model.changesets import Changeset
    from mirab.study.budgetbook import Book
    from mirab.study.budgethistory import History
    from mirab.study.tables import Section

TRIED = re.compile(r"w[0-9a-f]{16}")
"""The id of a what-if on the journal of a service."""

FILE_EVIDENCE = re.compile(r"(.+) sha256:([0-9a-f]{64})")
"""A file as the evidence of a version; see `evidence_of`."""

TIMEZONE = click.option("--timezone", metavar="ZONE", help="Of dates without one, such as Europe/Berlin. Default: UTC.")
JSON = click.option("--json", "as_json", is_flag=True, help="As JSON, in place of the table.")
AUTHOR = click.option("--author", metavar="NAME", default=None, help="Who decides. Default: your name on this machine.")
REASON = click.option(
    "--reason", "--why", "reason", metavar="TEXT", default="", help="Why. A change without a reason is refused."
)
BASE = click.option("--base", metavar="N", type=int, help="The version you have seen. Default: the latest.")
FROM = click.option("--from", "begin", metavar="DATE", help="From when it holds. Default: at once; never the past.")
EVIDENCE = click.option(
    "--evidence",
    metavar="FILE|ID",
    help="What it was decided on, such as a what-if: a file, kept by its hash, or the id of one of the service.",
)


@contextmanager
def sentences() -> Iterator[None]:
    """What the budgets say no to, as the errors of a command."""
    from mirab.study.budgetedits import UnknownAccountError
    from mirab.study.budgethistory import BudgetConflictError

    try:
        yield
    except UnknownAccountError as error:
        raise NotFoundError(f"{error}.") from error
    except BudgetConflictError as error:
        raise ConflictError(f"{error}.") from error
    except ValueError as error:
        raise UnusableError(f"{error}.") from error


def opened(file: str, calendar: Calendar) -> Book:
    from mirab.study.budgetbook import open_book

    return open_book(check_input(file), calendar)


def calendar_of(timezone: str | None) -> Calendar:
    from mirab.logs.moments import Calendar

    try:
        return Calendar(timezone)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def moment(text: str, calendar: Calendar) -> int:
    try:
        return calendar.unix_ms(text)
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a date: write 2027-03-01") from error


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def author_of(given: str | None) -> str:
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise click.UsageError("--author is missing: this machine does not know your name") from error


def evidence_of(file: str | None) -> str:
    if file is None:
        return ""
    if TRIED.fullmatch(file):
        return file
    path = check_input(file)
    return f"{path.name} sha256:{sha256(path.read_bytes()).hexdigest()}"


def evidence_says(evidence: str, folder: Path) -> list[str]:
    """What a what-if says that a version names as its evidence, if it still lies beside the budgets as it was."""
    from mirab.study.whatiftext import lede

    named = FILE_EVIDENCE.fullmatch(evidence)
    if named is None:
        return []
    try:
        data = (folder / Path(named[1]).name).read_bytes()
        return lede(json.loads(data)) if sha256(data).hexdigest() == named[2] else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def check_account(budgets: Budgets, account: str) -> None:
    from mirab.study.budgetedits import unknown_account

    if account and budgets.find(account) is None:
        raise NotFoundError(f"{unknown_account(budgets, account)}.")


def draw(sections: Sequence[Section]) -> None:
    from mirab.cli.results import show

    show(sections)


def tell_changeset(where: str, history: History, made: Changeset, as_json: bool) -> None:
    """What was recorded, with what it changes."""
    from mirab.logs.budgetedit import date_text
    from mirab.study.budgethistory import logged
    from mirab.study.budgettext import change_text, changeset_json

    entry = logged(history)[made.version - 1]
    if as_json:
        emit(to_json(changeset_json(made, entry.changes, entry.cancelled)))
        return
    held = "" if made.effective_at <= made.recorded_at else f", from {date_text(made.effective_at)}"
    emit(
        "\n".join(
            [
                f"Version {made.version} of {where}, by {made.author}{held}",
                *(f"  {change_text(each)}" for each in entry.changes),
            ]
        )
    )
