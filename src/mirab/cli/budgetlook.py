"""`mirab budget show|diff|log|blame`: what budgets say, and who decided it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mirab.cli.budgetservice import SERVER, SERVICE, account_of, book_of, log_of, meant, one
from mirab.cli.budgettools import JSON, TIMEZONE, calendar_of, check_account, draw, moment, now_ms, opened, sentences
from mirab.cli.exits import NotFoundError
from mirab.cli.output import emit, say, to_json

if TYPE_CHECKING:
    from mirab.logs.moments import Calendar
    from mirab.model.accounts import Budgets
    from mirab.model.changesets import Changeset
    from mirab.study.budgetbook import Book


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE] [ACCOUNT]")
@click.option("--at", metavar="DATE", help="The tree in force on that day, past or future. Default: now.")
@TIMEZONE
@JSON
@SERVER
def show(words: tuple[str, ...], at: str | None, timezone: str | None, as_json: bool, server: str | None) -> None:
    """The tree in force: shares, owners, reviews; of ACCOUNT and what lies below it, where one is named."""
    from mirab.logs.budgetedit import date_text
    from mirab.study.budgethistory import blamed
    from mirab.study.budgettext import day, show_json, show_sections

    calendar = calendar_of(timezone)
    when = moment(at, calendar) if at else now_ms()
    file, rest = meant(words, server)
    account = account_of(rest)
    with sentences():
        book = book_of(file, server, calendar)
        budgets = book.at(when)
        blame = blamed(book.history, when)
    check_account(budgets, account)
    if as_json:
        emit(
            to_json(
                {
                    "version": book.history.head,
                    "at": date_text(when),
                    "budgets": show_json(budgets, account, blame, day(when)),
                }
            )
        )
        return
    title = f"Budgets of {file or SERVICE} on {day(when)}" + (
        f", version {book.history.head}" if book.history.head else ""
    )
    draw(show_sections(title, budgets, account, blame, day(when)))
    for each in book.history.planned(when):
        say(f"Planned from {date_text(each.effective_at)}: version {each.version} of {each.author}, {each.reason}")


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE] [OTHER]")
@click.option(
    "--version", "versions", metavar="N", type=int, multiple=True, help="From this version; twice: between two."
)
@TIMEZONE
@JSON
@SERVER
def diff(
    words: tuple[str, ...], versions: tuple[int, ...], timezone: str | None, as_json: bool, server: str | None
) -> None:
    """What differs between the budgets of FILE and those of OTHER, or between versions, or what was edited by hand.

    Of the service: between versions, or, with --server, between its budgets and those of OTHER.
    """
    from mirab.study.budgetedits import term_changes
    from mirab.study.budgettext import change_json, diff_sections

    file, rest = meant(words, server)
    other = one(rest, "file to compare with") or None
    if len(versions) > 2 or (versions and other):
        raise click.UsageError("compare with OTHER, or with one --version, or between two")
    calendar = calendar_of(timezone)
    with sentences():
        title, before, after = _sides(book_of(file, server, calendar), other, versions, calendar)
    changes = term_changes(before, after)
    if as_json:
        emit(to_json({"changes": [change_json(change) for change in changes]}))
    else:
        draw(diff_sections(title, changes))


def _sides(book: Book, other: str | None, versions: Sequence[int], calendar: Calendar) -> tuple[str, Budgets, Budgets]:
    from mirab.study.budgetbook import view

    now = now_ms()
    if other is not None:
        return f"From {book.path} to {other}", book.at(now), opened(other, calendar).at(now)
    if not versions:
        recorded = view(book.history)[0] if book.history.head else book.budgets
        return f"From version {book.history.head} to {book.path} as it stands", recorded, book.budgets
    trees = [_as_of(book, number) for number in versions]
    if len(trees) == 1:
        return f"From version {versions[0]} to now", trees[0], book.at(now)
    return f"From version {versions[0]} to version {versions[1]}", trees[0], trees[1]


def _as_of(book: Book, number: int) -> Budgets:
    """The tree as that version made it."""
    made = book.history.version(number)
    for each, _, after in book.history.steps():
        if each.version == number:
            return after
    raise ValueError(f"version {made.version} was cancelled before it took effect: there is no tree of it")


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE] [ACCOUNT]")
@TIMEZONE
@JSON
@SERVER
def log(words: tuple[str, ...], timezone: str | None, as_json: bool, server: str | None) -> None:
    """Every decision, the latest first: who, when, why, from when on, and what it changed."""
    from mirab.study.budgethistory import logged
    from mirab.study.budgettext import log_json, log_sections

    file, rest = meant(words, server)
    account = account_of(rest)
    with sentences():
        book, told = log_of(file, server, calendar_of(timezone))
        entries = logged(book.history)
    if as_json:
        emit(to_json({"changesets": log_json(entries, account, told)}))
    else:
        draw(log_sections(entries, account, told))


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE] [ACCOUNT]")
@TIMEZONE
@JSON
@SERVER
def blame(words: tuple[str, ...], timezone: str | None, as_json: bool, server: str | None) -> None:
    """For each account: which decision put its share there, whose it was, and why."""
    from mirab.study.budgethistory import blamed
    from mirab.study.budgettext import blame_sections, show_json

    file, rest = meant(words, server)
    account = account_of(rest)
    with sentences():
        book = book_of(file, server, calendar_of(timezone))
        if not book.history.head:
            raise NotFoundError(f"{file} has no history yet: the first `mirab budget set` begins it.")
        budgets, found = book.history.at(now_ms()), blamed(book.history, now_ms())
    check_account(budgets, account)
    if as_json:
        rows = show_json(budgets, account, found, "")
        keys = ("account", "share", "version", "since")
        told = [{key: row[key] for key in keys} | _decided(found[row["account"]]) for row in rows]
        emit(to_json({"accounts": told}))
    else:
        draw(blame_sections(found, budgets, account))


def _decided(by: Changeset) -> dict[str, str]:
    return {"author": by.author, "reason": by.reason}
