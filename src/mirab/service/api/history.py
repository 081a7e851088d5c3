"""Routes of what happened: events as they come, decisions, and the audit log."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from mirab.service.api.jobs import check_places
from mirab.service.api.needs import Service, needs
from mirab.service.api.problems import reading_cursor
from mirab.service.api.stream import Filter, events
from mirab.service.auth.principal import Principal
from mirab.service.fields import JOB_PATTERN, NAME_PATTERN
from mirab.service.forms.machines import Decision, Decisions
from mirab.service.forms.people import Audit, AuditPage
from mirab.service.views.moments import iso

router = APIRouter(prefix="/api/v1", tags=["history"])

NEWEST = (1 << 63) - 1
Word = Annotated[str, Query(max_length=512, pattern=NAME_PATTERN)]


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_events(
    who: Annotated[Principal, needs("event.see")],
    parts: Service,
    job: Annotated[str | None, Query(max_length=32, pattern=JOB_PATTERN)] = None,
    account: Annotated[Word | None, Query(description="It and all below it.")] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            pattern=r"^[0-9]{1,18}$",
            description="Number of the last record seen: what came after it is sent first.",
        ),
    ] = None,
) -> StreamingResponse:
    """Server-sent events `job`, `node`, `budget` and `decision`. A stream that cannot keep up is ended: come back.

    A job that has shown no sign of progress for longer than it declared is told as `no-progress`, without a number:
    that stands in no record, and who comes later asks for `/squatters`.
    """
    check_places(parts)
    after = int(last_event_id) if last_event_id is not None else None
    wanted = Filter(parts.store, job, account or None, parts.live.heirs, parts.views.observed_at)
    return StreamingResponse(
        events(parts.bus, parts.store, parts.settings, wanted, after),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


@router.get("/decisions", response_model=Decisions)
def list_decisions(
    who: Annotated[Principal, needs("decision.see")],
    parts: Service,
    before: Annotated[int | None, Query(ge=1, le=NEWEST, description="Number of a record; default: the end.")] = None,
    after: Annotated[int | None, Query(ge=0, le=NEWEST)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    mentioning: Annotated[Word | None, Query(description="Of a job or a node.")] = None,
) -> Decisions:
    """Records of the journal, the newest first: the facts that came in, and the plan that was made of them."""
    rows = parts.store.decisions(after, before, limit, mentioning or None)
    found = [
        Decision(
            seq=seq, at=iso(plan["at"]), facts=json.loads(facts), plan=plan, advice=parts.views.observed_at(plan["at"])
        )
        for seq, facts, plan in ((seq, facts, json.loads(text)) for seq, facts, text in rows)
    ]
    found.sort(key=lambda each: -each.seq)
    oldest = min((each.seq for each in found), default=0)
    return Decisions(decisions=found, before=oldest if len(found) == limit and oldest > 1 else None)


@router.get("/audit", response_model=AuditPage)
def list_audit(
    who: Annotated[Principal, needs("audit.see")],
    parts: Service,
    target: Word | None = None,
    user: Word | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=256, pattern=r"^[!-~]+$")] = None,
) -> AuditPage:
    """Every change that somebody made: who, when, from where, before, after, why. The newest first."""
    with reading_cursor():
        entries, following = parts.store.audit(after=cursor, limit=limit, who=user or None, target=target or None)
    return AuditPage(
        entries=[
            Audit(
                at=iso(each.at),
                who=each.who,
                origin=each.origin,
                action=each.action,
                target=each.target,
                before=each.before,
                after=each.after,
                why=each.why,
            )
            for each in entries
        ],
        next=following,
    )
