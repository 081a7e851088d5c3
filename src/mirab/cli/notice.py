"""`mirab notice`: who is told of what, and whether it arrives."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from mirab.cli.connection import JSON_OPTION
from mirab.cli.exits import UnusableError
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import check_input, emit, say, to_json

COLUMNS = (Column("RECEIVER"), Column("ABOUT", least=12), Column("ACCOUNTS", least=8))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Notices by webhook, Slack or e-mail: check the file that `mirab serve --notices FILE` reads."""


@command.command()
@click.argument("file")
@click.option("--send", is_flag=True, help="Send each receiver a notice that says it is a test.")
@JSON_OPTION
def check(file: str, send: bool, as_json: bool) -> None:
    """Read FILE, say who would be told of what, and with --send try each of them."""
    from mirab.service.courier import Notice
    from mirab.service.courier import send as deliver
    from mirab.service.noticefile import open_secrets, read_receivers

    try:
        receivers = read_receivers(Path(check_input(file)))
    except ValueError as error:
        raise UnusableError(str(error)) from error
    told = [{"name": each.name, "about": list(each.about), "accounts": list(each.accounts)} for each in receivers]
    emit(to_json({"receivers": told}) if as_json else table(COLUMNS, [_row(each) for each in told], terminal_width()))
    for secret in open_secrets(Path(file), receivers):
        say(f"mirab: others can read {secret}, in which a secret stands: chmod 600 {secret}.")
    if not receivers:
        say(f"Nobody is told anything: notices: of {file} is empty.")
    if not send:
        return
    failed = []
    for each in receivers:
        notice = Notice(time.time_ns() // 1_000_000, each.about[0], "test", "This is a test: mirab can reach you.")
        try:
            deliver(each, [notice])
            say(f"{each.name} took it.")
        except (OSError, ValueError) as error:
            failed.append(f"{each.name}: {_why(error)}")
    if failed:
        raise UnusableError(f"Not everybody was reached: {'; '.join(failed)}.")


def _why(error: Exception) -> str:
    """What the network or the other side said, without Python's words for it."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__)


def _row(each: dict[str, Any]) -> list[str]:
    return [each["name"], ", ".join(each["about"]), ", ".join(each["accounts"]) or "all"]
