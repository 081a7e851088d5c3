"""Routes of why and when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mirab.service.api.jobs import MISSING, Id, no_job
from mirab.service.api.needs import Service, needs
from mirab.service.auth.principal import Principal
from mirab.service.evidence import Calibration, WhenAnswer, WhyAnswer
from mirab.service.forms.jobs import SubmitRequest

router = APIRouter(prefix="/api/v1", tags=["why and when"])


@router.get("/jobs/{job_id}/why", response_model=WhyAnswer, responses=MISSING)
def show_why(
    who: Annotated[Principal, needs("job.see")],
    parts: Service,
    job_id: Id,
    whatif: Annotated[bool, Query(description="With rehearsals of changed requests, and when it is level.")] = True,
) -> WhyAnswer:
    """Every blocker of a job that waits, who goes before it, and what would help; of another one, its story."""
    answer = parts.views.answers.why(job_id, whatif)
    if answer is None:
        raise no_job(job_id)
    return answer


@router.get("/jobs/{job_id}/when", response_model=WhenAnswer, responses=MISSING)
def show_when(
    who: Annotated[Principal, needs("job.see")],
    parts: Service,
    job_id: Id,
    wait: Annotated[float, Query(ge=0, le=10, description="Seconds to wait for its own; 0: what stands in.")] = 8,
) -> WhenAnswer:
    """When a job starts, from many runs of the scheduler forward; how old they are, and how past ones held."""
    answer = parts.views.answers.when(job_id, wait)
    if answer is None:
        raise no_job(job_id)
    return answer


@router.post("/when", response_model=WhenAnswer, responses={404: {}, 409: {}})
def suppose(
    who: Annotated[Principal, needs("forecast.ask")],
    parts: Service,
    request: SubmitRequest,
    wait: Annotated[float, Query(ge=0, le=10, description="0: what stands in, if anything does, at once.")] = 8,
) -> WhenAnswer:
    """When a request would start. Nothing is submitted."""
    return parts.views.answers.suppose(who, request, wait)


@router.get("/calibration", response_model=Calibration)
def show_calibration(who: Annotated[Principal, needs("forecast.see")], parts: Service) -> Calibration:
    """How often past forecasts held, by class."""
    return parts.views.answers.calibration()
