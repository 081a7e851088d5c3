"""`mirab slurm` on a real Slurm: onto it, and off it again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mirab.backends.slurm.governed import Governed, read_governed
from mirab.cli.slurm import command
from mirab.logs.clusterfile import read_cluster_file
from mirab.service.slurm import log_command
from tests.slurm.cluster import SlurmCluster, SlurmError
from tests.slurm.house import USERS, House, house, sbatch

pytestmark = pytest.mark.slow

WHOLE_NODE = ("-N1", "--gpus-per-node=8", "--comment=mirab:min=1h")


def mirab(made: House, *words: str, code: int = 0) -> Result:
    place = [] if words[0] == "advice" else ["--slurm-config", str(made.folder / "slurm.yaml")]
    done = CliRunner().invoke(command, [*words, *place, "--state-dir", str(made.folder)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def answer(made: House, *words: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(mirab(made, *words, "--json").stdout)
    return told


def test_release_all_gives_everything_back(slurm: SlurmCluster, tmp_path: Path) -> None:
    with house(slurm, tmp_path / "mirab") as made:
        assert answer(made, "govern", "red", "blue")["governed"] == ["red", "blue"]
        assert "red" in Governed(slurm.governed) and "green" not in Governed(slurm.governed)
        made.start()
        running = [sbatch(slurm, *WHOLE_NODE, "-A", "red") for _ in range(3)]
        made.wait(lambda: [made.state(job) for job in running] == ["RUNNING"] * 3, "red to run everywhere")
        array = sbatch(slurm, *WHOLE_NODE, "-A", "red", "--array=0-2")
        kept = sbatch(slurm, *WHOLE_NODE, "-A", "blue", "--hold")
        made.wait(lambda: made.state(f"{array}_2") == "PENDING", "the array to wait")
        told = json.loads(mirab(made, "status", "--json").output)
        assert (told["governed"], told["running"], told["held_by_mirab"], told["held_by_users"]) == (
            ["red", "blue"], 3, 3, 1,
        )  # fmt: skip
        assert answer(made, "release-all") == {"governed": [], "given_back": 3, "still_held": 0}
        assert read_governed(slurm.governed) == ()
        told = json.loads(mirab(made, "status", "--json").output)
        assert (told["held_by_mirab"], told["held_by_users"], told["running"]) == (0, 1, 3)
        slurm.run("scancel", running[0])
        slurm.wait_for(lambda: slurm.states().get(f"{array}_0") == "RUNNING", "Slurm to start what it was given")
        assert slurm.states()[kept] == "PENDING"
        free = sbatch(slurm, *WHOLE_NODE, "-A", "red")
        made.wait(lambda: "left to Slurm" in made.held(free), "mirab to leave it alone")
        assert "Held" not in slurm.run("squeue", "-h", "-j", free, "--format=%r")


def test_an_account_is_given_back(slurm: SlurmCluster, tmp_path: Path) -> None:
    with house(slurm, tmp_path / "mirab") as made:
        mirab(made, "govern", "red", "blue")
        jobs = [sbatch(slurm, *WHOLE_NODE, "-A", account) for account in ("red", "blue")]
        assert json.loads(mirab(made, "status", "--json").output)["held_by_mirab"] == 2
        assert "not governed: green" in mirab(made, "ungovern", "green", code=2).output
        assert answer(made, "ungovern", "red") == {"governed": ["blue"], "given_back": 1, "still_held": 0}
        slurm.wait_for(lambda: slurm.states()[jobs[0]] == "RUNNING", "Slurm to start red")
        assert slurm.states()[jobs[1]] == "PENDING"


def test_users_hold_and_release_what_mirab_holds(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With the plugin, `scontrol hold` counts although mirab holds the job already."""
    with house(slurm, tmp_path / "mirab") as made:
        made.govern("red")
        made.start()
        jobs = [sbatch(slurm, *WHOLE_NODE, "-A", "red") for _ in range(4)]
        made.wait(lambda: [made.state(job) for job in jobs].count("RUNNING") == 3, "three to run")
        waiting = next(job for job in jobs if made.state(job) == "PENDING")
        slurm.run("scontrol", "hold", waiting, user=USERS[0])
        made.wait(lambda: "its user" in made.held(waiting), "the hold to be seen")
        slurm.run("scancel", next(job for job in jobs if made.state(job) == "RUNNING"))
        made.wait(lambda: [made.state(job) for job in jobs].count("CANCELLED") == 1, "a node to be free")
        assert slurm.states()[waiting] == "PENDING"
        slurm.run("scontrol", "release", waiting, user=USERS[0])
        made.wait(lambda: made.state(waiting) == "RUNNING", "it to run after its user let it go")


