"""Which of Slurm's jobs mirab decides about, and as which account's: made of the settings and the budgets in force."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from mirab.backends.slurm.contracts import Contract, contract_of
from mirab.backends.slurm.records import SlurmJob, SlurmNode
from mirab.backends.slurm.tracker import Rules
from mirab.model.accounts import Budgets
from mirab.model.units import AccountPath, Duration, NodeName, WorkloadId

LEFT_TO_SLURM = "left to Slurm"
NO_ACCOUNT = "none"
"""Where Slurm knows no accounts."""


@dataclass(eq=False)
class Judgement:
    """Judges jobs by what holds now.

    Attributes:
        governed: names of accounts, as Slurm calls them.
        observing: nothing is changed, so every job that mirab understands is looked at as if it were governed.
        budgets: those in force; minimum: the contract in force of an account for a declared minimum.
        nodes: as they were listed last.
    """

    governed: Container[str]
    observing: bool
    budgets: Callable[[], Budgets]
    minimum: Callable[[AccountPath, Duration], Duration]
    taken: Callable[[WorkloadId], bool]
    partitions: Mapping[str, Contract] = field(default_factory=dict)
    nodes: Callable[[], Mapping[NodeName, SlurmNode]] = dict

    def __post_init__(self) -> None:
        self._tree: Budgets | None = None
        self._paths: dict[str, AccountPath] = {}
        self._reaches: dict[tuple[str, str], bool] = {}
        self._nodes: Mapping[NodeName, SlurmNode] = {}

    def rules(self) -> Rules:
        return Rules(self.left, self.contract, self.account, self.in_force, self.taken)

    def contract(self, job: SlurmJob) -> Contract:
        return contract_of(job, self.partitions)

    def in_force(self, job: SlurmJob) -> Duration:
        return self.minimum(self.account(job), self.contract(job).min_runtime)

    def account(self, job: SlurmJob) -> AccountPath:
        """The budget of that name, wherever in the tree; a tree of one account is everybody's."""
        return self._path_of(job.account) or AccountPath(job.account or NO_ACCOUNT)

    def _path_of(self, account: str) -> AccountPath | None:
        tree = self.budgets()
        if tree is not self._tree:
            self._tree, self._paths = tree, paths_of(tree)
        leaves = tree.leaves()
        return self._paths.get(account) or (leaves[0] if len(leaves) == 1 else None)

    def left(self, job: SlurmJob) -> str:
        """Why a job is left to Slurm; "" = mirab decides about it."""
        if job.special:
            return f"{LEFT_TO_SLURM}: it asks for {job.special}"
        if not self._covers(job):
            return f"{LEFT_TO_SLURM}: partition {job.partition} has only some of the nodes that it could run on"
        if self.observing:
            return ""
        if job.account not in self.governed:
            return f"{LEFT_TO_SLURM}: account {job.account or NO_ACCOUNT} is not governed"
        if self._path_of(job.account) is None:
            return f"{LEFT_TO_SLURM}: account {job.account or NO_ACCOUNT} has no budget"
        return ""

    def _covers(self, job: SlurmJob) -> bool:
        """Whether its partition has every node with GPUs such as it asks for: mirab knows pools, not partitions."""
        nodes = self.nodes()
        if nodes is not self._nodes:
            self._nodes = nodes
            self._reaches.clear()
        key = (job.partition, job.gpu_type if job.gpus_per_node else "-")
        if key not in self._reaches:
            self._reaches[key] = all(
                not node.partitions or not {*job.partition.split(",")}.isdisjoint(node.partitions)
                for node in nodes.values()
                if (not job.gpus_per_node or node.gpus) and job.gpu_type in ("", node.gpu_type)
            )
        return self._reaches[key]


def paths_of(budgets: Budgets) -> dict[str, AccountPath]:
    """Account as Slurm names it -> path in the tree: the last part of a path, the deepest of that name, or the path."""
    found: dict[str, AccountPath] = {}
    for path, _, _ in budgets.walk():
        found[path.rpartition("/")[2]] = path
        found[path] = path
    return found
