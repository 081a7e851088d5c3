"""Where a scenario happens really: the service with real processes of this machine, and on a real Slurm."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from mirab.model.policy import Policy
from mirab.model.records import Grant
from mirab.model.settings import format_setting, settings
from mirab.model.units import SECOND, Duration, NodeName, format_share
from mirab.service.auth.principal import Principal
from mirab.service.config import load_config
from mirab.service.desk.forms import SubmitForm
from mirab.service.runtime import Service, assemble
from tests.scenarios import build
from tests.scenarios.fileform import Scenario, ScenarioError
from tests.slurm.cluster import SlurmCluster
from tests.slurm.house import USERS, House, clear, sbatch

AS_THEY_ARE = frozenset({"cadence", "start_timeout", "stop_timeout"})
"""Settings that are about engines, which do not go faster."""
ROOT = Principal("root", (Grant("admin", ""),), "unix uid=0", uid=0, gid=0)
WORK = "trap '' {notice}; exec sleep {seconds}"
"""Does not heed its notice: it goes on until it is stopped."""


class World(Protocol):
    """Where a scenario happens really. Returns the ids that it gives to what is submitted, in the file's order."""

    service: Service

    def submit(self, wish: Wish) -> Sequence[str]: ...
    def cancel(self, job: str) -> None: ...
    def drain(self, node: NodeName, cause: str) -> None: ...
    def resume(self, node: NodeName) -> None: ...


@dataclass(frozen=True, slots=True)
class Wish:
    """A line `submit` with its times as they are played; `after`: ids that it depends on."""

    count: int
    account: str
    user: str
    nodes: int
    gpus: int
    minimum: Duration
    grace: Duration
    run: Duration | None
    after: tuple[str, ...]
    at_most: int

    def script(self, notice: str) -> str:
        return WORK.format(notice=notice, seconds="100000" if self.run is None else f"{self.run / SECOND:g}")


def cluster_file(scenario: Scenario, scale: float) -> str:
    """Budgets and policy for `mirab serve`, with the policy's times as they are played."""
    lines = ["budgets:"]
    for budget in build.budgets_of(scenario.budgets).roots:
        if budget.children:
            raise ScenarioError(f"{scenario.name}: played with real time are budgets without children")
        lines.append(f"  {budget.name}: {{share: {format_share(budget.share)}}}")
    policy = scaled(build.policy_of(scenario.policy), scale)
    told = [f"  {name}: {text}" for name in settings() if (text := format_setting(policy, name)) != ""]
    return "\n".join([*lines, "policy:", f"  base: {policy.name}", *told, ""])


def scaled(policy: Policy, scale: float) -> Policy:
    spans = {
        each.name: round(getattr(policy, each.name) * scale)
        for each in dataclasses.fields(policy)
        if str(each.type).startswith("Duration") and getattr(policy, each.name) and each.name not in AS_THEY_ARE
    }
    return replace(policy, cadence=100, **spans)


class LocalWorld:
    """The service with real processes on pretended nodes."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder

    def submit(self, wish: Wish) -> Sequence[str]:
        form = SubmitForm(
            wish.account, "way", argv=("/bin/sh", "-c", wish.script("TERM")), cwd=str(self.folder),
            environment={"PATH": "/usr/bin:/bin"}, nodes=wish.nodes, gpus_per_node=wish.gpus,
            min_runtime=f"{wish.minimum}ms", grace=f"{wish.grace}ms", output="/dev/null",
            array=f"1-{wish.count}%{wish.at_most}" if wish.at_most else "",
            dependency=f"afterok:{':'.join(_whole(wish.after))}" if wish.after else "",
        )  # fmt: skip
        return self.service.desk.submit(ROOT, form).ids

    def cancel(self, job: str) -> None:
        self.service.desk.cancel(ROOT, [job])

    def drain(self, node: NodeName, cause: str) -> None:
        self.service.desk.node_drain(ROOT, node, cause)

    def resume(self, node: NodeName) -> None:
        self.service.desk.node_resume(ROOT, node, "well again")


class SlurmWorld:
    """The service on a real Slurm, whose own commands are used."""

    def __init__(self, house: House, service: Service) -> None:
        self.service, self.house = service, house

    def submit(self, wish: Wish) -> Sequence[str]:
        options = [f"-N{wish.nodes}", f"--gpus-per-node={wish.gpus}", "-A", wish.account,
                   f"--comment=mirab:min={wish.minimum}ms,grace={wish.grace}ms,signal=USR1"]  # fmt: skip
        if wish.at_most:
            options.append(f"--array=1-{wish.count}%{wish.at_most}")
        if wish.after:
            options.append(f"--dependency=afterok:{':'.join(_whole(wish.after))}")
        job = sbatch(self.house.slurm, *options, script=wish.script("USR1"), user=wish.user or USERS[0])
        return [f"{job}_{task}" for task in range(1, wish.count + 1)] if wish.at_most else [job]

    def cancel(self, job: str) -> None:
        self.house.slurm.run("scancel", job)

    def drain(self, node: NodeName, cause: str) -> None:
        self.house.slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={cause}")

    def resume(self, node: NodeName) -> None:
        self.house.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def _whole(jobs: Sequence[str]) -> list[str]:
    """A dependency names an array, not its tasks."""
    return list(dict.fromkeys(job.partition("_")[0] for job in jobs))


@contextmanager
def local_world(scenario: Scenario, folder: Path, scale: float) -> Iterator[LocalWorld]:
    (pool,) = build.cluster_of(scenario).pools
    folder.mkdir(parents=True)
    (folder / "cluster.yaml").write_text(cluster_file(scenario, scale))
    flags = {"state_dir": str(folder), "cluster": str(folder / "cluster.yaml"),
             "pretend_gpus": str(pool.gpus_per_node), "pretend_nodes": str(len(pool.nodes))}  # fmt: skip
    service = assemble(load_config(flags, {}))
    service.start()
    world = LocalWorld(service, folder)
    try:
        yield world
    finally:
        with suppress(Exception):
            alive = [str(run.workload.id) for run in list(service.live.state.runs.values())]
            waiting = [str(name) for name in (*service.live.state.pending, *service.live.state.held)]
            service.desk.cancel(ROOT, [*waiting, *alive])
            deadline = time.monotonic() + 30
            while service.live.state.runs and time.monotonic() < deadline:
                time.sleep(0.1)
        service.stop()


@contextmanager
def slurm_world(scenario: Scenario, slurm: SlurmCluster, folder: Path, scale: float) -> Iterator[SlurmWorld]:
    made = House(slurm, folder, cluster=cluster_file(scenario, scale), settings="interval: 1s\n")
    made.govern(*(budget.name for budget in build.budgets_of(scenario.budgets).roots))
    try:
        yield SlurmWorld(made, made.start())
    finally:
        made.stop()
        slurm.governed.unlink(missing_ok=True)
        clear(slurm)
