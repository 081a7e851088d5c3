"""Same input, same facts and plans, in another process and under another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, sys
from mirab.model.policy import POLICIES
from mirab.sim.engine import replay
from mirab.sim.synthetic import SynthOptions, synthesize

class Digest:
    def __init__(self):
        self.sum = hashlib.sha256()
    def append(self, facts, plan):
        self.sum.update(repr((facts, plan)).encode())

digest = Digest()
replay(synthesize(SynthOptions(nodes=8, workloads=300, users=40, load=2.0)), POLICIES[sys.argv[1]], journals=[digest])
print(digest.sum.hexdigest())
"""


@pytest.mark.parametrize("policy", ["budget", "priority"])
def test_the_hash_seed_changes_nothing(policy: str) -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, policy],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    ]
    assert len(digests[0].strip()) == 64
    assert len(set(digests)) == 1
