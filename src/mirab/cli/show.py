"""`mirab show`: everything about one job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near, slurm_span, zoned
from mirab.cli.columns import nodelist, protection
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width, wrapped
from mirab.cli.jobs import Job, jobs_of, parse_ids
from mirab.cli.output import emit, to_json
from mirab.study.formats import plural, span

INDENT = " " * 16
RUN_COLUMNS = (
    Column("ATTEMPT", right=True),
    Column("STARTED"),
    Column("ENDED"),
    Column("OUTCOME"),
    Column("EXIT", right=True),
    Column("LOST", right=True),
    Column("NODES", least=8),
)


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@JSON_OPTION
@connected
def command(client: Client, jobs: tuple[str, ...], as_json: bool) -> None:
    """Show what a job asked for, why it waits, until when it is protected, and its attempts.

    What it executes is shown to its owner, to managers of its account, and to admins.
    """
    found = [_detail(client, job) for job_id in parse_ids(jobs) for job in jobs_of(client, job_id)]
    if as_json:
        emit(to_json({"jobs": found}))
    else:
        emit("\n\n".join("\n".join(lines_of(job)) for job in found))


def _detail(client: Client, job: Job) -> Job:
    return job if "runs" in job else client.get(at("jobs", job["id"]))


def lines_of(job: Job) -> Iterator[str]:
    """A job as lines of a name and a value, then its attempts."""
    for name, value in _facts(job):
        if value:
            yield f"{name:>14}  {wrapped(value, terminal_width(), INDENT).lstrip()}"
    if job["runs"]:
        yield ""
        yield table(RUN_COLUMNS, [_run_row(run) for run in job["runs"]], terminal_width())


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    yield "job", f"{job['id']} {job['name']}"
    yield "of", f"{job['user']} for {job['account']}"
    yield "state", _state(job)
    yield "why", job["why"]
    yield "flag", job["progress_flag"]
    yield "asked for", _asked(job)
    yield "contract", _contract(job)
    yield "nodes", nodelist(job)
    yield "submitted", zoned(job["submitted_at"])
    yield "started", near(job["started_at"])
    yield "ended", near(job["ended_at"])
    yield "safe until", near(job["checkpoint_at"])
    yield "stopped", f"{plural(job['preemptions'], 'time')}, {span(job['lost_s'])} lost" if job["preemptions"] else ""
    yield "label", job["label"]
    yield from _spec(job, job["spec"] or {})


def _state(job: Job) -> str:
    reason = f" ({job['reason']})" if job["reason"] else ""
    over = job["exit_code"] is not None and job["state"] not in ("PENDING", "RUNNING", "COMPLETING")
    code = f", exit code {job['exit_code']}" if over else ""
    held = f", held: {job['held']}" if job["held"] else ""
    return f"{job['state']}{reason}{code}{held}"


def _asked(job: Job) -> str:
    parts = [("gpus_per_node", "GPU"), ("cpus_per_node", "core")]
    held = " and ".join(plural(job[name], word) for name, word in parts if job[name])
    each = " each" if held and job["nodes"] > 1 else ""
    limit = f", time limit {slurm_span(job['time_limit_s'])}" if job["time_limit_s"] is not None else ""
    return f"{plural(job['nodes'], 'node')}{held and ' with '}{held}{each}{limit}"


def _contract(job: Job) -> str:
    if not job["min_runtime_s"]:
        return "no minimum runtime: not charged, and stopped whenever others need the GPUs"
    until = protection(job)
    now = {"": "", "over": ", which is over"}.get(until, f", protected until {until}")
    return f"minimum runtime {slurm_span(job['min_runtime_s'])}{now}"


def _spec(job: Job, spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not spec:
        return
    lines = len(spec["script"].splitlines())
    yield "runs", f"a script of {plural(lines, 'line')}" if lines else " ".join(spec["argv"])
    yield "in", spec["cwd"]
    yield "output", _file(spec["output"], job, spec["cwd"])
    yield "error", spec["error"] and _file(spec["error"], job, spec["cwd"])
    yield "notice", f"SIG{spec['signal'].removeprefix('SIG')} {span(spec['grace_s'])} before a stop"
    yield "after", spec["dependency"]


def _file(pattern: str, job: Job, folder: str) -> str:
    """The file that a pattern such as ``mirab-%j.out`` stands for, for this job."""
    from mirab.backends.local.translate import Login, output_file
    from mirab.model.records import JobSpec
    from mirab.model.units import WorkloadId

    whose = JobSpec(WorkloadId(job["id"]), job["name"], cwd=folder, array_job=job["array_job"],
                    array_task=job["array_task"], user=job["user"])  # fmt: skip
    return output_file(pattern, whose, Login(job["user"]))


def _run_row(run: dict[str, Any]) -> list[str]:
    code = "" if run["exit_code"] is None else str(run["exit_code"])
    lost = "" if run["lost_s"] is None else span(run["lost_s"])
    times = [near(run["started_at"]), near(run["ended_at"])]
    return [str(run["attempt"]), *times, run["outcome"], code, lost, ",".join(run["node_names"])]
