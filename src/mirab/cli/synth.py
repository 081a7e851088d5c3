"""`mirab synth`: a log out of a seed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirab.cli.output import emit, to_json, whole

if TYPE_CHECKING:
    from mirab.model.trace import Trace
    from mirab.sim.synthetic import SynthOptions

SCENARIOS = ("normal-week", "small-burst", "large-training", "maintenance")


@click.command()
@click.option("--out", metavar="FOLDER", default="synthetic", show_default=True, help="Where the three files go.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, another log of the same shape.")
@click.option("--nodes", metavar="N", type=click.IntRange(1, 100_000), default=128, show_default=True)
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(1, 1_000), default=8, show_default=True)
@click.option(
    "--days", metavar="N", type=click.IntRange(1, 3_660), help="Length of the log. Default: 30, and 7 for a scenario."
)
@click.option(
    "--load",
    metavar="X",
    type=click.FloatRange(0, 100, min_open=True),
    default=1.16,
    show_default=True,
    help="Offered GPU-time / capacity.",
)
@click.option(
    "--workloads",
    metavar="N",
    type=click.IntRange(1, 10_000_000),
    help="Exactly so many rows, over the days in which they make the load.",
)
@click.option(
    "--accounts",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="So many teams. Default: the reference's 15 in 5 programs.",
)
@click.option(
    "--users", metavar="N", type=click.IntRange(1, 1_000_000), default=150, show_default=True, help="Users in all."
)
@click.option(
    "--size-scale",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Every workload on so many times more nodes.",
)
@click.option("--troubles/--no-troubles", default=True, show_default=True, help="Hardware events.")
@click.option("--scenario", type=click.Choice(SCENARIOS), help="A week in which one thing happens.")
@click.option("--json", "as_json", is_flag=True, help="What was made and where, as JSON.")
def command(out: str, scenario: str | None, as_json: bool, **given: object) -> None:
    """Make a synthetic log of the reference's shape, with its cluster, budgets and hardware events.

    The same options make the same bytes on every machine. Writes workloads.csv.gz, node_events.csv and cluster.yaml
    into the folder, replacing files of these names.
    """
    given["days"] = given["days"] or (7 if scenario else 30)
    trace = _trace(_options(given), scenario)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"name": trace.name, "workloads": len(trace.arrivals), "slots": trace.cluster.slots} | _write(trace, folder)
    emit(to_json(facts) if as_json else _told(facts))


def _options(given: dict[str, object]) -> SynthOptions:
    from mirab.sim.synthetic import SynthOptions

    try:
        return SynthOptions(**given)  # type: ignore[arg-type]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _trace(options: SynthOptions, scenario: str | None) -> Trace:
    from mirab.sim.scenarios import scenario as stock
    from mirab.sim.synthetic import synthesize

    try:
        return stock(scenario, options) if scenario else synthesize(options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _write(trace: Trace, folder: Path) -> dict[str, str]:
    """The three files; the path of each."""
    from mirab.logs.dump import write_cluster, write_native, write_node_events
    from mirab.logs.folder import CLUSTER, LOGS, NODE_EVENTS

    log, cluster, events = folder / LOGS[1], folder / CLUSTER, folder / NODE_EVENTS[0]
    with whole(log) as target:
        write_native(target, trace)
    with whole(cluster) as target:
        write_cluster(target, trace.cluster, trace.budgets, f"{trace.name}: made by mirab synth")
    with whole(events) as target:
        write_node_events(target, trace.troubles)
    return {"log": str(log), "cluster": str(cluster), "node_events": str(events)}


def _told(facts: dict[str, object]) -> str:
    folder = shlex.quote(str(Path(str(facts["log"])).parent))
    return f"{facts['workloads']:,} workloads for {facts['slots']:,} GPUs. Replay them:\n  mirab sim {folder}"
