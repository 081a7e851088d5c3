"""The commands as a person uses them; see `tests/cli/conftest.py`."""

from __future__ import annotations

from tests.cli.conftest import Mirab, Said, cluster, mirab, report

__all__ = ["Mirab", "Said", "cluster", "mirab", "report"]
