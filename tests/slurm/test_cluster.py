"""The Slurm that the other tests stand on is a real one."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.slurm.cluster import PATIENCE_S, SlurmCluster, missing

pytestmark = pytest.mark.slow


def test_a_job_gets_its_gpus(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("-N1", "--gpus-per-node=4", script="echo gpus=$CUDA_VISIBLE_DEVICES")
    slurm.wait_for(lambda: slurm.states().get(job) == "COMPLETED", "the job to complete")
    assert (slurm.folder / "out" / f"{job}.out").read_text().strip() == "gpus=0,1,2,3"


def test_a_full_cluster_makes_jobs_wait(slurm: SlurmCluster) -> None:
    jobs = [slurm.sbatch("-N1", "--gpus-per-node=8") for _ in range(4)]
    slurm.wait_for(lambda: [slurm.states()[job] for job in jobs].count("RUNNING") == 3, "three nodes to be busy")
    assert [slurm.states()[job] for job in jobs].count("PENDING") == 1
    slurm.run("scancel", *jobs)
    slurm.wait_for(lambda: all(slurm.states()[job] == "CANCELLED" for job in jobs), "the jobs to be gone")


def test_accounting_is_real(slurm_with_accounts: SlurmCluster) -> None:
    slurm = slurm_with_accounts
    slurm.run("sacctmgr", "--immediate", "add", "account", "vision", "Fairshare=60")
    slurm.run("sacctmgr", "--immediate", "add", "user", "root", "account=vision")
    job = slurm.sbatch("-N1", "--gpus-per-node=2", "-A", "vision", script="true")

    def booked() -> bool:
        rows = slurm.run("sacct", "-j", job, "-X", "-n", "-P", "-o", "state,account,alloctres").strip()
        return rows.startswith("COMPLETED|vision|") and "gres/gpu=2" in rows

    slurm.wait_for(booked, "sacct to show the job")


def test_nothing_is_left_running() -> None:
    if missing():
        pytest.skip(f"no real Slurm here: {missing()}")
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder:
        with SlurmCluster(Path(folder), nodes=1) as slurm:
            pids = [daemon.pid for daemon in slurm.daemons.values()]
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_daemons_leave_behind_is_stopped_with_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / "1.out", "wb") as errors:
        step = subprocess.Popen(["sleep", "600"], stderr=errors)
    SlurmCluster(tmp_path).stop()
    assert step.wait(PATIENCE_S) == -signal.SIGKILL
