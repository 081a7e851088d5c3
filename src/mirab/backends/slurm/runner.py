"""The one place that runs Slurm's programs: without a shell, with a time-out, counted."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence

from mirab.backends.slurm.commands import Command, writes

TIMEOUT_S = 30.0


class SlurmCommandError(Exception):
    """A program of Slurm's failed, was not there, or did not answer in time; the message says which and how."""


class Runner:
    """Runs commands. `calls` counts them by program and verb."""

    def __init__(self, timeout_s: float = TIMEOUT_S, environment: dict[str, str] | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self._timeout_s = timeout_s
        self._environment = environment

    def read(self, command: Command) -> str:
        """What a command prints.

        Raises:
            SlurmCommandError: it failed.
        """
        return self._run(command)

    def write(self, commands: Sequence[Command]) -> list[str]:
        """Run commands that change something; returns what went wrong with each, "" = nothing."""
        return [self._try(command) for command in commands]

    def _try(self, command: Command) -> str:
        try:
            self._run(command)
        except SlurmCommandError as error:
            return str(error)
        return ""

    def _run(self, command: Command) -> str:
        self.calls[" ".join(word for word in command[:2] if not word.startswith("-"))] += 1
        try:
            done = subprocess.run(
                list(command),
                stdin=subprocess.DEVNULL,
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

    def _run(self, command: Command) -> str:
        if writes(command):
            raise SlurmCommandError(f"{' '.join(command[:2])} would change something, and mirab only observes")
        return super()._run(command)
