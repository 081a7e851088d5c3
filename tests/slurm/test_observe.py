"""Observing a real Slurm: everything is seen, nothing is changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mirab.model.units import AccountPath
from mirab.service.advice import AGREED, LATER, compared
from mirab.service.runtime import Service
from tests.slurm.cluster import SlurmCluster, program
from tests.slurm.house import house, sbatch

pytestmark = pytest.mark.slow

READS = "squeue sinfo sacct sdiag sprio sshare"
WRAPPER = """#!/bin/sh
case "{name}" in
  squeue|sinfo|sacct|sdiag|sprio|sshare) ;;
  scontrol) for word in "$@"; do
              case "$word" in -*) ;; show|ping|version) break ;; *) echo "{name} $*" >>{log}; exit 70 ;; esac
            done
            [ $# -gt 0 ] || {{ echo "{name} on standard input" >>{log}; exit 70; }} ;;
  *) echo "{name} $*" >>{log}; exit 70 ;;
esac
echo "{name} $*" >>{log}.looks
exec {real} "$@"
"""


def guarded(folder: Path) -> tuple[Path, Path]:
    """A folder for PATH in which every program of Slurm's that could change something fails and is noted down."""
    folder.mkdir()
    log = folder / "written"
    for name in (*READS.split(), "scontrol", "scancel", "sbatch", "srun", "salloc", "sacctmgr", "strigger", "scrontab"):
        real = program(name)
        if real is not None:
            path = folder / name
            path.write_text(WRAPPER.format(name=name, real=real, log=log))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder, log


def told(service: Service, job: str) -> str:
    found = service.views.job(job)
    return "" if found is None else found.why


def test_the_guard_guards(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder, log = guarded(tmp_path / "guard")
    assert os.system(f"SLURM_CONF={slurm.folder}/slurm.conf {folder}/scontrol hold 1") != 0
    assert os.system(f"echo 'hold 1' | SLURM_CONF={slurm.folder}/slurm.conf {folder}/scontrol") != 0
    assert os.system(f"SLURM_CONF={slurm.folder}/slurm.conf {folder}/scontrol show config >/dev/null") == 0
    assert log.read_text().splitlines() == ["scontrol hold 1", "scontrol on standard input"]


def test_it_follows_everything_and_changes_nothing(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = guarded(tmp_path / "guard")
    whole = ("-N1", "--gpus-per-node=8", "--comment=mirab:min=2s,grace=2s")
    early = sbatch(slurm, *whole, "-A", "red")
    slurm.wait_for(lambda: slurm.states()[early] == "RUNNING", "a job that runs before mirab comes")
    with house(slurm, tmp_path / "mirab", observe=True) as observer:
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
            service = observer.start()
        others = [sbatch(slurm, *whole, "-A", "red") for _ in range(4)]
        quick = sbatch(slurm, "-N1", "--gpus-per-node=0", "-A", "green", script="true")
        gang = sbatch(slurm, "-N2", "--gpus-per-node=8", "-A", "blue", "--comment=mirab:min=10s")
        observer.wait(lambda: observer.state(gang) == "PENDING", "the gang to be seen waiting")
        running = [early, *others[:2]]
        observer.wait(lambda: [observer.state(job) for job in running] == ["RUNNING"] * 3, "what runs")
        observer.wait(lambda: observer.state(quick) == "COMPLETED", "a job that came and went")
        waiting = [job for job in (*others, gang) if observer.state(job) == "PENDING"]
        observer.wait(lambda: all(told(service, job) for job in waiting), "the reason why each waits")
        when = service.views.answers.when(gang, 1)
        assert when is not None and when.sentence, when
        shares = service.views.shares(None)
        assert shares is not None
        shown = {each.path: each for each in shares.accounts}
        assert shown["red"].running_gpus == 8 * 3 and shown["blue"].waiting_gpus == 8 * 2
        assert all(shown[name].ratio is not None and shown[name].debt_h is not None for name in ("red", "blue")), shown
        observer.wait(
            lambda: compared((facts, plan) for _, facts, plan in service.store.records())[1], "advice to stop some"
        )
        slurm.run("scancel", early, others[0])
        observer.wait(lambda: observer.state(early) == "CANCELLED", "the cancellation")
        observer.wait(
            lambda: slurm.states()[others[2]] == "RUNNING" or slurm.states()[gang] == "RUNNING", "Slurm's own"
        )
        slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
        observer.wait(lambda: service.live.state.troubled, "the sick node to be seen")
        starts, _ = compared((facts, plan) for _, facts, plan in service.store.records())
        service.live.state.check()
        assert {each.kind for each in starts} & {AGREED, LATER, "unadvised"}
        now = service.live.now()
        with service.live.reading() as state:
            red = state.accounts[AccountPath("red")].usage.between(state.window.at(now)[0], now)
        assert red > 8 * 2_000, "two runs or more, of eight GPUs each, are charged to their account"
        assert not service.live.intents.starts
    assert not log.exists(), log.read_text()
    looks = {line.split()[0] for line in log.with_suffix(".looks").read_text().splitlines()}
    assert looks >= {"squeue", "sinfo"}, "mirab's calls went past the guard"


def test_a_slurm_without_json_is_read_as_text(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A wrapper that knows no `--json` stands before the real programs; the rest is as ever."""
    guard = tmp_path / "bin"
    guard.mkdir()
    for name in ("squeue", "sinfo"):
        words = f'case " $* " in *" --json "*) echo "{name}: unrecognized option --json" >&2; exit 1;; esac'
        (guard / name).write_text(f'#!/bin/sh\n{words}\nexec {program(name)} "$@"\n')
        (guard / name).chmod(0o755)
    with house(slurm, tmp_path / "mirab") as made:
        made.govern("red")
        made.path = f"{guard}:{slurm.environment['PATH']}"
        made.launch()
        slurm.wait_for((tmp_path / "mirab" / "m.sock").exists, "the service")
        jobs = [sbatch(slurm, "-N1", "--gpus-per-node=8", "-A", "red", script="sleep 1") for _ in range(4)]

        def done() -> bool:
            rows = {str(row.id): row.state.value for row in made.rows()}
            return [rows.get(job) for job in jobs] == ["COMPLETED"] * 4

        slurm.wait_for(done, "the jobs to run by what the text says")
        assert "text is read instead" in (tmp_path / "mirab" / "serve.log").read_text()
