"""A store that is away for a moment costs no run its attempt; one that stays away is told."""

from __future__ import annotations

from typing import cast

import pytest

from mirab.model.records import JobSpec
from mirab.model.units import WorkloadId
from mirab.service.specs import patient
from mirab.store import Store
from mirab.store.errors import UnreachableStoreError


class Away:
    """Does not answer so many times; knows no job."""

    def __init__(self, times: int) -> None:
        self.times = times

    def spec(self, workload_id: str) -> JobSpec | None:
        if self.times:
            self.times -= 1
            raise UnreachableStoreError("the database does not answer")
        return None


def test_it_asks_again_until_the_store_answers() -> None:
    store = Away(3)
    assert patient(cast(Store, store))(WorkloadId("1")) is None
    assert store.times == 0


def test_it_does_not_ask_for_ever() -> None:
    with pytest.raises(UnreachableStoreError, match="does not answer"):
        patient(cast(Store, Away(1_000_000)), patience=0.3)(WorkloadId("1"))
