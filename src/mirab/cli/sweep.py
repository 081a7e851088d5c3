"""`mirab sweep`: a grid of settings."""

from __future__ import annotations

import click

from mirab.cli.options import JOBS_OPTION, QUIET_OPTION, LogChoice, log_options
from mirab.cli.output import check_outputs, write_json


@click.command()
@log_options
@click.option("--policies", "--policy", metavar="A,B,...", default="budget", show_default=True,
              help="Policies to put through the grid.")  # fmt: skip
@click.option("--set", "settings", metavar="NAME=A,B,...", multiple=True, required=True,
              help="Values of a setting, such as window=1d,7d; repeat: the grid is the product.")  # fmt: skip
@JOBS_OPTION
@click.option(
    "--dask", metavar="ADDRESS", help="Replay on the Dask cluster of this scheduler, such as tcp://host:8786."
)
@click.option("--json", metavar="FILE", help="Every report as JSON; - for standard output, in place of the table.")
@QUIET_OPTION
def command(
    choice: LogChoice,
    policies: str,
    settings: tuple[str, ...],
    jobs: int | None,
    dask: str | None,
    json: str | None,
    quiet: bool,
) -> None:
    """Replay LOG once for each point of a grid of settings, on all cores, and put the measures side by side."""
    from mirab.cli.inputs import choose_policies, load_trace
    from mirab.cli.parallel import measured_all, measured_by_dask
    from mirab.cli.results import show
    from mirab.study.sweep import grid, sweep_sections

    try:
        points = grid(choose_policies(policies), settings)
    except ValueError as error:
        raise click.UsageError(f"--set: {error}") from error
    check_outputs((json,), choice.files)
    trace = load_trace(choice, quiet=quiet)
    if dask is None:
        reports = measured_all(trace, points, jobs=jobs, quiet=quiet)
    else:
        reports = measured_by_dask(trace, points, dask, quiet=quiet)
    if json is not None:
        write_json({"reports": reports}, json)
    if json != "-":
        show(sweep_sections(reports))
