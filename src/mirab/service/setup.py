"""What the settings say of cluster, budgets and policy, and what a laptop user gets without saying anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import structlog

from mirab.backends.local import DetectionError, detect
from mirab.core.state import State
from mirab.logs.clusterfile import ClusterFile, read_cluster_file
from mirab.logs.settings import read_policy
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, ExemptionGranted, ReservationApproved
from mirab.model.policy import POLICIES, Policy, named
from mirab.model.records import Beginning
from mirab.model.resources import Cluster
from mirab.model.units import WHOLE, Instant
from mirab.service.config import ConfigError, ServeConfig
from mirab.service.recover import Wanted

EVERYONE = "everyone"

log = structlog.get_logger("mirab.setup")


def wanted_of(config: ServeConfig) -> tuple[Wanted, ClusterFile | None]:
    """What this start says; what it does not say stays as it is.

    Raises:
        ConfigError: a file cannot be used, or two settings contradict each other.
    """
    file = _file(config.cluster) if config.cluster is not None else None
    cluster = file.cluster if file is not None else None
    _check_engine(config, cluster)
    if config.pretend_gpus is not None:
        if cluster is not None:
            raise ConfigError(f"--pretend-gpus and the cluster: of {config.cluster} both say what there is: keep one")
        cluster = _detected(config)
    policy = _policy(config.policy) if config.policy else file.policy if file is not None else None
    if file is not None and file.draft_changes:
        log.warning(
            "budget_changes.ignored",
            file=str(config.cluster),
            hint="budget_changes: is for replays; change budgets here with `mirab budget set`",
        )
    budgets = file.budgets if file is not None else None
    mode = None if config.backend != "slurm" else "observe" if config.observe else "enforce"
    return Wanted(cluster, budgets, policy, detected=config.pretend_gpus is not None, mode=mode), file


def _check_engine(config: ServeConfig, cluster: Cluster | None) -> None:
    if config.backend == "slurm":
        if cluster is not None or config.pretend_gpus is not None:
            raise ConfigError("--backend slurm: Slurm says what nodes there are: leave out cluster: and --pretend-gpus")
    elif config.observe or config.slurm_config is not None:
        raise ConfigError("--observe and --slurm-config are for --backend slurm")


def _detected(config: ServeConfig) -> Cluster:
    try:
        return detect(config.pretend_gpus, config.pretend_nodes)
    except DetectionError as error:
        raise ConfigError(str(error)) from error


def _file(path: Path) -> ClusterFile:
    try:
        return read_cluster_file(path)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _policy(text: str) -> Policy:
    try:
        if text in POLICIES or not (text.endswith((".yaml", ".yml")) or "/" in text):
            return named(text)
        return read_policy(Path(text))
    except ValueError as error:
        raise ConfigError(f"--policy: {error}") from error


def defaults(wanted: Wanted, now: Instant, found: Cluster | None = None) -> Beginning:
    """What a ledger begins with where nothing is said: this machine, and one account that everybody shares.

    `found`: the cluster of an engine that knows its own.
    """
    cluster: Cluster = wanted.cluster or found or detect(None)
    return Beginning(cluster, one_for_all(), POLICIES["budget"], now)


def one_for_all() -> Budgets:
    """One account with everything, inside which users share equally: nobody has to know of budgets to begin."""
    return Budgets((Budget(EVERYONE, WHOLE, owner="nobody yet", hypothesis="the default of a first start"),))


def approvals(file: ClusterFile | None, state: State, now: Instant) -> Iterator[Event]:
    """Reservations and exceptions of the file that are not over and that the ledger does not know.

    Raises:
        ConfigError: one names an account that has no budget, or a node that there is not; or a budget a pool.
    """
    if file is None:
        return
    try:
        file.check_accounts(state.budgets if file.budgets is None else file.budgets)
        file.check_nodes(state.cluster)
        file.check_pools(state.cluster)
        for reservation in file.reservations(0):
            if reservation.end > now and reservation.id not in state.reservations:
                yield ReservationApproved(now, reservation)
        for exemption in file.exemptions(0):
            if exemption.end > now and exemption.id not in state.exemptions:
                yield ExemptionGranted(now, exemption)
    except ValueError as error:
        raise ConfigError(str(error)) from error
