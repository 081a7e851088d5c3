"""Routes of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from mirab.model.records import JobState
from mirab.service.api.bus import TooManyStreamsError
from mirab.service.api.needs import Service, needs, require
from mirab.service.api.output import Wanted, contents, find_file, follow
from mirab.service.api.parts import Parts
from mirab.service.api.ports import JobFilter
from mirab.service.api.problems import ProblemError, not_found, printable, reading_cursor
from mirab.service.auth.principal import Principal
from mirab.service.fields import JOB_PATTERN, NAME_PATTERN
from mirab.service.forms.base import Why
from mirab.service.forms.jobs import DryRun, Job, JobDetail, Jobs, SubmitRequest, Submitted
from mirab.service.views.moments import iso

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

Id = Annotated[str, Path(max_length=32, pattern=JOB_PATTERN, examples=["7"])]
Word = Annotated[str, Query(max_length=512, pattern=NAME_PATTERN)]
Words = Annotated[
    list[Annotated[str, Query(max_length=8_192, pattern=NAME_PATTERN)]] | None,
    Query(max_length=1_000, description="Repeated, or with commas."),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="Your own id of this request: sent again, it gets the same answer and submits nothing twice.",
    ),
]
MISSING: dict[int | str, dict[str, Any]] = {404: {}}
REFUSED: dict[int | str, dict[str, Any]] = {404: {}, 409: {}}


@router.post(
    "",
    status_code=201,
    response_model=Submitted,
    responses={200: {"model": DryRun, "description": "With `dry_run`: what would be decided now."}, 404: {}, 409: {}},
)
def submit(
    who: Annotated[Principal, needs("job.submit")],
    parts: Service,
    request: SubmitRequest,
    response: Response,
    key: Key = None,
    dry_run: bool = False,
) -> Any:
    """Submit a job, or an array of jobs. With `dry_run` nothing is submitted."""
    if dry_run:
        return JSONResponse(_rehearsal(parts.desk.dry_run(who, request)).model_dump(mode="json"))
    reply = parts.desk.submit(who, request, key)
    response.headers["Location"] = f"/api/v1/jobs/{reply.ids[0]}"
    shown = parts.views.jobs(JobFilter(ids=tuple(reply.ids), limit=len(reply.ids)))
    return Submitted(ids=list(reply.ids), job=reply.job, jobs=shown.jobs, notes=list(reply.notes))


def _rehearsal(found: Any) -> DryRun:
    until = found.protected_until
    return DryRun(
        decision=found.decision,
        sentence=found.sentence,
        reason=found.reason,
        nodes=list(found.nodes),
        protected_until=iso(until) if until is not None else None,
        notes=list(found.notes),
        account=found.account,
    )


@router.get("", response_model=Jobs)
def list_jobs(
    who: Annotated[Principal, needs("job.list")],
    parts: Service,
    state: Words = None,
    user: Word | None = None,
    account: Annotated[Word | None, Query(description="It and all below it.")] = None,
    node: Word | None = None,
    label: Word | None = None,
    ids: Words = None,
    array_job: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=256, pattern=r"^[!-~]+$")] = None,
    newest: Annotated[bool, Query(description="The last submitted first.")] = False,
) -> Jobs:
    """Jobs in the order of their submission, page by page."""
    wanted = JobFilter(
        states=_states(state),
        user=user or None,
        account=account or None,
        node=node or None,
        label=label or None,
        ids=_split(ids),
        array_job=array_job,
        after=cursor,
        limit=limit,
        newest_first=newest,
    )
    with reading_cursor():
        return parts.views.jobs(wanted)


def _states(words: list[str] | None) -> tuple[JobState, ...] | None:
    try:
        return tuple(JobState(word.upper()) for word in _split(words) or ()) or None
    except ValueError as error:
        raise ProblemError(422, f"{printable(str(error))}: the states are {', '.join(JobState.__members__)}") from error


def _split(words: list[str] | None) -> tuple[str, ...] | None:
    parts = [part.strip() for word in words or () for part in word.split(",")]
    return tuple(filter(None, parts)) or None


@router.get("/{job_id}", response_model=JobDetail, responses=MISSING)
def show_job(who: Annotated[Principal, needs("job.see")], parts: Service, job_id: Id) -> JobDetail:
    """A job with its attempts; what it executes is for its owner, managers of its account and admins."""
    detail = parts.views.detail(job_id)
    if detail is None:
        raise no_job(job_id)
    if not who.may("job.private", detail.account, detail.user):
        return detail.model_copy(update={"spec": None})
    folder = parts.outputs.folder(job_id) if detail.state == "RUNNING" else None
    return detail.model_copy(update={"run_dir": str(folder)}) if folder is not None else detail


@router.post("/{job_id}/cancel", response_model=Job, responses=REFUSED)
def cancel_job(
    who: Annotated[Principal, needs("job.cancel")], parts: Service, job_id: Id, body: Why | None = None
) -> Job:
    """End a job: out of the queue, or its run is stopped after its grace."""
    return _commanded(parts, who, "job.cancel", job_id, lambda: parts.desk.cancel(who, [job_id], _why(body)))


@router.post("/{job_id}/hold", response_model=Job, responses=REFUSED)
def hold_job(who: Annotated[Principal, needs("job.hold")], parts: Service, job_id: Id, body: Why | None = None) -> Job:
    """Keep a waiting job out of the queue until it is released."""
    return _commanded(parts, who, "job.hold", job_id, lambda: parts.desk.hold(who, [job_id], _why(body)))


@router.post("/{job_id}/release", response_model=Job, responses=REFUSED)
def release_job(
    who: Annotated[Principal, needs("job.release")], parts: Service, job_id: Id, body: Why | None = None
) -> Job:
    """Let a held job queue again."""
    return _commanded(parts, who, "job.release", job_id, lambda: parts.desk.release(who, [job_id], _why(body)))


@router.post("/{job_id}/requeue", response_model=Job, responses=REFUSED)
def requeue_job(
    who: Annotated[Principal, needs("job.requeue")], parts: Service, job_id: Id, body: Why | None = None
) -> Job:
    """Stop a run, whatever its minimum, and put its job back into the queue."""
    return _commanded(parts, who, "job.requeue", job_id, lambda: parts.desk.requeue(who, [job_id], _why(body)))


@router.post("/{job_id}/checkpoint", response_model=Job, responses=REFUSED)
def note_checkpoint(
    who: Annotated[Principal, needs("job.checkpoint")], parts: Service, job_id: Id, body: Why | None = None
) -> Job:
    """Say that the work of the run so far is safe."""
    return _commanded(parts, who, "job.checkpoint", job_id, lambda: parts.desk.checkpoint(who, job_id))


def _why(body: Why | None) -> str:
    return body.why if body is not None else ""


def _commanded(parts: Parts, who: Principal, action: str, job_id: str, command: Callable[[], Any]) -> Job:
    """Do it if they may, and show the job as it is then."""
    job = _job(parts, job_id)
    require(who, action, job.account, job.user)
    command()
    return _job(parts, job_id)


def _job(parts: Parts, job_id: str) -> Job:
    job = parts.views.job(job_id)
    if job is None:
        raise no_job(job_id)
    return job


def no_job(job_id: str) -> ProblemError:
    return not_found(f"there is no job {job_id}: `mirab ls` shows the jobs there are")


def check_places(parts: Parts) -> None:
    """Raises TooManyStreamsError where no more long answers can be given: better before one begins."""
    if parts.bus.full:
        raise TooManyStreamsError


@router.get(
    "/{job_id}/output",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 404: {}},
)
async def read_output(
    who: Annotated[Principal, needs("job.output")],
    parts: Service,
    job_id: Id,
    follow: bool = False,
    offset: Annotated[int, Query(ge=0, le=1 << 53, description="Bytes to skip.")] = 0,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000_000, description="Default: the present one.")] = None,
    stream: Literal["out", "err"] = "out",
) -> StreamingResponse:
    """What the job has written, as bytes. With `follow` the answer goes on until the job has ended."""
    wanted = Wanted(job_id, attempt, stream, offset, follow)
    return StreamingResponse(
        await run_sync(_output, parts, who, wanted), media_type="text/plain", headers={"X-Accel-Buffering": "no"}
    )


def _output(parts: Parts, who: Principal, wanted: Wanted) -> AsyncIterator[bytes]:
    job = _job(parts, wanted.job)
    require(who, "job.output", job.account, job.user)
    check_places(parts)
    if wanted.follow:
        return follow(parts, wanted)
    return contents(parts, find_file(parts, wanted, wanted.attempt or job.attempt, wanted.offset))


@router.get("/{job_id}/await", response_model=Job, responses=MISSING)
async def await_job(
    who: Annotated[Principal, needs("job.see")],
    parts: Service,
    job_id: Id,
    timeout: Annotated[float, Query(ge=0, le=60, description="Seconds.")] = 30,
) -> Job:
    """The job when it has ended, or as it is when the time is over."""
    check_places(parts)
    with parts.bus.place(), parts.bus.watching(job_id) as changed, suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while not parts.bus.stopping and not await run_sync(_has_ended, parts, job_id):
                await changed.wait()
                changed.clear()
    return await run_sync(_job, parts, job_id)


def _has_ended(parts: Parts, job_id: str) -> bool:
    row = parts.store.job(job_id)
    if row is None:
        raise no_job(job_id)
    return row.state.ended
