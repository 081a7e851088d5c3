"""Why a job waits: what was recorded, who stands before it, what a changed request would get; or its story."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isinf
from threading import Lock
from typing import TYPE_CHECKING, Any

from mirab.core.queues import Pending
from mirab.core.state import State
from mirab.model.accounts import plain
from mirab.model.codec import decode, encode
from mirab.model.reasons import BehindOwn, BlockedBehind, HoldTaken, Reason, SavingUp, ShareSpent
from mirab.model.records import JobRow, JobState
from mirab.model.units import AccountPath, Instant, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.desk.holding import hold_of
from mirab.service.desk.sandbox import Sandbox
from mirab.service.evidence import Blocker, Contender, LedgerEntry, WhatIf, WhyAnswer
from mirab.service.forecaster import Forecaster
from mirab.service.views import homes
from mirab.service.views.contenders import Order, Standing, order
from mirab.service.views.moments import iso
from mirab.service.views.rehearsals import looked
from mirab.service.views.shares import hours, scaled_hours
from mirab.service.views.waiting import (
    ADVISED,
    ADVISED_SENTENCE,
    CODES,
    NEW,
    READER_ZONE,
    ahead_of,
    names_of,
    reason_of_pending,
)
from mirab.study import whywords, words
from mirab.study.formats import Names
from mirab.study.journalfile import Header
from mirab.study.story import story_of
from mirab.study.storytext import tell

if TYPE_CHECKING:
    from mirab.service.live import Live

ENTRIES = 3
"""Ledger entries that are named for each account."""
AHEAD_NAMED = 20
STORY_RECORDS = 2_000
"""A life of so many records is told with what the others did meanwhile; a longer one from its own records."""
OWN_RECORDS = 1_000
BEFORE = 200
"""Records before its submission that are read too: who of its own waited already."""
COMING = ("HoldsNodes", "AwaitingVictims", "AwaitingCheckpoint")
"""Reasons to wait of those whose start is settled."""
KEPT = 256
NEXT = "nothing that is known keeps it: the next decision looks at it"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the state says of a job that waits, taken while it was held. `home`: why it is in the ledger it is in."""

    now: Instant
    names: Names
    reason: Reason | None
    head: WorkloadId | None
    head_reason: Reason | None
    before: tuple[WorkloadId, ...]
    order: Order | None
    home: str = ""
    observing: bool = False

    @property
    def advised(self) -> bool:
        """Nothing keeps it but that mirab only observes: no other request would start it sooner."""
        return self.observing and self.reason is None


