"""The command as a person uses it: typed words in; exit code, data and talk out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mirab.cli.main import run

HEADER = "id,submit_s,account,user,label,nodes,gpus_per_node,run_s,min_runtime_s,time_limit_s"
ROWS = (
    "a,0,red,ann,train,2,8,7200,3600,10800",
    "b,60,blue,bob,debug,1,1,600,600,3600",
    "c,120,blue,bob,train,1,8,3600,1800,7200",
    "d,180,red,ann,debug,1,2,300,300,3600",
    "e,240,blue,bea,train,2,8,3600,1800,7200",
)
CLUSTER = """\
cluster:
  name: small
  pools:
    gpus: {nodes: "n[0-1]", gpus_per_node: 8}
budgets:
  red: {share: 50%}
  blue: {share: 50%}
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What the command answered."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line of an error."""
        assert self.out == ""
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("mirab: ")
        return lines[0]


Mirab = Callable[..., Said]


@pytest.fixture
def mirab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mirab:
    """`mirab(*words)`: the command in this process, its answers caught."""
    monkeypatch.delenv("MIRAB_TRACEBACK", raising=False)

    def call(*words: str | Path) -> Said:
        capsys.readouterr()
        code = run([str(word) for word in words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def write_log(path: Path, rows: Sequence[str] = ROWS) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of five workloads."""
    return write_log(tmp_path / "jobs.csv")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two nodes, two teams."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    return path


@pytest.fixture
def report(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> Path:
    """The JSON report of a replay of the log."""
    path = tmp_path / "report.json"
    assert mirab("sim", log, "--cluster", cluster, "--json", path).code == 0
    return path
