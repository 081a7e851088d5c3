"""`mirab advise`: what a log says about the parameters, as suggestions with evidence."""

from __future__ import annotations

from math import isfinite

import click

from mirab.cli.exits import UnusableError
from mirab.cli.options import QUIET_OPTION, SETTING_OPTION, LogChoice, log_options
from mirab.cli.output import check_outputs, write_json


@click.command()
@log_options
@click.option("--policy", metavar="NAME|FILE", help="The present one. Default: that of the cluster file, else budget.")
@SETTING_OPTION
@click.option("--price", metavar="X", type=click.FloatRange(min=0), help="Of a GPU-hour, in your money.")
@click.option("--checkpoint-cost", metavar="TIME", default="1m", show_default=True, help="Running time that one takes.")
@click.option("--json", "json_file", metavar="FILE", help="As JSON; - for standard output, in place of the text.")
@QUIET_OPTION
def command(
    choice: LogChoice, policy: str | None, settings: tuple[str, ...], price: float | None, checkpoint_cost: str,
    json_file: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Replay LOG once and say what it suggests: window, cap, margin, checkpoints; and who holds, idles, loses and pays.

    Suggestions with their evidence; nothing is applied.
    """
    from mirab.cli.inputs import choose_policy, load_trace, policy_of_cluster
    from mirab.cli.progress import bar
    from mirab.cli.results import show
    from mirab.model.units import parse_duration
    from mirab.study.advise import advised
    from mirab.study.advisetext import advice_sections

    if price is not None and not isfinite(price):
        raise click.UsageError(f"--price: {price} is not an amount of money: write a number, such as 2.50")
    chosen = choose_policy(policy or policy_of_cluster(choice), settings)
    check_outputs((json_file,), choice.files)
    try:
        cost = parse_duration(checkpoint_cost)
    except ValueError as error:
        raise click.UsageError(f"--checkpoint-cost: {error}") from error
    trace = load_trace(choice, quiet=quiet)
    if not trace.arrivals:
        raise UnusableError("The log has no workload in it: there is nothing to learn from.")
    with bar(f"Replaying under {chosen.name}", trace.ends_at, quiet=quiet) as tell:
        found = advised(trace, chosen, price=price, checkpoint_cost=cost, progress=tell)
    if json_file is not None:
        write_json(found, json_file)
    if json_file != "-":
        show(advice_sections(found))
