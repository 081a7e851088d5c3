"""Commands about nodes: drain, resume, and reports of what was seen on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from mirab.core.state import State
from mirab.model.events import Event, NodeDegraded, NodeUp
from mirab.model.units import Instant, NodeName
from mirab.service.auth.principal import Principal
from mirab.service.desk.errors import invalid, not_found
from mirab.service.desk.forms import check_word
from mirab.service.desk.office import BRIEF, Office, audited, require_operator
from mirab.service.desk.xid import judged
from mirab.service.inbox import Entry

TOLD = {"degraded": "draining", "draining": "draining", "repair": "drained", "down": "down"}
"""What is written into the audit log, in the words of `mirab node ls`; a sick node drains from the next decision on."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What came of a report. `degrades`: the node takes nothing new and drains."""

    node: NodeName
    degrades: bool
    sentence: str


class NodeCommands:
    """For operators of the whole cluster. Each may be repeated: a node that is as it should be stays so."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def drain(self, who: Principal, node: str, why: str) -> None:
        """Let nothing new start on it, empty it when all minimums there are over, and send it to repair."""
        require_operator(who, "node.drain", "drain nodes")
        if not why.strip():
            raise invalid("say why the node is drained (--reason): whoever wonders about it reads that")
        self._change(who, "node.drain", node, why, _sick(f"{who.user}: {why}"))

    def resume(self, who: Principal, node: str, why: str = "") -> None:
        """It is healthy: a drain that goes on is undone, a node in repair takes work again."""
        require_operator(who, "node.resume", "resume nodes")
        self._change(who, "node.resume", node, why, _well)

    def report(self, who: Principal, node: str, xid: int | None = None, text: str = "") -> Reported:
        """What a monitor or a person saw. An XID that means a hardware fault drains the node; all else is noted."""
        require_operator(who, "node.report", "report on nodes")
        if xid is None and not text.strip():
            raise invalid("report what was seen: an XID (--xid 79), or words")
        if xid is not None and xid < 1:
            raise invalid(f"{xid} is no XID: they count from 1")
        found = None if xid is None else judged(xid)
        seen = text if found is None else f"XID {xid}: {found.means}" + (f" ({text})" if text else "")
        degrades = found is not None and found.degrades
        name = self._change(who, "node.report", node, seen, _sick(seen) if degrades else _as_it_is)
        done = "it takes nothing new and drains" if degrades else "noted; the node goes on"
        return Reported(name, degrades, f"{name}: {seen}; {done}")

    def _change(self, who: Principal, action: str, node: str, why: str,
                facts_for: Callable[[State, NodeName, Instant], tuple[Event, ...]]) -> NodeName:  # fmt: skip
        check_word("why", why, BRIEF)

        def build(state: State, now: Instant) -> Entry:
            name = known_node(state, node)
            facts = facts_for(state, name, now)
            before = TOLD.get(health_of(state, name), "up")
            after = "" if not facts else "up" if isinstance(facts[0], NodeUp) else "draining"
            return Entry(facts, (audited(who, now, action, name, before, after, why),))

        self._office.live.send(build)
        return NodeName(node)


def known_node(state: State, node: str) -> NodeName:
    """The node of that name.

    Raises:
        DeskError: there is none; the nearest is named.
    """
    if node in state.places:
        return NodeName(node)
    close = get_close_matches(node, [str(name) for name in state.places], 1, 0.3)
    raise not_found(
        f"there is no node {node[:80]!r}: " + (f"did you mean {close[0]}?" if close else "see `mirab node`")
    )


def health_of(state: State, node: NodeName) -> str:
    """``up``, or what troubles it."""
    trouble = state.troubled.get(state.places[node])
    return "up" if trouble is None else trouble.health.value


def _sick(cause: str) -> Callable[[State, NodeName, Instant], tuple[Event, ...]]:
    def facts(state: State, node: NodeName, now: Instant) -> tuple[Event, ...]:
        trouble = state.troubled.get(state.places[node])
        return () if trouble is not None and not trouble.healthy_again else (NodeDegraded(now, node, cause),)

    return facts


def _well(state: State, node: NodeName, now: Instant) -> tuple[Event, ...]:
    return (NodeUp(now, node),) if state.places[node] in state.troubled else ()


def _as_it_is(state: State, node: NodeName, now: Instant) -> tuple[Event, ...]:
    return ()