class WhyView:
    """Answers to why. What-ifs are worked out once for each decision and job."""

    def __init__(self, live: Live, forecaster: Forecaster) -> None:
        self._live = live
        self._forecaster = forecaster
        self._kept: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()
        self._lock = Lock()

    def job(self, job_id: str, whatif: bool = True) -> WhyAnswer | None:
        """Why it waits, or its story; None = there never was one of that id.

        Raises:
            DeskError: too many what-ifs are being worked out.
        """
        row = self._live.store.job(job_id)
        if row is None:
            return None
        answer = self._waiting(row, whatif) if row.state is JobState.PENDING else None
        if answer is not None and not row.attempt:
            return answer
        return self._with_story(row, answer)

    # --- waiting ----------------------------------------------------------------------------------------------------
    def _waiting(self, row: JobRow, whatif: bool) -> WhyAnswer | None:
        with self._live.reading() as state:
            now = max(state.now, self._live.now())
            seen = look(state, row.id, now)
        if row.held:
            return _held(row, now, seen)
        if seen is None:
            return None
        found = self._rehearsed(row.id, seen) if whatif and not seen.advised else None
        if found is not None and found["now"] is not None:
            seen = refreshed(seen, found["now"], row.id)
        blockers = list(blockers_of(seen))
        answer = WhyAnswer(
            id=row.id, state=row.state.value, at=iso(now),
            headline=blockers[0].fact if blockers else NEXT, blockers=blockers,
            ahead=[] if (among := seen.order) is None else [self._contender(each, now, among) for each in among.shown],
            charged_to=seen.home,
        )  # fmt: skip
        return answer if found is None else self._with_rehearsals(answer, found, seen)

    def _contender(self, each: Standing, now: Instant, among: Order) -> Contender:
        account = plain(each.path).removesuffix("/*")
        count, entries = self._forecaster.entries(AccountPath(account), now, ENTRIES, among.pools)
        return Contender(
            account=each.path, ratio=None if isinf(each.ratio) else round(each.ratio, 4),
            used_h=hours(max(0, each.used - each.par)), par_h=hours(each.par),
            committed_h=hours(each.committed), entitled_h=scaled_hours(each.promised),
            waiting_jobs=each.waiting, first_job=each.first or "", mine=each.mine, runs=count,
            entries=[LedgerEntry(run=entry.run, user=entry.user, gpu_h=round(amount, 2), running=entry.ended_at is None)
                     for entry, amount in entries],
        )  # fmt: skip

    def _with_rehearsals(self, answer: WhyAnswer, found: dict[str, Any], seen: Seen) -> WhyAnswer:
        level = ""
        if seen.order is not None and seen.order.ahead:
            first, mine = seen.order.shown[0], seen.order.mine
            level = whywords.level_sentence(
                mine.path, mine.ratio, first.path, first.ratio, found["level_at"], self._live.policy.window, seen.names
            )
        helps = [each for each in found["whatif"] if _helps(each, seen)]
        at = found["level_at"]
        return answer.model_copy(
            update={
                "whatif": [_what_if(each, seen.names) for each in helps],
                "in_vain": [each["change"] for each in found["whatif"] if each not in helps],
                "level": level,
                "level_at": None if at is None else iso(at),
            }
        )

    def _rehearsed(self, job_id: str, seen: Seen) -> dict[str, Any]:
        key = job_id, self._live.pulse.seq
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        first = seen.order.shown[0].path if seen.order is not None and seen.order.ahead else None
        with Sandbox(self._live.copies) as box:
            with self._live.reading() as state:
                now = max(state.now, self._live.now())
                box.begin(lambda: looked(state, now, WorkloadId(job_id), first, seen.names))
            found: dict[str, Any] = box.result()
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    # --- the story --------------------------------------------------------------------------------------------------
    def _with_story(self, row: JobRow, answer: WhyAnswer | None) -> WhyAnswer:
        story = self._story(row)
        now = self._live.now()
        made = answer or WhyAnswer(id=row.id, state=row.state.value, at=iso(now), headline="")
        if story is None:
            return made.model_copy(update={"headline": made.headline or "nothing was recorded about it"})
        text = tell(story, READER_ZONE.get())
        return made.model_copy(update={"story": story, "text": text, "headline": made.headline or _last_line(text)})

    def _story(self, row: JobRow) -> dict[str, Any] | None:
        own = self._live.store.decisions(after=0, limit=OWN_RECORDS, mentioning=row.id)
        workload = next((found for _, facts, _ in own if (found := _submission(facts, row.id)) is not None), None)
        if workload is None:
            return None
        with self._live.reading() as state:
            header = Header("", state.policy, state.cluster, state.budgets, 0, 0, 0, "")
        now, zone = self._live.now(), READER_ZONE.get()
        return story_of(header, workload, self._records(own), now, zone)

    def _records(self, own: list[tuple[int, str, str]]) -> Iterator[tuple[Any, Any]]:
        first, last = own[0][0], own[-1][0]
        if last - first > STORY_RECORDS:
            yield from ((json.loads(facts), json.loads(plan)) for _, facts, plan in own)
            return
        after = max(0, first - 1 - BEFORE)
        while after < last:
            page = self._live.store.decisions(after=after, limit=500)
            for seq, facts, plan in page:
                if seq > last:
                    return
                yield json.loads(facts), json.loads(plan)
            after = page[-1][0] if page else last


