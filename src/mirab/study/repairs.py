"""Hardware events, and which of them would have needed a human to talk to the owner of a run."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

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

    def overdue(self, serial: int) -> None:
        """A run was still there when cap and grace were over."""
        self._needed_human.add(serial)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Watch:
    """A run on a node that has fallen sick: is it gone in time?"""

    __slots__ = ("at", "serial")

    def __init__(self, serial: int, at: Instant) -> None:
        self.serial = serial
        self.at = at

    def due(self, started_at: Instant | None, patience: Duration) -> Instant:
        """When it must be gone: its minimum counts from its start if it was still starting when the node fell sick."""
        return max(self.at, started_at or self.at) + patience
