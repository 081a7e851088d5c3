"""Routes of replays that are kept: reports of `mirab sim --json` and `mirab compare --json` in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from mirab.service.api.needs import Service, needs
from mirab.service.api.parts import Parts
from mirab.service.api.problems import ProblemError, not_found
from mirab.service.auth.principal import Principal
from mirab.service.pages.shapes import Comparison, Replay, Replays
from mirab.service.views.moments import iso
from mirab.study.catalogue import Report
from mirab.study.page import MOST, html_page, security_policy
from mirab.study.page import asset as page_asset
from mirab.study.pagehead import lede, measures, subject

router = APIRouter(prefix="/api/v1/replays", tags=["the pages"])

FILE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.json$"
SHOWN_MOST = 200
BYTES_MOST = 32 << 20
Names = Annotated[
    list[Annotated[str, Query(pattern=FILE, max_length=133)]],
    Query(min_length=1, max_length=MOST, description="File names, repeated."),
]
MISSING: dict[int | str, dict[str, Any]] = {404: {}}


@router.get("", response_model=Replays)
def list_replays(who: Annotated[Principal, needs("replay.see")], parts: Service) -> Replays:
    """The reports that are kept, the newest first: at most 200."""
    if parts.reports is None or not parts.reports.is_dir():
        return Replays(replays=[], folder=_shown(parts, who))
    kept = sorted(_files(parts.reports), key=lambda path: (-path.stat().st_mtime_ns, path.name))
    return Replays(replays=[_described(path) for path in kept[:SHOWN_MOST]], folder=_shown(parts, who))


def _shown(parts: Parts, who: Principal) -> str:
    """Where to put reports: of use only to those who look after the service."""
    return str(parts.reports) if parts.reports is not None and who.may("audit.see") else ""


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.json") if path.is_file() and not path.name.startswith("."))


def _described(path: Path) -> Replay:
    stat = path.stat()
    kept_at, size = iso(stat.st_mtime_ns // 1_000_000), stat.st_size
    try:
        found = _reports(path)
    except ProblemError as error:
        return Replay(name=path.name, kept_at=kept_at, bytes=size, problem=error.detail)
    policies = [str(report["policy"]["name"]) for report in found]
    return Replay(name=path.name, log=str(found[0]["input"]["name"]), policies=policies, kept_at=kept_at, bytes=size)


@router.get("/compare", response_model=Comparison, responses=MISSING)
def compare_replays(who: Annotated[Principal, needs("replay.see")], parts: Service, name: Names) -> Comparison:
    """Up to six replays side by side: every measure, which is best, and the change against the first."""
    of = subject(_chosen(parts, name))
    return Comparison(labels=list(of.labels), title=str(of.first["input"]["name"]), lede=lede(of), groups=measures(of))


@router.get(
    "/page",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}, 404: {}},
)
def show_replays(who: Annotated[Principal, needs("replay.see")], parts: Service, name: Names) -> Response:
    """The page of `--html` about these replays, with its pictures."""
    policy = f"{security_policy(page_asset('page.css'), page_asset('page.js'))}; frame-ancestors 'none'"
    return Response(
        html_page(_chosen(parts, name)).encode("utf-8", "replace"),
        media_type="text/html; charset=utf-8",
        headers={"Content-Security-Policy": policy},
    )


def _chosen(parts: Parts, names: Sequence[str]) -> list[Report]:
    """The reports of these files, in their order.

    Raises:
        ProblemError: one is not there, is no report, or there are more than a page shows.
    """
    found: list[Report] = []
    for name in names:
        path = None if parts.reports is None else parts.reports / name
        if path is None or not path.is_file():
            raise not_found(f"there is no report {name}")
        found += _reports(path)
    if len(found) > MOST:
        raise ProblemError(422, f"name: that would be {len(found)} replays, and {MOST} stand side by side at most")
    return found


def _reports(path: Path) -> list[Report]:
    """The replays of a file: one of `mirab sim`, or those that `mirab compare` put side by side.

    Raises:
        ProblemError: it cannot be read, or holds no report.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise ProblemError(422, f"{path.name} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _read(path: Path, changed: int, size: int) -> list[Report]:
    if size > BYTES_MOST:
        raise ProblemError(422, f"{path.name} is larger than {BYTES_MOST >> 20} MiB")
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ProblemError(422, f"{path.name} is not JSON") from error
    reports = data.get("reports", [data]) if isinstance(data, dict) else data
    if not isinstance(reports, list) or not reports or not all(map(_is_report, reports)):
        raise ProblemError(422, f"{path.name} is no report of `mirab sim --json` or `mirab compare --json`")
    return reports


def _is_report(data: object) -> bool:
    return isinstance(data, dict) and {"mirab", "policy", "input", "metrics", "by_account", "series"} <= data.keys()
