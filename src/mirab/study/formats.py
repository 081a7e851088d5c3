"""How numbers, spans and instants are written for people, the same in text, pages and sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from mirab.model.units import DAY, HOUR, MINUTE, SECOND, Instant
from mirab.model.units import plural as plural

ABSENT = "–"
"""Written where a measure has no value."""

_SLOT_WORDS = {"gpu": ("GPU", "GPUs"), "cpu": ("core", "cores"), "node": ("node", "nodes")}


def count(value: float | None) -> str:
    """A whole number with thousands separated: ``12,345``."""
    return ABSENT if value is None else f"{round(value):,}"


def percent(ratio: float | None, places: int = 1) -> str:
    """A ratio as a percentage: ``98.4 %``. Not quite everything never reads as 100 %, nor a little as 0 %."""
    if ratio is None:
        return ABSENT
    step = 10.0 ** -(places + 2)
    if 1 - step < ratio < 1 or 0 < ratio < step / 2:
        return f"{'>' if ratio > 0.5 else '<'}{(1 - step if ratio > 0.5 else step) * 100:.{places}f} %"
    return f"{ratio * 100:.{places}f} %"


def points(difference: float | None) -> str:
    """A difference of two ratios in percentage points: ``+1.2 pt``."""
    return ABSENT if difference is None else f"{_signed(difference * 100, 1)} pt"


def _signed(value: float, places: int) -> str:
    text = f"{abs(value):,.{places}f}"
    if not float(text.replace(",", "")):
        return f"±{text}"
    return f"+{text}" if value > 0 else f"−{text}"


def signed_count(value: float | None) -> str:
    return ABSENT if value is None else _signed(value, 0)


def span(seconds: float | None) -> str:
    """A length of time in the unit that people would use: ``24 s``, ``19 min``, ``1.8 h``, ``2.5 d``."""
    if seconds is None:
        return ABSENT
    for unit, size, limit in (("s", 1, 59.5), ("min", 60, 59.5 * 60), ("h", 3600, 47.95 * 3600)):
        if abs(seconds) < limit:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds / 86400)} d"


def signed_span(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    if not seconds:
        return "±0 s"
    return ("+" if seconds > 0 else "−") + span(abs(seconds))


def _short(value: float) -> str:
    """At most one decimal, and none where it would be noise or zero."""
    text = f"{value:,.1f}"
    return text[:-2] if abs(value) >= 9.95 or text.endswith(".0") else text


def hours(amount: float | None) -> str:
    """An amount of GPU-hours: no decimals from ten on."""
    if amount is None:
        return ABSENT
    return f"{amount:,.0f}" if abs(amount) >= 9.5 or not amount else f"{amount:,.1f}"


def ratio(value: float | None) -> str:
    """Received over promised: ``0.87``."""
    return ABSENT if value is None else f"{value:.2f}"


def standing(value: float | None) -> str:
    """A ratio in a sentence that says on which side of 1 it is: ``0.87``, ``just under 1.00``."""
    text = ratio(value)
    return f"just under {text}" if value is not None and value < 1 and text == "1.00" else text


def times(factor: float | None) -> str:
    """How many times: ``1.16x``, ``12x``."""
    if factor is None:
        return ABSENT
    return f"{factor:.2f}×" if factor < 9.995 else f"{factor:,.0f}×"


def printable(text: str) -> str:
    """The text without control characters: a name from a log may not move a cursor or turn the direction of writing."""
    return "".join(char if char.isprintable() or char in "\n\u00a0" else "\ufffd" for char in text)


def times_word(number: int) -> str:
    """How often: ``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def slot_word(unit: str, number: float = 2) -> str:
    """What a slot is called: GPU, core or node, in the number given."""
    one, many = _SLOT_WORDS.get(unit, (unit, unit + "s"))
    return one if number == 1 else many


@dataclass(frozen=True, slots=True)
class Names:
    """How instants and slots are called in one replay.

    Attributes:
        origin: Unix milliseconds of instant 0; None = the log has no calendar, and instants are counted in days.
        unit: what a slot is: ``gpu``, ``cpu`` or ``node``.
        zone: time zone of the reader; None = that of this machine.
        order, preemption: those of the policy, since they decide what a reason means.
    """

    origin: int | None = None
    unit: str = "gpu"
    zone: tzinfo | None = None
    order: str = "budget"
    preemption: str = "budget"

    def at(self, instant: Instant, seconds: bool = False) -> str:
        """``day 3 04:12`` where the log has no calendar, else local ``2017-10-05 04:12``."""
        if self.origin is None:
            return _day_and_time(instant, seconds)
        local = datetime.fromtimestamp((self.origin + instant) / SECOND, self.zone)
        return local.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")

    def day(self, instant: Instant) -> str:
        """The day alone: ``day 3``, or ``Oct 5``."""
        if self.origin is None:
            return f"day {instant // DAY + 1}"
        local = datetime.fromtimestamp((self.origin + instant) / SECOND, self.zone)
        return f"{local:%b} {local.day}"

    def zone_note(self, instant: Instant) -> str:
        """Whose clock it is, for a line that names instants: `` (CET)``; nothing where the log has no calendar."""
        if self.origin is None:
            return ""
        local = datetime.fromtimestamp((self.origin + instant) / SECOND, self.zone).astimezone(self.zone)
        return f" ({local:%Z})"

    def since_midnight(self) -> int:
        """Milliseconds from the reader's midnight to instant 0."""
        if self.origin is None:
            return 0
        local = datetime.fromtimestamp(self.origin / SECOND, self.zone)
        return ((local.hour * 60 + local.minute) * 60 + local.second) * SECOND + local.microsecond // 1000

    @property
    def slot(self) -> str:
        """What one slot is called: ``GPU``."""
        return slot_word(self.unit, 1)

    @property
    def many(self) -> str:
        """What several are called: ``GPUs``."""
        return slot_word(self.unit)

    def asking(self, gpus_per_node: int) -> Names:
        """The same for one workload: beside GPUs there may be nodes without any, and then what it wants is cores."""
        return self if gpus_per_node or self.unit != "gpu" else replace(self, unit="cpu")

    def slots(self, number: int) -> str:
        return f"{number:,} {slot_word(self.unit, number)}"


def _day_and_time(instant: Instant, seconds: bool) -> str:
    """Days are counted from 1, as people do."""
    day, rest = divmod(instant, DAY)
    hour, rest = divmod(rest, HOUR)
    minute, rest = divmod(rest, MINUTE)
    clock = f"day {day + 1} {hour:02}:{minute:02}"
    return f"{clock}:{rest // SECOND:02}" if seconds else clock
