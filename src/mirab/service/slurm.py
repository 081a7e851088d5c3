"""The service on a Slurm cluster: its settings, what the state believes at a start, and the backend put together."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirab.backends.slurm.backend import Pace, SlurmBackend
from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.contracts import Contract, contract_from
from mirab.backends.slurm.governed import Governed
from mirab.backends.slurm.health import DEGRADED, DOWN
from mirab.backends.slurm.lister import Lister
from mirab.backends.slurm.listings import ListingError
from mirab.backends.slurm.places import cluster_of
from mirab.backends.slurm.rules import Judgement
from mirab.backends.slurm.runner import TIMEOUT_S, ReadOnlyRunner, Runner, SlurmCommandError
from mirab.backends.slurm.tracker import Known
from mirab.control.recover import Intents
from mirab.core.nodes import Health
from mirab.core.state import State
from mirab.logs.sacct import COMMAND
from mirab.logs.yamltree import read_yaml
from mirab.model.nodelists import compress
from mirab.model.plans import Drain
from mirab.model.resources import Cluster
from mirab.model.units import SECOND, UNIT, ChargeRate, NodeName, RunId, WorkloadId, parse_duration
from mirab.service.config import ConfigError, ServeConfig
from mirab.service.live import Live

GOVERNED = "slurm-governed"
"""Name of the file of governed accounts in the state folder, unless the settings say another."""
KEYS = ("governed", "interval", "timeout", "slurm_conf", "weights", "partitions", "repair_command")
CONTRACT_KEYS = ("min", "grace", "signal", "checkpoint", "restart", "resume")


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What a Slurm configuration file says.

    Attributes:
        governed: the file of governed accounts.
        interval: seconds between two listings of everything.
        timeout: seconds that one of Slurm's programs may take.
        slurm_conf: value of SLURM_CONF for Slurm's programs; "" = as it is.
        weights: charge of one GPU by type, in milli-units.
        partitions: the contract of jobs whose comment says nothing, by partition.
        repair: a command that is told the name of an empty sick node.
    """

    governed: Path
    interval: float = 5.0
    timeout: float = TIMEOUT_S
    slurm_conf: str = ""
    weights: Mapping[str, ChargeRate] = field(default_factory=dict)
    partitions: Mapping[str, Contract] = field(default_factory=dict)
    repair: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": self.slurm_conf} if self.slurm_conf else {}


