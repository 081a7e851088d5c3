"""`mirab demo`: a bundled real log under two policies, then a service with real little jobs."""

from __future__ import annotations

from pathlib import Path

import click

from mirab.cli.options import QUIET_OPTION, LogChoice, OutputChoice, OutputFile
from mirab.cli.output import check_outputs, emit, say

LOG, CLUSTER = "philly-2017-10.csv.gz", "cluster.yaml"
POLICIES = ("priority", "budget")


def bundled(name: str) -> Path:
    """A file of the bundled log's folder."""
    return Path(__file__).parent.parent / "data" / "philly" / name


@click.command()
@click.option(
    "--html",
    metavar="FILE",
    type=OutputFile(),
    default="mirab-demo.html",
    show_default=True,
    help="The page with pictures.",
)
@click.option("--json", metavar="FILE", help="The two reports as JSON; - for standard output, in place of the text.")
@click.option("--live/--no-live", default=True, show_default=True, help="Then start a service, and show it at work.")
@QUIET_OPTION
def command(html: str, json: str | None, live: bool, quiet: bool) -> None:
    """Replay eleven days of Microsoft's Philly cluster under priorities and under budgets, and compare.

    Then start a service on this machine with pretended GPUs, submit real little jobs of three teams, and show one of
    them stopped for another and resumed. It takes half a minute, and leaves nothing behind but the page.
    """
    from mirab.cli.inputs import choose_policy, load_trace
    from mirab.cli.parallel import measured_all
    from mirab.cli.results import write_comparison

    output = OutputChoice(json, html)
    check_outputs((json, html), ())
    trace = load_trace(_choice(), quiet=quiet)
    say(f"Replaying {len(trace.arrivals):,} real jobs of October 2017 under {' and '.join(POLICIES)} ...")
    write_comparison(measured_all(trace, [choose_policy(name) for name in POLICIES], quiet=quiet), output)
    if not output.text:
        return
    emit(f"\nThe page with pictures: {html}")
    if live:
        from mirab.cli.demolive import show_live

        show_live()


def _choice() -> LogChoice:
    """The bundled log and its cluster; everything else by default."""
    return LogChoice(
        log=str(bundled(LOG)),
        cluster=str(bundled(CLUSTER)),
        form=None,
        columns=None,
        node_events=None,
        account_by=None,
        unit=None,
        contract=None,
        overlay=None,
        begin=None,
        end=None,
        scale=1.0,
        timezone="America/Los_Angeles",
    )
