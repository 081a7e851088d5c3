"""From what was typed to the values that a replay takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirab.cli.exits import UnusableError
from mirab.cli.options import LogChoice
from mirab.cli.output import check_input
from mirab.cli.progress import spinner

if TYPE_CHECKING:
    from mirab.logs.options import LoadOptions
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace
    from mirab.model.units import Instant


def load_trace(choice: LogChoice, *, quiet: bool = False) -> Trace:
    """The log, read as asked.

    Raises:
        OSError: a file is not there or may not be read.
        UnusableError: a file makes no sense; the message says where and what to do.
        click.UsageError: an option has an impossible value.
    """
    check_input(choice.log, folder=True)
    for name in choice.files[1:]:
        if name is not None:
            check_input(name)
    from mirab.logs.detect import load
    from mirab.logs.errors import LogError

    options = load_options(choice)
    with spinner(f"Reading {Path(choice.log).name}", quiet=quiet):
        try:
            return load(Path(choice.log), options)
        except LogError as error:
            raise UnusableError(str(error)) from error


def load_options(choice: LogChoice) -> LoadOptions:
    """What was typed, as the importers take it.

    Raises:
        UnusableError: the contract file makes no sense.
        click.UsageError: an option has an impossible value.
    """
    from mirab.logs.contracts import ContractRules, read_contract
    from mirab.logs.errors import LogError
    from mirab.logs.options import LoadOptions

    _check_words(choice)
    try:
        contract = read_contract(Path(choice.contract)) if choice.contract else ContractRules()
    except LogError as error:
        raise UnusableError(str(error)) from error
    try:
        return LoadOptions(
            form=choice.form,
            columns=choice.columns or "",
            account_by=choice.account_by,
            unit=choice.unit,
            overlay=choice.overlay,
            from_=choice.begin,
            to=choice.end,
            scale=choice.scale,
            contract=contract,
            cluster=Path(choice.cluster) if choice.cluster else None,
            node_events=Path(choice.node_events) if choice.node_events else None,
            timezone=choice.timezone,
        )
    except LogError as error:
        raise click.UsageError(str(error)) from error


def _check_words(choice: LogChoice) -> None:
    """The options whose words the log has no say in."""
    from mirab.logs.detect import FORMS
    from mirab.logs.moments import Calendar, parse_moment

    if choice.form is not None and choice.form not in FORMS:
        raise click.UsageError(f"--form: {choice.form!r} is not known: choose one of {', '.join(FORMS)}")
    try:
        calendar = Calendar(choice.timezone)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for name, when in (("--from", choice.begin), ("--to", choice.end)):
        try:
            _ = None if when is None else parse_moment(when, calendar)
        except ValueError as error:
            raise click.UsageError(f"{name}: {error}") from error


def choose_policies(names: str, settings: Sequence[str] = ()) -> list[Policy]:
    """The policies of a list ``budget,fifo``; see `choose_policy`.

    Raises:
        click.UsageError: none is named, or one twice.
    """
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed or len(set(listed)) < len(listed):
        raise click.UsageError(f"--policies: {names!r} names none, or one twice; write budget,priority,fifo")
    return [choose_policy(name, settings) for name in listed]


def policy_of_cluster(choice: LogChoice) -> Policy:
    """The policy that the cluster file states, else `budget`.

    Raises:
        OSError, UnusableError: the file is not there, or makes no sense.
    """
    from mirab.logs.clusterfile import read_cluster_file
    from mirab.logs.errors import LogError
    from mirab.model.policy import POLICIES

    stated = None
    if choice.cluster is not None and choice.cluster.endswith((".yaml", ".yml")):
        try:
            stated = read_cluster_file(check_input(choice.cluster)).policy
        except LogError as error:
            raise UnusableError(str(error)) from error
    return stated or POLICIES["budget"]


def choose_policy(name: str | Policy, settings: Sequence[str] = ()) -> Policy:
    """A policy itself, a stock one by its name, or one from a file; then the settings ``name=value``.

    Raises:
        click.UsageError: no such policy or setting; the message names the nearest.
    """
    from mirab.model.settings import parse_assignment, with_texts

    try:
        return with_texts(
            _named(name) if isinstance(name, str) else name, dict(parse_assignment(setting) for setting in settings)
        )
    except ValueError as error:
        raise click.UsageError(f"--set: {error}") from error


def _named(name: str) -> Policy:
    from mirab.model.policy import POLICIES

    if name in POLICIES:
        return POLICIES[name]
    if not (os.sep in name or name.endswith((".yaml", ".yml"))):
        close = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "a file's name ends in .yaml."
        raise click.UsageError(f"there is no policy {name!r}: the stock ones are {', '.join(POLICIES)}; {hint}")
    from mirab.logs.clusterfile import read_policy
    from mirab.logs.errors import LogError

    try:
        return read_policy(check_input(name))
    except LogError as error:
        raise UnusableError(str(error)) from error


def instant(when: str, trace: Trace, timezone: str | None) -> Instant:
    """A date, or a duration from the log's start, as an instant of the trace.

    Raises:
        click.UsageError: neither, or a date for a log that has no calendar.
    """
    from mirab.logs.moments import Calendar, parse_moment

    try:
        return parse_moment(when, Calendar(timezone)).at(trace.origin)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
