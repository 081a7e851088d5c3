"""Hardware events, and which of them would have needed a human to talk to the owner of a run."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.model.policy import DRAIN_PAUSE, Exemption
from mirab.model.units import Duration, Instant, NodeName


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Repairs:
    """Counts node events, and those after which a run did not leave in time.

    Attributes:
        events: nodes that fell sick or died.
    """

    def __init__(self) -> None:
        self.events = 0
        self._needed_human: set[int] = set()
        self._serial = 0
        self._pauses: dict[str, tuple[str, Instant, Instant]] = {}
        self._sick: dict[NodeName, int] = {}

    def needing_human(self, overdue: frozenset[int] = frozenset()) -> int:
        """Events after which a run did not leave in time, with those whose run is overdue and still there."""
        return len(self._needed_human | overdue)

    def fell_sick(self, node: NodeName) -> int | None:
        """The node degraded. The number of the event, or None if it was sick already."""
        if node in self._sick:
            return None
        self.events += 1
        self._serial += 1
        self._sick[node] = self._serial
        return self._serial

    def died(self, node: NodeName) -> None:
        """The node is dead: an event of its own unless it was sick already."""
        if self._sick.pop(node, None) is None:
            self.events += 1

    def taken(self, node: NodeName) -> None:
        """It is empty and goes to repair."""
        self._sick.pop(node, None)

    def healthy(self, node: NodeName) -> int | None:
        """It is back. If nobody had to repair it there was no repair: the number of the event that is void."""
        serial = self._sick.pop(node, None)
        if serial is not None:
            self.events -= 1
            self._needed_human.discard(serial)
        return serial

    def called(self, node: NodeName) -> None:
        """Somebody is called because of this node; it counts if the node is sick."""
        if node in self._sick:
            self._needed_human.add(self._sick[node])

    def exempted(self, exemption: Exemption) -> None:
        """A pause of a drain: nobody has to leave the node before its end."""
        if exemption.kind == DRAIN_PAUSE:
            self._pauses[exemption.id] = exemption.node, exemption.begin, exemption.end

    def revoked(self, exemption_id: str, now: Instant) -> None:
        """A pause, if it is one, ends now."""
        if exemption_id in self._pauses:
            node, begin, end = self._pauses[exemption_id]
            self._pauses[exemption_id] = node, begin, min(end, now)

    def paused_until(self, node: NodeName, due: Instant) -> Instant:
        """The end of the last pause of the node's drain that began before what runs there was due to be gone; or 0."""
        ends = [end for name, begin, end in self._pauses.values() if name == node and begin <= due]
        return max(ends, default=0)

    def overdue(self, serial: int) -> None:
        """A run was still there when cap and grace were over."""
        self._needed_human.add(serial)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Watch:
    """A run on a node that has fallen sick: is it gone in time?"""

    __slots__ = ("at", "node", "serial")

    def __init__(self, serial: int, node: NodeName, at: Instant) -> None:
        self.serial = serial
        self.node = node
        self.at = at

    def due(self, started_at: Instant | None, patience: Duration) -> Instant:
        """When it must be gone: its minimum counts from its start if it was still starting when the node fell sick."""
        return max(self.at, started_at or self.at) + patience
