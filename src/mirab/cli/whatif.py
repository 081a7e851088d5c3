"""`mirab whatif`: a change of budgets, tried on a log before it is made."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirab.cli.connection import SERVER_OPTION
from mirab.cli.exits import UnusableError
from mirab.cli.options import (
    JOBS_OPTION,
    QUIET_OPTION,
    SETTING_OPTION,
    LogChoice,
    OutputChoice,
    log_named,
    output_options,
)
from mirab.cli.output import check_input, check_outputs, say, write_json, write_text

if TYPE_CHECKING:
    from mirab.logs.clusterfile import ClusterFile
    from mirab.logs.proposal import Tried
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace
    from mirab.study.whatif import Question, Side

LAST_DAYS = re.compile(r"last-(\d{1,2})d")
LOOK_EVERY = 0.5
PATIENCE = 1_900.0
"""Seconds."""


@click.command()
@click.argument("budgets", required=False)
@log_named
@click.option(
    "--policy", metavar="NAME|FILE", help="The present policy. Default: that of the cluster file, else budget."
)
@SETTING_OPTION
@click.option("--with-exception", "exception", metavar="FILE|ID",
              help="Try the exceptions of this file (YAML), or that of the service of this id, too.")  # fmt: skip
@click.option("--place", metavar="WHEN", help="Where in the log an exception is tried: a date, or 10d from the start.")
@output_options
@JOBS_OPTION
@QUIET_OPTION
@SERVER_OPTION
def command(
    budgets: str | None,
    choice: LogChoice,
    policy: str | None,
    settings: tuple[str, ...],
    exception: str | None,
    place: str | None,
    output: OutputChoice,
    jobs: int | None,
    quiet: bool,
    server: str | None,
) -> None:
    """Replay the present and the proposed BUDGETS on the same arrivals, and say who gains and who loses.

    BUDGETS is a YAML file; its sections budgets, policy, exceptions, reservations and budget_changes take the place of
    those of --cluster, the present. --set changes the proposed policy. A difference that luck explains is called noise.
    With --log last-30d the service tries the budgets of the file, or an exception, on the last days of its own journal.
    """
    from mirab.cli.inputs import choose_policy, instant, load_trace, policy_of_cluster
    from mirab.logs.errors import LogError

    if budgets is None and exception is None and not settings:
        raise click.UsageError("nothing is proposed: name a file of BUDGETS, or --with-exception, or --set")
    if (days := LAST_DAYS.fullmatch(choice.log)) is not None and not Path(choice.log).exists():
        both = (budgets is None) == (exception is None)
        if both or settings or policy or place or choice.files[1:] != (None,) * 3:
            raise click.UsageError("--log last-30d tries the budgets of a file, or an exception (--with-exception x7), "
                                   "on the service's own nodes and policy")  # fmt: skip
        _on_the_service(budgets, exception, int(days[1]), server, output)
        return
    present = choose_policy(policy or policy_of_cluster(choice))
    file, tried_file = _file(budgets, choice), _file(exception, choice)
    proposed = choose_policy(file.policy if file is not None and file.policy is not None else present, settings)
    check_outputs((output.json, output.html), (*choice.files, budgets, exception))
    trace = load_trace(choice, quiet=quiet)
    where = None if place is None else instant(place, trace, choice.timezone)
    try:
        after, tried = _proposed(trace, file, tried_file, proposed, where)
    except LogError as error:
        raise UnusableError(str(error)) from error
    sides = _replays(trace, present, after, proposed, jobs, quiet)
    _write(sides, _question(trace, after, present, proposed, tried), output)


def _on_the_service(
    name: str | None, exception: str | None, days: int, server: str | None, output: OutputChoice
) -> None:
    """The answer of the service about the last days of its journal."""
    from mirab.cli.client import at, open_client
    from mirab.cli.exits import TimedOutError

    check_outputs((output.json, output.html), (name,))
    tried = {"exception": exception} if name is None else {"budgets": check_input(name).read_text("utf-8", "replace")}
    with open_client(server) as client:
        trial = client.post("/whatif", {**tried, "days": days})
        until = time.monotonic() + PATIENCE
        while trial["state"] == "running":
            if time.monotonic() > until:
                raise TimedOutError(f"What-if {trial['id']} is still being worked out: ask again later.")
            time.sleep(LOOK_EVERY)
            trial = client.get(at("whatif", trial["id"]))
        if trial["state"] != "done":
            raise UnusableError(f"The what-if failed: {trial['problem']}.")
        found = client.get(at("whatif", trial["id"]), {"whole": "true"})
    _tell(found, output)
    if exception is not None:
        say(f"Kept by the service as {trial['id']}: name it in the reason when you approve {exception}.")
        return
    say(f"Kept by the service as {trial['id']}: `--evidence {trial['id']}` of `mirab budget set` names it by its hash.")


def _file(name: str | None, choice: LogChoice) -> ClusterFile | None:
    from mirab.logs.clusterfile import read_cluster_file
    from mirab.logs.errors import LogError
    from mirab.logs.moments import Calendar

    if name is None:
        return None
    try:
        return read_cluster_file(check_input(name), Calendar(choice.timezone))
    except LogError as error:
        raise UnusableError(str(error)) from error


def _proposed(
    trace: Trace, file: ClusterFile | None, tried: ClusterFile | None, policy: Policy, place: int | None
) -> tuple[Trace, list[Tried]]:
    """The trace under the proposal, and the exceptions that are tried."""
    from mirab.logs.proposal import proposed, with_exceptions

    after = trace if file is None else proposed(trace, file, unknown_accounts=policy.unknown_accounts)
    return (after, []) if tried is None else with_exceptions(after, tried, place)


def _replays(
    trace: Trace, present: Policy, after: Trace, proposed: Policy, jobs: int | None, quiet: bool
) -> tuple[Side, Side]:
    from mirab.cli.parallel import replayed_all

    before, later = replayed_all(_side, [(trace, present), (after, proposed)], jobs=jobs, quiet=quiet)
    return before, later


def _side(trace: Trace, policy: Policy, *, quiet: bool = False, reached: Callable[[int], None] | None = None) -> Side:
    """One replay, with its days."""
    from mirab.cli.progress import bar
    from mirab.cli.replaying import warn_of_leftovers
    from mirab.study.days import days_of
    from mirab.study.replays import measure
    from mirab.study.whatif import Side

    with bar(f"Replaying under {policy.name}", trace.ends_at, quiet=quiet) as tell:
        seen, cost = measure(trace, policy, progress=reached or tell, finished=warn_of_leftovers)
    return Side(seen.report(cost), days_of(seen))


def _question(trace: Trace, after: Trace, present: Policy, proposed: Policy, tried: list[Tried]) -> Question:
    from mirab.model.settings import format_setting
    from mirab.model.settings import settings as every
    from mirab.study.budgetedits import term_changes
    from mirab.study.budgettext import change_json
    from mirab.study.whatif import Question

    differing = [name for name in every() if getattr(present, name) != getattr(proposed, name)]
    policy = [{"setting": name, "before": format_setting(present, name), "after": format_setting(proposed, name)}
              for name in differing]  # fmt: skip
    heirs = {old: new for old, new in after.budgets.heirs().items() if trace.budgets.find(old) is not None}
    return Question(
        heirs=heirs,
        changes=[change_json(each) for each in term_changes(trace.budgets, after.budgets)],
        policy=policy,
        exceptions=[_tried(each, after) for each in tried],
        notes=_notes(trace, after),
    )


def _tried(tried: Tried, trace: Trace) -> dict[str, Any]:
    """An exception as a record, with where it was placed."""
    from mirab.study.exceptions import exceptions_part
    from mirab.study.formats import Names

    record = next(each for each in exceptions_part(trace) if each["id"] == tried.held.id)
    names = Names(trace.origin, trace.cluster.unit)
    placed = f"from {names.at(tried.held.begin)} to {names.at(tried.held.end)}" if tried.moved else ""
    return record | {"placed": placed}


def _notes(trace: Trace, after: Trace) -> list[str]:
    from mirab.study.closing import closed_told, dropped_told
    from mirab.study.formats import plural

    notes = dropped_told(trace.budgets, after.budgets) + closed_told(trace.budgets, after.budgets, after.arrivals)
    late = [change for change in after.budget_changes if change.at >= trace.ends_at]
    if late:
        changes = plural(len(late), "change")
        notes.append(f"{changes} of budgets to come after the end of the log did not take effect in it.")
    return notes


def _write(sides: tuple[Side, Side], question: Question, output: OutputChoice) -> None:
    from mirab.study.whatif import whatif

    _tell(whatif(*sides, question), output)


def _tell(found: dict[str, Any], output: OutputChoice) -> None:
    from mirab.cli.results import show
    from mirab.study.whatiftext import whatif_sections

    if output.json is not None:
        write_json(found, output.json)
    if output.html is not None:
        from mirab.study.whatifpage import whatif_page

        write_text(whatif_page(found), Path(output.html))
    if output.text:
        show(whatif_sections(found))
