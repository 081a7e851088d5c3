"""Nodes: the operator's own commands that say whether one is well, and that repair it."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from mirab.backends.local import processes, rundir
from mirab.backends.local.worker import Worker
from mirab.model.events import Event, NodeDegraded, NodeUp
from mirab.model.units import Instant, NodeName

FILE = "health.json"
"""In the root: the nodes that the health check has found sick, and why. It calls no other well."""
CHECK_S = 60.0
"""Between two checks of a node, and the longest that one may take."""
REPAIR_S = 3600.0
LONGEST_CAUSE = 300
KILLED = 137

log = logging.getLogger("mirab.local")


@dataclass(frozen=True, slots=True)
class Commands:
    """Shell commands of the operator, run as the service's own user with ``MIRAB_NODE`` in the environment.

    Attributes:
        repair: is to make a node well; exit code 0 says that it is. "" = a person repairs, and resumes the node.
        health: exit code 0 says that a node is well; else its first line says what is wrong. "" = none.
        every_s: seconds between two health checks.
    """

    repair: str = ""
    health: str = ""
    every_s: float = CHECK_S


class NodeCare:
    def __init__(
        self,
        root: str,
        nodes: Sequence[NodeName],
        commands: Commands,
        worker: Worker,
        clock: Callable[[], Instant],
        tell: Callable[[Iterable[Event]], None],
    ) -> None:
        self.path, self.nodes, self.commands = os.path.join(root, FILE), nodes, commands
        self.worker, self.clock, self.tell = worker, clock, tell
        self.sick: dict[str, str] = rundir.read_json(self.path) or {}
        self.busy: dict[tuple[str, NodeName], subprocess.Popen[bytes]] = {}

    # --- health ----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Check every node now, and again and again."""
        if self.commands.health:
            for node in self.nodes:
                self._run("health", self.commands.health, node, self.commands.every_s, self._checked)
            self.worker.after(self.commands.every_s, self.begin)

    def _checked(self, node: NodeName, code: int, said: str) -> None:
        was_sick = node in self.sick
        if code == 0 and was_sick:
            self._remember(node, None)
            self.tell([NodeUp(self.clock(), node)])
        elif code != 0 and not was_sick:
            late = f"the health check did not end within {self.commands.every_s:g} s"
            cause = said or (late if code == KILLED else f"the health check ended with exit code {code}")
            self._remember(node, cause)
            self.tell([NodeDegraded(self.clock(), node, cause)])

    def _remember(self, node: NodeName, cause: str | None) -> None:
        self.sick.pop(node, None)
        if cause is not None:
            self.sick[node] = cause
        rundir.write_json(self.path, self.sick, durable=True)

    # --- repair ----------------------------------------------------------------------------------------------------
    def repair(self, node: NodeName) -> None:
        """The node is empty. Told twice while it is being repaired, it is repaired once."""
        if self.commands.repair:
            self._run("repair", self.commands.repair, node, REPAIR_S, self._repaired)
        else:
            log.warning("node %s is empty and waits for repair: resume it when it is well", node)

    def _repaired(self, node: NodeName, code: int, said: str) -> None:
        if code == 0:
            self._remember(node, None)
            self.tell([NodeUp(self.clock(), node)])
        else:
            log.error("the repair of node %s ended with exit code %s (%s): a person has to look", node, code, said)

    # --- both --------------------------------------------------------------------------------------------------------
    def _run(
        self, kind: str, command: str, node: NodeName, patience_s: float, then: Callable[[NodeName, int, str], None]
    ) -> None:
        if (kind, node) in self.busy:
            return
        talk = os.fdopen(os.memfd_create(f"{kind}-{node}"), "w+b")
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env={**os.environ, "MIRAB_NODE": node},
            stdin=subprocess.DEVNULL,
            stdout=talk,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.busy[kind, node] = process

        def ended(code: int) -> None:
            del self.busy[kind, node]
            then(node, 128 - code if code < 0 else code, first_line(talk))

        self.worker.when_ended(process, ended)
        self.worker.after(patience_s, lambda: give_up_on(process))

    def close(self) -> None:
        """End what is being checked or repaired: whoever comes next begins anew."""
        for process in self.busy.values():
            give_up_on(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def give_up_on(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        processes.signal_group(process.pid, 9)


def first_line(talk: IO[bytes]) -> str:
    with talk:
        talk.seek(0)
        return talk.readline(LONGEST_CAUSE).decode(errors="replace").strip()
