"""`mirab compare`: the same arrivals under several policies."""

from __future__ import annotations

import click

from mirab.cli.options import (
    JOBS_OPTION,
    QUIET_OPTION,
    SETTING_OPTION,
    LogChoice,
    OutputChoice,
    log_options,
    output_options,
)
from mirab.cli.output import check_outputs


@click.command()
@log_options
@click.option("--policies", metavar="A,B,...", default="budget,priority,fifo", show_default=True,
              help="Names or files; the first is what the others are compared with.")  # fmt: skip
@SETTING_OPTION
@output_options
@JOBS_OPTION
@QUIET_OPTION
def command(
    choice: LogChoice,
    policies: str,
    settings: tuple[str, ...],
    output: OutputChoice,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Replay LOG under several policies, and report the differences with their size.

    Settings given with --set apply to each of the policies.
    """
    from mirab.cli.inputs import choose_policies, load_trace
    from mirab.cli.parallel import measured_all
    from mirab.cli.results import check_page_holds, write_comparison

    chosen = choose_policies(policies, settings)
    if output.html is not None:
        check_page_holds(len(chosen))
    check_outputs((output.json, output.html), choice.files)
    trace = load_trace(choice, quiet=quiet)
    write_comparison(measured_all(trace, chosen, jobs=jobs, quiet=quiet), output)
