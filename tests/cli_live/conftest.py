"""A stand-in for the service, and the commands pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import mirab
from tests.cli_live.double import Double, serving

__all__ = ["double", "mirab"]


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server, token or account of whoever runs the tests."""
    for name in ("MIRAB_TOKEN", "MIRAB_SERVER", "MIRAB_ACCOUNT", "SBATCH_ACCOUNT", "MIRAB_RUN_DIR", "MIRAB_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("MIRAB_STATE_DIR_ROOT", str(tmp_path / "state"))


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    """The stand-in on a free port, named by MIRAB_SERVER."""
    with serving(Double()) as found:
        monkeypatch.setenv("MIRAB_SERVER", found.url)
        yield found
