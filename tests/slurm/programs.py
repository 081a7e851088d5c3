"""What takes minutes, mostly asleep: programs of their own, each on a Slurm of its own, beside all the other tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "scenarios" / "lines").glob("ways-*.txt"))
SEED = 4
WANTED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "test_storm.py": {"storm": ("tests.slurm.storm", "--seconds", "120", "--seed", str(SEED))},
    "test_threeways.py": {file.stem: ("tests.slurm.threeways", str(file)) for file in FILES},
}
"""By the file of tests that asks what came of them: modules and their arguments."""
PATIENCE_S = 900.0


class Programs:
    """Started together. What they print goes to files in the folder."""

    def __init__(self, folder: Path, wanted: Mapping[str, Sequence[str]]) -> None:
        self._folder = folder
        self._running = {name: self._start(name, words) for name, words in wanted.items()}

    def _start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.txt").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def come_of(self, name: str) -> tuple[int, str]:
        """Exit code of one, once it has ended, and what it said."""
        code = self._running[name].wait(PATIENCE_S)
        return code, (self._folder / f"{name}.txt").read_text(errors="replace")

    def stop(self) -> None:
        """Those that go on end their daemons, too."""
        going = [program for program in self._running.values() if program.poll() is None]
        for program in going:
            program.terminate()
        for program in going:
            program.wait(120)
