"""How many examples a property is tried on: all of them in `make test`, the first third in `make check`."""

from __future__ import annotations

import os

QUICK = "MIRAB_TEST_QUICK"
"""Set in the environment by `make check`."""
FEWEST = 5


def examples(number: int) -> int:
    return max(FEWEST, number // 3) if os.environ.get(QUICK) else number
