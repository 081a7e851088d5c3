"""The one place that runs Slurm's programs: without a shell, with a time-out, counted."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from mirab.backends.slurm.commands import Command, as_lines, writes

TIMEOUT_S = 30.0
BATCH = 200
"""Commands that one `scontrol` is given at once."""


class SlurmCommandError(Exception):
    """A program of Slurm's failed, was not there, or did not answer in time; the message says which and how."""


class Runner:
    """Runs commands. `calls` counts processes by program and verb."""

    def __init__(self, timeout_s: float = TIMEOUT_S, environment: Mapping[str, str] | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self._timeout_s = timeout_s
        self._environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", **(environment or {})}

    def read(self, command: Command) -> str:
        """What a command prints.

        Raises:
            SlurmCommandError: it failed.
        """
        return self._run(command)

    def write(self, commands: Sequence[Command]) -> list[str]:
        """Run commands that change something, in order; returns what went wrong with each, "" = nothing.

        Those of one `scontrol` go to it together. If it says that any failed, each is told once more by itself: they
        all say how something is to be, so a second time changes nothing.
        """
        wrong: list[str] = []
        for program, group in groupby(commands, key=lambda command: command[0]):
            told = list(group)
            wrong += self._batches(told) if program == "scontrol" else [self._try(each) for each in told]
        return wrong

    def _batches(self, commands: list[Command]) -> list[str]:
        wrong: list[str] = []
        for first in range(0, len(commands), BATCH):
            batch = commands[first : first + BATCH]
            together = len(batch) > 1 and not self._try(("scontrol",), as_lines(batch))
            wrong += [""] * len(batch) if together else [self._try(command) for command in batch]
        return wrong

    def _try(self, command: Command, lines: str | None = None) -> str:
        try:
            self._run(command, lines)
        except SlurmCommandError as error:
            return str(error)
        return ""

    def _run(self, command: Command, lines: str | None = None) -> str:
        self.calls[" ".join(word for word in command[:2] if not word.startswith("-"))] += 1
        try:
            done = subprocess.run(
                list(command),
                input=lines or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                env=self._environment,
                check=False,
            )
        except FileNotFoundError as error:
            raise SlurmCommandError(
                f"{command[0]} is not installed here: mirab needs Slurm's client programs"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmCommandError(f"{command[0]} did not answer within {self._timeout_s:g} s") from error
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise SlurmCommandError(f"{' '.join(command[:3])}: {said}")
        return done.stdout


class ReadOnlyRunner(Runner):
    """For observing: refuses every command that is not a mere look, before it is run."""

    def write(self, commands: Sequence[Command]) -> list[str]:
        return ["observing only: nothing is changed" for _ in commands]

    def _run(self, command: Command, lines: str | None = None) -> str:
        if writes(command) or lines:
            raise SlurmCommandError(f"{' '.join(command[:2])} would change something, and mirab only observes")
        return super()._run(command)
