"""`mirab sim`: one log, one policy, one report."""

from __future__ import annotations

import click

from mirab.cli.options import (
    QUIET_OPTION,
    SETTING_OPTION,
    LogChoice,
    OutputChoice,
    OutputFile,
    log_options,
    output_options,
)
from mirab.cli.output import check_outputs, emit


def _help_sacct(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from mirab.logs.sacct import HELP

        emit(HELP)
        ctx.exit()


@click.command()
@log_options
@click.option("--policy", metavar="NAME|FILE", help="Default: that of the cluster file, else budget.")
@SETTING_OPTION
@click.option("--until", metavar="WHEN", help="Decide nothing after this time: a date, or 10d from the start.")
@output_options
@click.option(
    "--journal",
    metavar="FILE",
    type=OutputFile(),
    help="Record every decision, for `mirab explain`; gzip where it ends in .gz.",
)
@click.option("--save-cluster", metavar="FILE", type=OutputFile(),
              help="Write the cluster and the budgets, as given or inferred (YAML).")  # fmt: skip
@QUIET_OPTION
@click.option("--help-sacct", is_flag=True, is_eager=True, expose_value=False, callback=_help_sacct,
              help="Print the sacct command that makes a log, and exit.")  # fmt: skip
def command(
    choice: LogChoice,
    policy: str | None,
    settings: tuple[str, ...],
    until: str | None,
    output: OutputChoice,
    journal: str | None,
    save_cluster: str | None,
    quiet: bool,
) -> None:
    """Put the jobs of LOG through the scheduler, and report who was owed what and who got it.

    LOG is a file of jobs in any known form, gzip or not: Slurm's sacct, SWF, Philly, Helios, Acme, Alibaba 2023,
    HTCondor history (or a folder of it), or mirab's own CSV. Of a folder that `mirab synth` makes, the cluster and the
    node events in it are taken too.
    """
    from mirab.cli.inputs import choose_policy, instant, load_trace, policy_of_cluster
    from mirab.cli.replaying import measured
    from mirab.cli.results import write_cluster_file, write_report

    chosen = choose_policy(policy or policy_of_cluster(choice), settings)
    check_outputs((output.json, output.html, journal, save_cluster), choice.files)
    trace = load_trace(choice, quiet=quiet)
    if save_cluster is not None:
        write_cluster_file(trace, save_cluster)
    stop = None if until is None else instant(until, trace, choice.timezone)
    report = measured(trace, chosen, journal=journal, until=stop, quiet=quiet)
    write_report(report, output)