def read_slurm_settings(file: Path | None, state_dir: Path) -> SlurmSettings:
    """The settings of the file; the defaults where it says nothing, or there is none.

    Raises:
        ConfigError: the file cannot be used; the message names the line.
    """
    settings = SlurmSettings(state_dir / GOVERNED)
    if file is None:
        return settings
    try:
        found = read_yaml(file).fields("the file", KEYS)
        if "governed" in found:
            settings = replace(settings, governed=Path(found["governed"].text("governed")).absolute())
        if "interval" in found:
            settings = replace(settings, interval=found["interval"].parsed("interval", _seconds))
        if "timeout" in found:
            settings = replace(settings, timeout=found["timeout"].parsed("timeout", _seconds))
        if "slurm_conf" in found:
            settings = replace(settings, slurm_conf=found["slurm_conf"].text("slurm_conf"))
        if "repair_command" in found:
            words = found["repair_command"].parsed("repair_command", shlex.split)
            settings = replace(settings, repair=tuple(words))
        weights = found["weights"].table("weights") if "weights" in found else {}
        partitions = found["partitions"].table("partitions") if "partitions" in found else {}
        return replace(
            settings,
            weights={kind: entry.parsed(kind, _weight) for kind, entry in weights.items()},
            partitions={
                name: contract_from({key: value.text(key) for key, value in entry.fields(name, CONTRACT_KEYS).items()})
                for name, entry in partitions.items()
            },
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _seconds(text: str) -> float:
    seconds = parse_duration(text) / SECOND
    if not 1 <= seconds <= 300:
        raise ValueError("1s to 5m")
    return seconds


def _weight(text: str) -> ChargeRate:
    weight = round(float(text) * UNIT)
    if not 0 < weight <= 1000 * UNIT:
        raise ValueError("a number above 0, such as 1 or 2.5")
    return weight


def runner_of(settings: SlurmSettings, observing: bool, clock: str = "%s") -> Runner:
    """`clock`: how Slurm's programs write instants; "" = as they do by themselves."""
    environment = {**settings.environment, "SLURM_TIME_FORMAT": clock or "standard", **({} if clock else {"TZ": "UTC"})}
    return (ReadOnlyRunner if observing else Runner)(settings.timeout, environment)


def log_command(since: str) -> Command:
    """The command that makes a log for replays, as `mirab sim --help-sacct` shows it."""
    words = shlex.split(COMMAND.partition(" > ")[0])[1:]
    return tuple(f"--starttime={since}" if word.startswith("--starttime=") else word for word in words)


def cluster_yaml(cluster: Cluster) -> str:
    """The ``cluster:`` section that says what Slurm lists."""
    lines = [f"cluster:\n  name: {cluster.name}\n  pools:\n"]
    for pool in cluster.pools:
        lines.append(f'    {pool.name}:\n      nodes: "{compress(pool.nodes)}"\n')
        lines.append(f"      gpus_per_node: {pool.gpus_per_node}\n" if pool.gpus_per_node else "")
        lines.append(f"      gpu_type: {pool.gpu_type}\n" if pool.gpu_type else "")
        lines.append(f"      cpus_per_node: {pool.cpus_per_node}\n      memory_per_node: {pool.memory_mib_per_node}M\n")
        lines.append(f"      weight: {pool.weight / UNIT:g}\n")
    return "".join(lines)


def cluster_there(config: ServeConfig) -> Cluster:
    """The cluster that Slurm lists now.

    Raises:
        ConfigError: it lists none.
    """
    settings = read_slurm_settings(config.slurm_config, config.state_dir)
    try:
        return cluster_of(Lister(runner_of(settings, True)).nodes(), "slurm", settings.weights)
    except (SlurmCommandError, ListingError) as error:
        raise ConfigError(f"--backend slurm: {error}. Is the controller up?") from error


def slurm_engine(config: ServeConfig, live: Live, cluster: Cluster) -> SlurmBackend:
    """The backend, with what the state believes; it hears what people tell mirab."""
    settings = read_slurm_settings(config.slurm_config, config.state_dir)
    judgement = Judgement(
        Governed(settings.governed),
        config.observe,
        budgets=lambda: live.state.budgets,
        minimum=live.state.minimum_in_force,
        taken=lambda workload_id: live.store.job(workload_id) is not None,
        partitions=settings.partitions,
        nodes=lambda: backend.tracker.nodes.listed,
    )
    backend = SlurmBackend(
        runner_of(settings, config.observe),
        cluster,
        judgement.rules(),
        live.now,
        live.bell.ring,
        known=known_of(live.state, live.intents),
        pace=Pace(settings.interval, min(1.0, settings.interval)),
        repair=settings.repair,
    )
    live.subscribe(lambda seq, facts, plan: backend.heard(facts))
    return backend


def known_of(state: State, intents: Intents) -> Known:
    """What the state believes in, for a backend that has just been made.

    A drain that was decided last may not have reached Slurm yet: that the node looks well there says nothing.
    """
    begun: dict[RunId, int] = {}
    expected: dict[RunId, list[NodeName]] = {}
    ordered: dict[RunId, int] = {}
    for run in state.runs.values():
        if run.started_at is None:
            ordered[run.id] = run.requested_at
            expected[run.id] = state.nodes_named(run.allocation.pool, run.allocation.mask)
        else:
            begun[run.id] = run.started_at
    waiting: dict[WorkloadId, str] = dict.fromkeys((*state.pending, *state.rejected), "")
    waiting |= {workload_id: why for workload_id, (_, why) in state.held.items()}
    fresh = {action.node for action in intents.last if isinstance(action, Drain)}
    health: dict[NodeName, str] = {}
    for (pool, index), trouble in state.troubled.items():
        name = state.cluster.pools[pool].nodes[index]
        if trouble.health in (Health.DRAINING, Health.REPAIR) and name not in fresh:
            health[name] = DEGRADED
        elif trouble.health is Health.DOWN:
            health[name] = DOWN
    return Known(begun, expected, waiting, health, state.now, ordered=ordered)
