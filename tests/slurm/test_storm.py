"""Two minutes of a storm on a real Slurm; `make soak` runs ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.storm import storm

pytestmark = pytest.mark.slow


def test_the_ledger_is_what_the_accounting_says(slurm_with_accounts: SlurmCluster, tmp_path: Path) -> None:
    faults = storm(slurm_with_accounts, tmp_path / "mirab", seed=4, seconds=120)
    assert not faults, "\n".join(faults)
