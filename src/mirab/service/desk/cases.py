"""Exceptions and reservations as cases: asked for, granted or refused, revoked, over. Kept in the audit log.

Each step of a case is a line of the audit log, recorded in the same transaction as the fact that makes it true; its
`after` is the case as it then is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirab.core.state import State
from mirab.model.policy import EXEMPTIONS, Exemption, Reservation
from mirab.model.records import AuditEntry
from mirab.model.units import DAY, Duration, Instant
from mirab.service.paging import PAGE, every

if TYPE_CHECKING:
    from mirab.service.live import Live

RESERVATION, ROLLOUT = "reservation", "rollout"
KINDS = (*EXEMPTIONS, RESERVATION, ROLLOUT)
"""``rollout``: an account may be enforced upon although its gates are not met."""
ASKED, GRANTED, REFUSED, REVOKED = "asked", "granted", "refused", "revoked"
STEPS = ("request", "approve", "refuse", "revoke", "warn")
"""Of the audit log: ``exception.STEP``."""
WARNED_BEFORE: Duration = DAY


@dataclass(frozen=True, slots=True)
class Case:
    """One exception or reservation, from its request to its end.

    Attributes:
        owner: who asked for it; approver: who granted or refused it.
        step: how many lines of the audit log there are of it.
        decided: the words of whoever decided last.
        cap, share, donor, node: see `Exemption`; nodes, gpus_per_node, pool: see `Reservation`.
        warned: its coming end was told.
    """

    id: str
    kind: str
    account: str
    owner: str
    reason: str
    begin: Instant
    end: Instant
    asked_at: Instant
    state: str = ASKED
    approver: str = ""
    decided: str = ""
    decided_at: Instant | None = None
    step: int = 1
    cap: Duration = 0
    share: int = 0
    donor: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    pool: str = ""
    warned: bool = False
    node: str = ""

    def standing(self, now: Instant) -> str:
        """``asked``, ``refused``, ``revoked``, ``to come``, ``in force``, ``over``; a request lapses with its end."""
        if self.state != GRANTED:
            return "lapsed" if self.state == ASKED and now >= self.end else self.state
        if now < self.begin:
            return "to come"
        return "in force" if now < self.end else "over"

    @property
    def warn_at(self) -> Instant:
        """A day before its end, or in its last fifth if it is short."""
        return self.end - min(WARNED_BEFORE, (self.end - self.begin) // 5)

    def exemption(self) -> Exemption:
        return Exemption(self.id, self.kind, self.account, self.begin, self.end, self.owner, self.approver, self.reason,
                         self.cap, self.share, self.donor, self.node)  # fmt: skip

    def reservation(self) -> Reservation:
        return Reservation(self.id, self.account, self.nodes, self.gpus_per_node, self.begin, self.end, self.owner,
                           self.approver, self.reason, self.pool)  # fmt: skip


def line(case: Case, step: str, now: Instant, who: str, origin: str = "", why: str = "") -> AuditEntry:
    """The line of the audit log for a step of a case."""
    text = json.dumps(asdict(case), separators=(",", ":"), ensure_ascii=False)
    return AuditEntry(now, who, origin, f"exception.{step}", case.id, "", text, why)


class Cases:
    """Every case there ever was. Changed only in the decider's thread, read while the state is held."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.known: dict[str, Case] = {}

    def load(self) -> None:
        """The cases as they were recorded: of each its last step."""
        for step in STEPS:
            for entry in every(partial(self._lines, f"exception.{step}")):
                case = Case(**json.loads(entry.after))
                before = self.known.get(case.id)
                if before is None or before.step < case.step:
                    self.known[case.id] = case

    def _lines(self, action: str, cursor: str | None) -> tuple[list[AuditEntry], str | None]:
        return self._live.store.audit(action=action, limit=PAGE, after=cursor)

    def next_id(self, state: State) -> str:
        """A name that no case and nothing of the cluster file has."""
        number = len(self.known) + 1
        while any(f"x{number}" in known for known in (self.known, state.exemptions, state.reservations)):
            number += 1
        return f"x{number}"

    def keep(self, case: Case) -> None:
        self.known[case.id] = case

    def find(self, case_id: str, state: State) -> Case | None:
        """The case; what the cluster file granted is one too."""
        return self.known.get(case_id) or next((case for case in filed(state) if case.id == case_id), None)

    def all(self, state: State) -> list[Case]:
        """Every case, by begin and name, those of the cluster file too."""
        others = [case for case in filed(state) if case.id not in self.known]
        return sorted([*self.known.values(), *others], key=lambda case: (case.begin, case.id))

    def where(self, holds: Callable[[Case], bool]) -> list[Case]:
        return [case for case in self.known.values() if holds(case)]


def filed(state: State) -> Iterator[Case]:
    """What the state knows, as cases: for those that came from the cluster file."""
    for held in state.exemptions.values():
        yield Case(held.id, held.kind, held.account, held.owner, held.reason, held.begin, held.end, held.begin, GRANTED,
                   held.approver, cap=held.cap, share=held.share, donor=held.donor,
                   node=held.node)  # fmt: skip
    for kept in state.reservations.values():
        yield Case(kept.id, RESERVATION, kept.account, kept.owner, kept.reason, kept.begin, kept.end, kept.begin,
                   GRANTED, kept.approver, nodes=kept.nodes, gpus_per_node=kept.gpus_per_node,
                   pool=kept.pool)  # fmt: skip
