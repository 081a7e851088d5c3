"""The same worlds decide the same bytes whatever order the interpreter hashes in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import hashlib
from random import Random
from tests.driven import driven
from tests.worlds import draw_world

digest = hashlib.sha256()
for seed in range(20):
    for base in ("budget", "priority", "fair-tree"):
        world = draw_world(Random(seed), base=base)
        digest.update(repr(driven(world.trace, world.policy).entries).encode())
print(digest.hexdigest())
"""
ROOT = Path(__file__).parents[2]


def _digest(hash_seed: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_same_bytes_under_any_hash_seed() -> None:
    digests = {_digest(seed) for seed in ("0", "1", "4242")}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