def test_lines_of_the_script_become_the_contract(slurm: SlurmCluster, tmp_path: Path) -> None:
    with house(slurm, tmp_path / "mirab") as made:
        made.govern("red")
        made.start()
        job = sbatch(
            slurm, "-A", "red", "-N1", "--gpus-per-node=8", script="#MIRAB --min-runtime=3h --grace 1m\nsleep 9"
        )
        made.wait(lambda: made.row(job) is not None, "it to be seen")
        row = made.row(job)
        assert row is not None and row.min_runtime == 3 * 3_600_000


def test_import_makes_budgets_and_a_log(slurm_with_accounts: SlurmCluster, tmp_path: Path) -> None:
    slurm = slurm_with_accounts
    add = ("sacctmgr", "--immediate", "add")
    slurm.run(*add, "account", "research", "Fairshare=60", check=False)
    slurm.run(*add, "account", "vlm", "parent=research", "Fairshare=3", check=False)
    slurm.run(*add, "account", "speech", "parent=research", "Fairshare=1", check=False)
    slurm.run(*add, "account", "product", "Fairshare=20", check=False)
    slurm.run(*add, "user", USERS[0], "account=vlm", check=False)
    slurm.wait_for(lambda: _submitted(slurm), "the controller to hear of the account")
    slurm.wait_for(lambda: "|COMPLETED|" in slurm.run(*log_command("now-30days")), "sacct to show it")
    made = House(slurm, tmp_path / "mirab")
    out = tmp_path / "import"
    done = mirab(made, "import", "--out", str(out))
    told = answer(made, "import", "--out", str(out))
    assert told["folder"] == str(out) and told["accounts"] >= 4 and told["attempts"] >= 1
    assert answer(made, "lua")["text"] == mirab(made, "lua").stdout
    file = read_cluster_file(out / "cluster.yaml")
    assert file.budgets is not None and file.cluster is not None
    shares = {str(path): round(share / 1e7, 2) for path, _, share in file.budgets.walk()}
    assert shares["research/vlm"] == pytest.approx(3 * shares["research/speech"], abs=0.1)
    assert shares["research"] == pytest.approx(3 * shares["product"], abs=0.1)
    assert [(pool.name, len(pool.nodes), pool.gpus_per_node) for pool in file.cluster.pools] == [("h100", 3, 8)]
    assert read_cluster_file(out / "budgets.yaml").cluster is None
    assert "mirab compare" in done.output
    from mirab.cli.main import run

    assert run(["sim", str(out / "jobs.txt"), "--cluster", str(out / "cluster.yaml")]) == 0


def test_a_state_of_tomorrow_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no version that mirab knows has said: counted, named, and nothing that anything is done about."""
    listing = json.loads((Path(__file__).parent / "recorded" / "squeue-22.05.json").read_text())
    listing["jobs"][0]["job_state"] = "HIBERNATING"
    (tmp_path / "listing").write_text(json.dumps(listing))
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\nexec cat {tmp_path}/listing\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = CliRunner().invoke(command, ["status", "--state-dir", str(tmp_path)])
    assert done.exit_code == 0 and "States that this version does not understand: HIBERNATING" in done.output


def _submitted(slurm: SlurmCluster) -> bool:
    try:
        return bool(sbatch(slurm, "-N1", "--gpus-per-node=2", "-A", "vlm", script="true"))
    except SlurmError:
        return False
