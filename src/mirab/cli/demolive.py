"""The live part of `mirab demo`: a service on this machine with pretended GPUs, and real little jobs of three teams."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mirab.cli.client import Client
from mirab.cli.exits import Exit, UnusableError
from mirab.cli.jobs import Job, has_ended, pages
from mirab.cli.localservice import LocalService, local_service
from mirab.cli.output import emit, say

GPUS = 8
PATIENCE_S = 120.0
GANG_CAME = "gang-came"
"""A file in the demonstration's folder. On a slow machine the sweep would else be over before the gang comes."""
BUDGETS = """\
budgets:
  language: {share: 40%, owner: Ada}
  vision: {share: 40%, owner: Ben}
  robotics: {share: 20%, owner: Cleo}
"""
SWEEP = f"""\
#!/bin/sh
#SBATCH -J sweep -A vision --gpus-per-node=2 -a 0-3 -o sweep-%a.out
#MIRAB --min-runtime 0 --signal TERM@10 --checkpoint 1s

step=$(cat "$MIRAB_STATE_DIR/step" 2>/dev/null || echo 0)
echo "attempt $MIRAB_ATTEMPT on GPUs $CUDA_VISIBLE_DEVICES: begins at step $step of 20"
save() {{
  echo $step > "$MIRAB_STATE_DIR/step"
  touch "$MIRAB_RUN_DIR/checkpoint"  # the work is safe, as `mirab checkpoint` says
  echo "told to stop: step $step is saved"
  exit 143
}}
trap save TERM
while [ $step -lt 20 ]; do
  sleep 0.2
  if [ $step -lt 15 ] || [ -e {GANG_CAME} ]; then step=$((step + 1)); fi
done
echo "done"
"""


def show_live() -> None:
    """Start it, show what happens, and take everything away again, also after Ctrl-C.

    Raises:
        UnusableError: the service does not start, or something did not happen in its time.
    """
    with tempfile.TemporaryDirectory(prefix="mirab-demo-") as name:
        folder = Path(name)
        (folder / "budgets.yaml").write_text(BUDGETS, encoding="utf-8")
        (folder / "sweep.sh").write_text(SWEEP, encoding="utf-8")
        emit(f"\nLive: a service with {GPUS} pretended GPUs, three teams, and real processes.\n")
        flags = ("--pretend-gpus", str(GPUS), "--cluster", str(folder / "budgets.yaml"), "--log-format", "json")
        with local_service(folder / "state", *flags) as service, _at_home(folder, service), service.client() as client:
            _play(client)
    say("The service is stopped, its processes are gone, its folder is removed.")


@contextmanager
def _at_home(folder: Path, service: LocalService) -> Iterator[None]:
    """Commands run in the folder, and find this service."""
    before, named = os.getcwd(), os.environ.get("MIRAB_SERVER")
    os.chdir(folder)
    os.environ["MIRAB_SERVER"] = str(service.address)
    try:
        yield
    finally:
        os.chdir(before)
        del os.environ["MIRAB_SERVER"]
        if named is not None:
            os.environ["MIRAB_SERVER"] = named


def _play(client: Client) -> None:
    """Robotics has a job, vision fills the rest with work that nobody is charged for, then language needs half."""
    _do("mirab submit -A robotics -G 1 -J eval --wrap 'sleep 8'")
    _do("mirab submit sweep.sh")
    _until(client, "the sweep runs", lambda jobs: _running(jobs, "sweep") >= 3)
    time.sleep(1.0)
    _do("mirab ls")
    emit("The GPUs are full. Language comes with a gang that is charged, so the sweep gives way at once:\n")
    _do("mirab submit -A language -G 4 -J train --min-runtime 1m --wrap 'sleep 3'")
    _until(client, "the gang runs", lambda jobs: _running(jobs, "train") + _ended(jobs, "train") == 1)
    Path(GANG_CAME).touch()
    _do("mirab ls --long")
    _do("mirab share")
    jobs = _until(client, "the sweep has ended", lambda jobs: _ended(jobs, "sweep") == 4)
    stopped = next((job for job in jobs if job["preemptions"]), None)
    if stopped is None:
        raise UnusableError("nothing was stopped for the gang, although all GPUs were taken: a fault in mirab.")
    emit("What was stopped went on where it had saved its work:\n")
    _do(f"mirab show {stopped['id']}")
    _do(f"mirab logs {stopped['id']}")


def _do(line: str) -> None:
    """A command, shown and done, as a person would type it."""
    from mirab.cli.main import run

    emit(f"$ {line}")
    sys.stdout.flush()
    code = run(shlex.split(line)[1:])
    if code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if code > 128:
        raise SystemExit(code)
    if code:
        raise UnusableError(f"`{line}` ended with {code}: see above.")
    emit("")
    sys.stdout.flush()


def _until(client: Client, what: str, reached: Callable[[list[Job]], bool]) -> list[Job]:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        jobs = [job for page in pages(client, {}) for job in page]
        if reached(jobs):
            return jobs
        time.sleep(0.1)
    raise UnusableError(f"waited {PATIENCE_S:.0f} s in vain until {what}.")


def _running(jobs: list[Job], name: str) -> int:
    return sum(job["name"] == name and job["state"] == "RUNNING" and job["started_at"] is not None for job in jobs)


def _ended(jobs: list[Job], name: str) -> int:
    return sum(job["name"] == name and has_ended(job) for job in jobs)
