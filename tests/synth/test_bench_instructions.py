"""What is read off valgrind's table of a replay."""

from __future__ import annotations

import pytest
from bench.instructions import read

TABLE = """\
Profile data file 'callgrind.out' (creator: callgrind-3.19.0)
1,200,000,000 (100.0%)  PROGRAM TOTALS
1,190,000,000 (99.17%)  Python/ceval.c:_PyEval_EvalFrameDefault [libpython3.11.so]
  900,000,000 (75.00%)  build/__native_7.c:CPyDef_decide___decide [7__mypyc.so]
  300,000,000 (25.00%)  build/__native_7.c:CPyDef_standing___Standings___ratio'2 [7__mypyc.so]
  250,000,000 (20.83%)  build/__native_7.c:CPyDef_standing___Standings___ratio [7__mypyc.so]
"""


def test_the_total_and_the_compiled_functions_are_read() -> None:
    assert read(TABLE) == (1_200_000_000, {"decide.decide": 900_000_000, "standing.Standings.ratio": 250_000_000})


def test_a_table_without_a_total_is_refused() -> None:
    with pytest.raises(ValueError, match="no total"):
        read("nothing")
