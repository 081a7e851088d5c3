"""What Slurm lists, as JSON where its version and plugins give it, as text where they do not."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from mirab.backends.slurm import commands, listings, textlistings
from mirab.backends.slurm.listings import ListingError
from mirab.backends.slurm.records import SlurmJob, SlurmNode
from mirab.backends.slurm.runner import Runner, SlurmCommandError

NO_JSON = re.compile(r"json|serializer|data_parser|plugin|unrecognized option|invalid option|unknown option", re.I)
"""In what a program says that cannot give JSON; that the controller is down says none of it."""

log = logging.getLogger("mirab.slurm")
_Found = TypeVar("_Found")


class Lister:
    """Reads listings. Once text had to do, it is text that is asked for. `as_text` says so from the beginning."""

    def __init__(self, runner: Runner, as_text: bool = False) -> None:
        self._runner = runner
        self.as_text = as_text

    def jobs(self, only: Sequence[str] = ()) -> list[SlurmJob]:
        """All jobs that the controller knows, or those of these ids.

        Raises:
            SlurmCommandError: Slurm does not answer; ListingError: its answer is no listing.
        """
        command = commands.list_some(only) if only else commands.LIST_JOBS
        return self._either(lambda: listings.jobs(self._runner.read(command)), lambda: self._jobs_of_text(only))

    def nodes(self) -> list[SlurmNode]:
        """All nodes; raises as `jobs` does."""
        return self._either(
            lambda: listings.nodes(self._runner.read(commands.LIST_NODES)),
            lambda: textlistings.nodes_of_text(self._runner.read(textlistings.LIST_NODES_TEXT)),
        )

    def _jobs_of_text(self, only: Sequence[str]) -> list[SlurmJob]:
        command = textlistings.list_some_text(only) if only else textlistings.LIST_JOBS_TEXT
        excluded = self._runner.read(textlistings.LIST_EXCLUDED)
        return textlistings.jobs_of_text(self._runner.read(command), excluded)

    def _either(self, as_json: Callable[[], _Found], as_text: Callable[[], _Found]) -> _Found:
        if self.as_text:
            return as_text()
        try:
            return as_json()
        except (SlurmCommandError, ListingError) as error:
            if isinstance(error, SlurmCommandError) and not NO_JSON.search(str(error)):
                raise
            found = as_text()
            self.as_text = True
            log.warning("%s; this Slurm's text is read instead", error)
            return found
