"""What a Slurm controller says of jobs and nodes, in one form whatever its version."""

from __future__ import annotations

from dataclasses import dataclass

from mirab.model.units import Duration, Instant, NodeName

WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
RUNS = frozenset({"RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"})
HELD_MARK = "mirab:held"
"""In the administrators' comment of a job: its hold is mirab's own, not an operator's."""
PLACED_MARK = "mirab:placed"
"""Likewise: the nodes that it insists on are those that mirab gave it, not its user's choice."""
USER_HOLD_MARK = "mirab-hold"
"""In a job's comment: its user holds it, though Slurm shows only that it is held (`job_submit.lua` writes it)."""
STANDS_STILL = frozenset({"SUSPENDED", "STOPPED"})
ENDED = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE",
        "OUT_OF_MEMORY", "REVOKED", "LAUNCH_FAILED",
    }
)  # fmt: skip
FLAGS_OF_JOBS = frozenset({"COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT",
                           "SIGNALING", "RESIZING", "STOPPED", "REQUEUE_FED", "RESV_DEL_HOLD", "POWER_UP_NODE",
                           "RECONFIG_FAIL", "UPDATE_DB", "REVOKED"})  # fmt: skip
"""States that newer versions list beside the base state, as a second word."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of an array (``12_3``) as if it were listed by itself.

    Attributes:
        state: the base state; a word that this version of mirab does not know is kept as it is, and `known` is False.
        flags: further words of the state.
        reason: why it waits, in Slurm's word.
        held_by: ``user``, ``admin``, ``mirab`` (by its mark in the administrators' comment), or "".
        gpus_per_node, cpus_per_node, memory_mib_per_node: what it asks for on each node, rounded up.
        gpu_type: the type it asks for; "" = any.
        node_names: where it runs or ran last.
        requested_nodes: nodes that it insists on.
        eligible_at: it may not start before; None = not known yet, as with an unmet dependency.
        restarts: how often it was requeued, so its present attempt is one more.
        signal: number of the signal that ended it; 0 = none.
        array_limit: how many tasks of its array may run at once; 0 = no limit.
        special: what it asks for that mirab does not understand, such as ``a reservation``; "" = nothing.
        placed: the nodes that it insists on were mirab's choice.
        requeue: it may be stopped and begun again: a batch job that does not forbid it.
    """

    id: str
    job_id: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    flags: tuple[str, ...]
    reason: str
    nodes: int
    gpus_per_node: int
    submitted_at: Instant
    gpu_type: str = ""
    cpus_per_node: int = 0
    memory_mib_per_node: int = 0
    node_names: tuple[NodeName, ...] = ()
    requested_nodes: tuple[NodeName, ...] = ()
    time_limit: Duration | None = None
    eligible_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    priority: int = 0
    held_by: str = ""
    dependency: str = ""
    comment: str = ""
    restarts: int = 0
    requeue: bool = True
    exit_code: int = 0
    signal: int = 0
    array_job: int | None = None
    array_task: int | None = None
    array_limit: int = 0
    special: str = ""
    placed: bool = False

    @property
    def known(self) -> bool:
        """Whether the state is one that this version of mirab understands."""
        return self.state in WAITS or self.state in RUNS or self.state in STANDS_STILL or self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in WAITS

    @property
    def has_nodes(self) -> bool:
        """It runs, is suspended on its nodes, or is on its way out of them."""
        return self.state in RUNS or self.state in STANDS_STILL or "COMPLETING" in self.flags

    @property
    def ended(self) -> bool:
        return self.state in ENDED and "COMPLETING" not in self.flags

    @property
    def attempt(self) -> int:
        return self.restarts + 1


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node.

    Attributes:
        state: base state in capitals, such as ``IDLE``; `flags`: ``DRAIN``, ``FAIL``, ``NOT_RESPONDING``, ...
        gpus: how many GPUs; gpu_type: their type; a node with several types counts as its first, with all GPUs.
    """

    name: NodeName
    state: str
    flags: tuple[str, ...] = ()
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0
    reason: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def dead(self) -> bool:
        """Nothing runs there any more."""
        return self.state in ("DOWN", "ERROR", "FUTURE", "POWERED_DOWN") or "POWERED_DOWN" in self.flags

    @property
    def sick(self) -> bool:
        """Somebody or something has said that it takes nothing new: it is sick, or about to be worked on."""
        return bool({"DRAIN", "FAIL", "REBOOT_REQUESTED", "REBOOT_ISSUED"} & {*self.flags, self.state}) or (
            self.state in ("DRAINED", "DRAINING", "FAILING")
        )

    @property
    def reserved(self) -> bool:
        """A reservation of Slurm's has begun there, for jobs that mirab does not decide about or for maintenance."""
        return bool({"RESERVED", "MAINT"} & {*self.flags, self.state})

    @property
    def draining(self) -> bool:
        """It takes nothing new of ours, and what runs may go on until its minimum is over."""
        return self.sick or self.reserved


@dataclass(frozen=True, slots=True)
class Booking:
    """One attempt of a job in Slurm's accounting. `ended_at` None = it runs."""

    job: str
    state: str
    started_at: Instant
    ended_at: Instant | None
    exit_code: int = 0
    signal: int = 0
