"""What a run is to execute, for the backend that starts it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from mirab.model.records import JobSpec
from mirab.model.units import WorkloadId
from mirab.store import Store
from mirab.store.errors import UnreachableStoreError

PATIENCE = 10.0
"""Seconds for which a store that does not answer is asked again: one that restarts must not cost a run its attempt."""
PAUSE = 0.2


def patient(store: Store, patience: float = PATIENCE) -> Callable[[WorkloadId], JobSpec | None]:
    """`Store.spec`, which waits for a store that is away for a moment. Not for threads that hold the state.

    Raises (when called):
        UnreachableStoreError: it did not answer for so many seconds.
    """

    def spec_of(workload_id: WorkloadId) -> JobSpec | None:
        until = monotonic() + patience
        while True:
            try:
                return store.spec(workload_id)
            except UnreachableStoreError:
                if monotonic() >= until:
                    raise
                sleep(PAUSE)

    return spec_of
