"""The commands as a person uses them; see `tests/cli/conftest.py`."""

from __future__ import annotations

from tests.cli.conftest import Mirab, Said, mirab

__all__ = ["Mirab", "Said", "mirab"]