def look(state: State, job_id: str, now: Instant) -> Seen | None:
    """What the state says of it; None = it does not wait in a queue."""
    pending = state.pending.get(WorkloadId(job_id))
    if pending is None or pending.queue is None:
        return None
    names = names_of(state).asking(pending.workload.shape.gpus_per_node)
    head = pending.queue.head
    _, home = homes.home_of(state, pending.workload.account, pending.workload.shape)
    before = tuple(each.workload.id for each in pending.queue.entries[: min(ahead_of(pending), AHEAD_NAMED)])
    return Seen(
        now, names, reason_of_pending(pending), head.workload.id,
        None if head.waiting is None else head.waiting.reason, before, _order(state, pending, now), home,
        state.policy.observing,
    )  # fmt: skip


def refreshed(seen: Seen, found: dict[str, Any], job_id: str) -> Seen:
    """The same with the reason that a decision at this moment would record of the head of its queue."""
    reason = decode(found["reason"]) if found["decision"] == "wait" and found["reason"] else None
    own = reason if seen.head == job_id else seen.reason
    return replace(seen, reason=own, head_reason=reason)


def _order(state: State, pending: Pending, now: Instant) -> Order | None:
    """Only where accounts are compared, and for work that is charged."""
    queue = pending.queue
    if queue is None or not queue.info.charged or state.policy.order != "budget":
        return None
    return order(state, queue.user.account, now)


def blockers_of(seen: Seen) -> Iterator[Blocker]:
    """The first one first: one's own that go before, then what keeps the head of the queue."""
    if isinstance(seen.reason, BehindOwn):
        yield _blocker(seen.reason, seen.names, "", list(seen.before))
    if seen.head_reason is not None:
        yield _blocker(seen.head_reason, seen.names, seen.head or "", _named(seen.head_reason))
    if seen.reason is None:
        yield Blocker(code=ADVISED, fact=ADVISED_SENTENCE) if seen.advised else Blocker(code=NEW, fact=NEXT)


def _blocker(reason: Reason, names: Names, about: str, removes: list[str]) -> Blocker:
    return Blocker(
        code=CODES[type(reason)], fact=words.fact(reason, names), action=whywords.action(reason, names),
        reason=encode(reason), about=about, removes=removes,
    )  # fmt: skip


def _named(reason: Reason) -> list[str]:
    """The jobs or accounts that a reason names."""
    match reason:
        case BlockedBehind() | HoldTaken():
            return [reason.holder] if reason.holder else []
        case SavingUp():
            return [reason.gang]
        case ShareSpent():
            return [reason.first]
    return []


def _held(row: JobRow, now: Instant, seen: Seen | None) -> WhyAnswer:
    reason = hold_of(row.held)
    names = Names(0) if seen is None else seen.names
    blocker = Blocker(code="Held", fact=row.held) if reason is None else _blocker(reason, names, row.id, [])
    return WhyAnswer(id=row.id, state=row.state.value, at=iso(now), headline=blocker.fact, blockers=[blocker])


def _helps(found: dict[str, Any], seen: Seen) -> bool:
    """Whether the change starts it now, or brings it nodes or victims that it does not have."""
    if found["decision"] != "wait":
        return bool(found["decision"] == "start")
    kind = found["reason"].get("type")
    return kind in COMING and kind != type(seen.reason).__name__


def _what_if(found: dict[str, Any], names: Names) -> WhatIf:
    sentence = words.fact(decode(found["reason"]), names) if found["reason"] else "the next decision looks at it"
    return WhatIf(
        change=found["change"], decision=found["decision"], sentence=whywords.would(found["decision"], sentence)
    )


def _submission(facts: str, job_id: str) -> Workload | None:
    for fact in json.loads(facts):
        if fact["type"] == "WorkloadSubmitted" and fact["workload"]["id"] == job_id:
            found: Workload = decode(fact["workload"])
            return found
    return None


def _last_line(text: str) -> str:
    """The conclusion of a story, on one line."""
    return " ".join(text.strip().rpartition("\n\n")[2].split()).removeprefix("In short: ").rstrip(".")
