"""Reports to where they were asked for: text or JSON to standard output, JSON and HTML to files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirab.cli.options import OutputChoice
from mirab.cli.output import emit, whole, write_json, write_text

if TYPE_CHECKING:
    from mirab.model.trace import Trace
    from mirab.study.tables import Section

Report = dict[str, Any]


def write_report(report: Report, output: OutputChoice) -> None:
    """One replay."""
    from mirab.study.report import report_sections

    if output.json is not None:
        write_json(report, output.json)
    if output.html is not None:
        from mirab.study.page import html_page

        write_text(html_page([report]), Path(output.html))
    if output.text:
        show(report_sections(report))


def write_comparison(reports: Sequence[Report], output: OutputChoice) -> None:
    """Several replays of the same arrivals; the first is what the others are compared with.

    The JSON has `labels`, `reports`, `differences` and `institute`: see `mirab.study.compare.comparison`.
    """
    from mirab.study.comparison import comparison_sections

    if output.json is not None:
        from mirab.study.compare import comparison

        write_json(comparison(reports), output.json)
    if output.html is not None:
        from mirab.study.page import html_page

        write_text(html_page(reports), Path(output.html))
    if output.text:
        show(comparison_sections(reports))


def check_page_holds(count: int) -> None:
    """Before long work: a page can show so many replays.

    Raises:
        click.UsageError: it cannot.
    """
    from mirab.study.page import MOST

    if count > MOST:
        raise click.UsageError(f"--html: a page shows at most {MOST} policies, not {count}; leave some out")


def write_cluster_file(trace: Trace, name: str) -> None:
    """The cluster and the budgets of a trace, to be edited and given back with --cluster."""
    from mirab.logs.dump import write_cluster

    with whole(Path(name)) as target:
        write_cluster(target, trace.cluster, trace.budgets, f"of the replay of {trace.name}")


def show(sections: Sequence[Section]) -> None:
    """Drawn on a terminal, plain anywhere else."""
    from mirab.study.tables import draw, plain

    if not sys.stdout.isatty():
        emit(plain(sections))
        return
    from rich.console import Console

    draw(sections, Console())
