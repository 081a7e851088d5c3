"""One real Slurm for all tests of a worker that ask for it; what takes minutes goes on beside them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, missing
from tests.slurm.programs import WANTED, Programs


def need(accounting: bool) -> None:
    absent = missing(accounting)
    if absent:
        pytest.skip(f"no real Slurm here: {absent} (run `.ci/daemons` as root)")


def started(accounting: bool) -> Iterator[SlurmCluster]:
    need(accounting)
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


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Those that the tests of this session ask for, all at once."""
    need(accounting=True)
    files = dict.fromkeys(item.path.name for item in request.session.items if item.path.parent == Path(__file__).parent)
    wanted = {name: words for file in files for name, words in WANTED.get(file, {}).items()}
    made = Programs(tmp_path_factory.mktemp("programs"), wanted)
    yield made
    made.stop()


@pytest.fixture(scope="session", autouse=True)
def _they_begin_first(request: pytest.FixtureRequest) -> None:
    """With the first test of this folder, so that they are done when their own tests come."""
    asked = any("programs" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if asked and not missing(accounting=True):
        request.getfixturevalue("programs")
