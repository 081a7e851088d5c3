"""One real Slurm for all tests of a worker that ask for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, missing


def started(accounting: bool) -> Iterator[SlurmCluster]:
    absent = missing(accounting)
    if absent:
        pytest.skip(f"no real Slurm here: {absent} (run `.ci/daemons` as root)")
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    try:
        with SlurmCluster(folder, nodes=3, accounting=accounting) as slurm:
            yield slurm
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    yield from started(accounting=False)


@pytest.fixture(scope="session")
def slurm_with_accounts() -> Iterator[SlurmCluster]:
    yield from started(accounting=True)
