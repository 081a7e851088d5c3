"""Where the instructions of a replay go, counted by valgrind: the same in each run, whatever else the machine does.

    python -m bench.compiled instructions [FOLDER] [--most 30] [--keep FILE]

FOLDER: a log with its cluster and node events beside it; default: 10,000 workloads at twice the capacity, made once.
Needs valgrind (on Debian: apt-get install valgrind) and takes sixty times as long as the replay. Of functions, those of
the compiled core are shown, with all that they call; what is not compiled cannot be told apart.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from bench.process import log_arguments, synthetic_log

_TOTAL = re.compile(r"^([\d,]+) .*PROGRAM TOTALS", re.MULTILINE)
_FUNCTION = re.compile(r"^ *([\d,]+) .*:CPyDef_(\w+) \[", re.MULTILINE)


def count(arguments: list[str], profile: Path) -> str:
    """Replay under valgrind; what `callgrind_annotate` makes of it.

    Raises:
        RuntimeError: the replay failed; the message has the end of what it said.
    """
    replay = [sys.executable, "-m", "mirab", "sim", *arguments, "--quiet"]
    counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *replay]
    done = subprocess.run(
        counted, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the replay failed:\n{done.stderr[-2000:]}")
    annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(profile)]
    return subprocess.run(annotate, capture_output=True, text=True, check=True).stdout


def read(annotated: str) -> tuple[int, dict[str, int]]:
    """Instructions of the whole process, and of each compiled function with what it calls, the dearest first."""
    total = _TOTAL.search(annotated)
    if total is None:
        raise ValueError("callgrind_annotate gave no total")
    found: dict[str, int] = {}
    for number, name in _FUNCTION.findall(annotated):
        found.setdefault(name.replace("___", "."), _number(number))
    return _number(total[1]), found


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--most", type=int, default=30, help="functions to show")
    parser.add_argument("--keep", type=Path, help="keep valgrind's file there, for callgrind_annotate or kcachegrind")
    options = parser.parse_args(arguments)
    if which("valgrind") is None:
        parser.error("valgrind is not installed: on Debian, apt-get install valgrind")
    load2 = ("load2-10000", "--workloads", "10000", "--load", "2")
    log = synthetic_log(*load2) if options.folder is None else log_arguments(options.folder)
    with TemporaryDirectory() as scratch:
        total, functions = read(count(log, options.keep or Path(scratch) / "callgrind.out"))
    print(f"{total / 1e6:12,.0f} million instructions: start, log, replay, measures and report")
    for name, number in list(functions.items())[: options.most]:
        print(f"{number / 1e6:12,.0f} {number / total:6.1%}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
