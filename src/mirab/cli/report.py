"""`mirab report`: the week of the live service, for those who answer for budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from mirab.cli.db import places, store_at
from mirab.cli.exits import UnusableError
from mirab.cli.output import emit, write_json, write_text

if TYPE_CHECKING:
    from mirab.store import Store
    from mirab.study.weekly import Week

WEEK = re.compile(r"(\d{4})-W(\d{2})")


@click.command()
@click.option("--week", metavar="WEEK", help="As 2026-W48, or a day in it. Default: the last one that is over.")
@click.option("--timezone", metavar="ZONE", help="Whose Monday begins the week, as Europe/Berlin. Default: here.")
@click.option("--markdown", metavar="FILE", help="As Markdown; - = to standard output, which is the default.")
@click.option("--html", metavar="FILE", help="As one HTML file that loads nothing.")
@click.option("--json", metavar="FILE", help="As JSON; - = to standard output.")
@places
def command(week: str | None, timezone: str | None, markdown: str | None, html: str | None, json: str | None,
            **place: Any) -> None:  # fmt: skip
    """Report a week: owed and delivered by account, waits, lost work, squatters, drains, exceptions, reviews.

    It is made from the service's journal, which is only read: the service may run meanwhile. The store is found as
    mirab serve finds it: --db, MIRAB_DB, or mirab.db in the state folder.
    """
    zone = zone_of(timezone)
    wanted = week_of(week, zone, datetime.now(zone).date())
    found = _made(wanted, place)
    from mirab.study.weeklytext import markdown as in_markdown
    from mirab.study.weeklytext import weekly_page

    if json is not None:
        write_json(found, json)
    if html is not None:
        write_text(weekly_page(found, zone), Path(html))
    if markdown not in (None, "-"):
        write_text(in_markdown(found, zone), Path(markdown))
    elif markdown == "-" or (json is None and html is None):
        emit(in_markdown(found, zone))


def zone_of(name: str | None) -> tzinfo | None:
    """The zone that a person named; None = that of this machine.

    Raises:
        click.UsageError: there is none of that name here.
    """
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise click.UsageError(
            f"--timezone: this machine knows no zone {name!r}; write one as Europe/Berlin"
        ) from error


def week_of(text: str | None, zone: tzinfo | None, today: date) -> Week:
    """The week that a person means, from Monday to Monday on their clock.

    Raises:
        click.UsageError: it names no week.
    """
    from mirab.study.weekly import Week

    monday = _monday(text, today)
    year, number, _ = monday.isocalendar()
    begin, end = (_instant(day, zone) for day in (monday, monday + timedelta(days=7)))
    return Week(f"{year}-W{number:02}", begin, end)


def _monday(text: str | None, today: date) -> date:
    if text is None:
        return today - timedelta(days=today.weekday() + 7)
    try:
        if match := WEEK.fullmatch(text):
            return date.fromisocalendar(int(match[1]), int(match[2]), 1)
        day = date.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--week: {text!r} is no week; write 2026-W48, or a day as 2026-11-24") from error
    return day - timedelta(days=day.weekday())


def _instant(day: date, zone: tzinfo | None) -> int:
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    return round((midnight if zone else midnight.astimezone()).astimezone(UTC).timestamp() * 1000)


def _made(week: Week, place: dict[str, Any]) -> dict[str, Any]:
    from mirab.store.beginning import beginning
    from mirab.study.weekly import weekly

    with _store(place) as store:
        began = beginning(store.meta)
        if began is None:
            raise UnusableError(f"{store.name} has no journal yet: start the service on it first.")
        records = ((facts, plan) for _, facts, plan in store.records())
        declared = store.progress_intervals()
        try:
            return weekly(week, began, records, lambda workload: declared.get(workload, 0))
        except ValueError as error:
            raise UnusableError(f"{error}.") from error


@contextmanager
def _store(place: dict[str, Any]) -> Iterator[Store]:
    """The store for reading, beside a service that leads it."""
    from mirab.store import Store

    with store_at(place) as database:
        yield Store(database.name, database)
