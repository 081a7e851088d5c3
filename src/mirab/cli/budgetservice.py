"""Budgets of a live service for the commands that know files: which of the two is meant, its history, its changes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirab.cli.budgettools import evidence_says, opened
from mirab.cli.client import Client, open_client
from mirab.cli.connection import SERVER_OPTION
from mirab.cli.exits import UnusableError

if TYPE_CHECKING:
    from mirab.logs.moments import Calendar
    from mirab.model.changesets import Changeset
    from mirab.study.budgetbook import Book
    from mirab.study.budgethistory import Draft, History

SERVICE = "the service"
SERVER = SERVER_OPTION


def meant(words: tuple[str, ...], server: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The file that the first word names, or None for the service, and the other words.

    A file exists, or ends in .yaml or .yml. With `--server`, or where the first word is none, the service is meant.
    """
    if server is None and words and is_file(words[0]):
        return words[0], words[1:]
    return None, words


def is_file(word: str) -> bool:
    return word.endswith((".yaml", ".yml")) or ("=" not in word and os.path.isfile(word))


def one(words: tuple[str, ...], what: str) -> str:
    """The only word, or none.

    Raises:
        click.UsageError: there are more.
    """
    if len(words) > 1:
        raise click.UsageError(f"one {what} is enough: {' '.join(words)}")
    return words[0] if words else ""


def account_of(words: tuple[str, ...]) -> str:
    """The account that is named, if one is. That of a pool's ledger (``h100:vision``) is the same account."""
    from mirab.model.accounts import plain

    return plain(one(words, "account"))


def book_of(file: str | None, server: str | None, calendar: Calendar) -> Book:
    """The budgets of the file, or of the service, with their history."""
    if file is not None:
        return opened(file, calendar)
    with open_client(server) as client:
        return service_book(client)


def service_book(client: Client) -> Book:
    return _book(client.get("/budgets/history"))


def log_of(file: str | None, server: str | None, calendar: Calendar) -> tuple[Book, dict[int, list[str]]]:
    """The budgets with their history, and what the evidence of each version says, where it is still to be had."""
    if file is not None:
        book = opened(file, calendar)
        return book, {each.version: evidence_says(each.evidence, book.path.parent) for each in book.history.changesets}
    with open_client(server) as client:
        told = client.get("/budgets/history")
    return _book(told), {each["version"]: each["evidence_told"] for each in told["changesets"]}


def _book(told: dict[str, Any]) -> Book:
    from mirab.model.codec import decode
    from mirab.study.budgetbook import Book
    from mirab.study.budgethistory import History

    history = History(tuple(decode(each["edits"]) for each in told["changesets"]))
    return Book(Path(SERVICE), "", history.at(_now_of(told)), (), history)


def _now_of(told: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(told["now"]).timestamp() * 1_000)


def proposed(client: Client, draft: Draft) -> tuple[Changeset, History]:
    """Have the service record it; what was recorded, and the history with it.

    Raises:
        UnusableError: it changes nothing, or nobody says why.
    """
    if not draft.reason.strip():
        raise UnusableError("A change of budgets needs the reason: say why with --reason.")
    if not draft.edits and not draft.reverts:
        raise UnusableError("It changes nothing: the budgets are as you want them.")
    made = client.post("/budgets/changes", _body(draft))
    history = service_book(client).history
    return history.version(made["version"]), history


def _body(draft: Draft) -> dict[str, Any]:
    from mirab.model.accounts import Budgets
    from mirab.study.budgettext import tree_json

    body: dict[str, Any] = {"base": draft.based_on, "why": draft.reason, "evidence": draft.evidence}
    if draft.reverts:
        body["reverts"] = draft.reverts
    else:
        body["edits"] = {edit.parent: tree_json(Budgets(edit.children)) for edit in draft.edits}
    if draft.effective_at is not None and not draft.reverts:
        body["effective_at"] = datetime.fromtimestamp(draft.effective_at / 1_000, UTC).isoformat()
    return body
