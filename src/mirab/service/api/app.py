"""The application: routes behind the guard, problems instead of tracebacks, and the document that describes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from mirab import __version__
from mirab.service.api import answers, history, jobs, nodes, people, portfolio, problems, sharing, wellness, whatif
from mirab.service.api.describe import document
from mirab.service.api.guard import Guard
from mirab.service.api.needs import check_rules
from mirab.service.api.parts import Parts
from mirab.service.pages import data, replays, session, site

DESCRIPTION = """Who gets the GPUs of a shared cluster next, and why.

Durations are strings with units (`90s`, `15m`, `8h`), instants ISO 8601 in UTC. Errors are problems (RFC 9457):
`detail` is a sentence for people, `type` a name for programs. Lists come in pages: pass `next` on as `cursor`.
"""

THREADS = 100
"""Requests that may wait for the scheduler or the store at a time."""


@asynccontextmanager
async def _with_threads(_: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = THREADS
    yield


def create_app(parts: Parts) -> FastAPI:
    """The API over these parts.

    Raises:
        ValueError: a route does not name the action that it is (a fault in mirab, found before anybody is served).
    """
    app = routes_alone()
    app.state.parts = parts
    app.add_middleware(Guard, parts=parts)
    problems.install(app)
    return app


def routes_alone() -> FastAPI:
    """The routes and their document, without anything that could answer."""
    app = FastAPI(
        title="mirab",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_with_threads,
        redirect_slashes=False,
    )
    for module in (
        jobs, answers, sharing, portfolio, whatif, nodes, history, people, wellness, data, replays, session, site,
    ):  # fmt: skip
        app.router.routes.extend(module.router.routes)
    check_rules(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app
