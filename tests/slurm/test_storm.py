"""Two minutes of a storm on a real Slurm; `make soak` runs ten."""

from __future__ import annotations

import pytest

from tests.slurm.programs import Programs

pytestmark = pytest.mark.slow


def test_the_ledger_is_what_the_accounting_says(programs: Programs) -> None:
    code, said = programs.come_of("storm")
    assert code == 0 and "no faults" in said, said
