"""`mirab checkpoint`: work is safe."""

from __future__ import annotations

import os

import click

from mirab.cli.client import at, open_client
from mirab.cli.connection import JSON_OPTION, SERVER_OPTION
from mirab.cli.exits import NotFoundError
from mirab.cli.jobs import parse_ids
from mirab.cli.output import emit, say, to_json


@click.command()
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@click.option("--finished", is_flag=True, help="And no work is left: if the run is stopped now, it does not come back.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing when all is well.")
@JSON_OPTION
@SERVER_OPTION
def command(jobs: tuple[str, ...], finished: bool, quiet: bool, as_json: bool, server: str | None) -> None:
    """Say that the work so far is safe: from inside a run without arguments, or for a job from outside.

    It counts when runs are chosen to be stopped, in the measure of lost work, and as a sign of progress. Inside a run
    it needs no server and no token.
    """
    if jobs:
        if finished:
            raise click.UsageError("--finished is for use inside a run", click.get_current_context())
        done = _outside(jobs, server)
    else:
        done = [inside(finished=finished)]
    if as_json:
        emit(to_json({"jobs": done}))
    elif not quiet:
        say(f"The work of {' '.join(done)} is safe.")


def inside(*, finished: bool) -> str:
    """Leave word in the run's own folder, and ring for the one who looks after it.

    Raises:
        NotFoundError: this is not inside a run.
    """
    from mirab.backends.local import rundir

    folder = os.environ.get("MIRAB_RUN_DIR")
    if not folder:
        raise NotFoundError(
            "this is not inside a run (MIRAB_RUN_DIR is not set): name the job, `mirab checkpoint JOB`."
        )
    path = os.path.join(folder, rundir.CHECKPOINT)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    rundir.put(descriptor, rundir.FINISHED if finished else b"", durable=False)
    os.utime(path)
    rundir.ring(os.path.join(folder, rundir.BELL))
    return os.environ.get("MIRAB_JOB_ID", os.path.basename(folder))


def _outside(jobs: tuple[str, ...], server: str | None) -> list[str]:
    with open_client(server) as client:
        return [str(client.post(at("jobs", job_id, "checkpoint"))["id"]) for job_id in parse_ids(jobs)]
