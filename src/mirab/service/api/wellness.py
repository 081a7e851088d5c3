"""Routes that tell how the service is, and what it is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from mirab import __version__
from mirab.service.api.guard import silence_of_store
from mirab.service.api.needs import Service, needs
from mirab.service.api.problems import ProblemError
from mirab.service.auth.principal import Principal
from mirab.service.forms.people import Health, Version
from mirab.service.views.moments import iso

router = APIRouter(tags=["the service"])


@router.get("/healthz", response_model=Health)
async def show_health(who: Annotated[Principal, needs("health.see")]) -> Health:
    """The process answers: no reason to restart it."""
    return Health(status="ok")


@router.get("/readyz", response_model=Health, responses={503: {}})
async def show_readiness(who: Annotated[Principal, needs("health.see")], parts: Service) -> Health:
    """It decides and records: send it work."""
    if trouble := parts.trouble() or parts.live.store_trouble() or await silence_of_store(parts):
        raise ProblemError(503, trouble, headers={"Retry-After": "5"})
    return Health(status="ready")


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: {}},
)
def show_metrics(who: Annotated[Principal, needs("metrics.see")], parts: Service) -> Response:
    """Metrics in the text format of Prometheus; a service may ask for a token here too."""
    text, kind = parts.metrics.render() if parts.metrics is not None else (b"", "text/plain; charset=utf-8")
    return Response(text, headers={"Content-Type": kind})


@router.get("/openapi.json", include_in_schema=False)
def describe(who: Annotated[Principal, needs("api.describe")], request: Request) -> dict[str, object]:
    document: dict[str, object] = request.app.openapi()
    return document


@router.get("/api/v1/version", response_model=Version)
async def show_version(who: Annotated[Principal, needs("version.see")], parts: Service) -> Version:
    """Which mirab this is, and since when it answers."""
    return Version(version=__version__, started_at=iso(parts.started_at))
