"""The file of gates: what a replay or a rollout must show, and the five decisions that people must have made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mirab.logs.fields import count, span
from mirab.logs.yamltree import Entry, advice, parse_yaml
from mirab.model.settings import parse_setting
from mirab.model.units import SECOND, WHOLE, parse_share
from mirab.sim.scenarios import SCENARIOS
from mirab.study.catalogue import BY_KEY
from mirab.study.demand import CLASSES

Bound: TypeAlias = float
"""A ratio from 0 to 1, seconds, or a count."""

FIVE = ("unit", "hierarchy", "window", "contract", "exception")
"""The decisions without which nothing should be rolled out: what is counted, who stands under whom, over how long it is
judged, what a run may rely on, and how an exception is made."""
DECISION_KEYS = ("says", "owner", "date", "settings")
PERCENTILES = ("p50", "p90", "p99")
LIMITS = ("at_least", "at_most", "worse_by_at_most")
ALWAYS = ("check", "because", "scenarios")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of check.

    Attributes:
        unit: of its limits: ``ratio``, ``span``, ``count``, or ``""`` where it has none.
        keys: what a gate of this kind may say beside `ALWAYS`; `needs`: one of these it must say.
        usual: limits where the gate says none.
    """

    name: str
    means: str
    unit: str
    keys: tuple[str, ...]
    needs: tuple[str, ...] = ()
    usual: Mapping[str, Bound] = field(default_factory=dict)


_WAIT = ("at_most", "worse_by_at_most", "percentile")
SPECIAL = {
    kind.name: kind
    for kind in (
        Kind("sustained-demand", "no account with sustained demand got less than its share in any window", "ratio",
             ("at_least",), usual={"at_least": 0.95}),
        Kind("lost-work", "work lost to preemption, of all allocated time", "ratio", ("at_most", "worse_by_at_most"),
             needs=("at_most", "worse_by_at_most")),
        Kind("deadlines", "workloads that named a deadline and met it", "ratio", ("at_least", "worse_by_at_most"),
             usual={"at_least": 1.0}),
        Kind("debug-wait", "how long debug work waits", "span", _WAIT, needs=("at_most", "worse_by_at_most")),
        Kind("starvation", "how long a workload was first of an account below its share, and waited", "span",
             ("at_most", "worse_by_at_most"), needs=("at_most", "worse_by_at_most")),
        Kind("large-gangs", "how long large gangs wait", "span", (*_WAIT, "classes"),
             needs=("at_most", "worse_by_at_most")),
        Kind("contracts", "runs stopped inside their minimum by anything but hardware", "count", ("at_most",),
             usual={"at_most": 0}),
        Kind("exceptions", "every exception has an end, and none is in force past it", "", ("longest",)),
        Kind("decisions", "the five decisions are stated, owned and dated", "", ()),
    )
}  # fmt: skip


def kind_of(name: str) -> Kind | None:
    """The kind of check of that name; any measure of the catalogue is one, by its key."""
    if name in SPECIAL:
        return SPECIAL[name]
    measure = BY_KEY.get(name)
    if measure is None:
        return None
    unit = {"span": "span", "count": "count"}.get(measure.kind, "ratio")
    return Kind(name, measure.note, unit, LIMITS, needs=LIMITS)


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate.

    Attributes:
        limits: by `LIMITS`; `relative`: `worse_by_at_most` is a part of the present value (of a wait).
        scenarios: only in these; empty = everywhere.
        longest: seconds that an exception may last; None = any.
        because: who asks for it, or why, as the file says.
    """

    name: str
    kind: Kind
    limits: Mapping[str, Bound] = field(default_factory=dict)
    relative: bool = False
    percentile: str = "p90"
    classes: tuple[str, ...] = ("large", "huge")
    scenarios: tuple[str, ...] = ()
    longest: float | None = None
    because: str = ""

    @property
    def compares(self) -> bool:
        """Whether it needs the present beside what is proposed."""
        return "worse_by_at_most" in self.limits


@dataclass(frozen=True, slots=True)
class Decision:
    """What has been decided; empty where the file does not say. `settings`: what the policy must then be."""

    says: str = ""
    owner: str = ""
    date: str = ""
    settings: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gates:
    """A file of gates."""

    gates: tuple[Gate, ...]
    decisions: Mapping[str, Decision]


def parse_gates(raw: bytes, path: Path) -> Gates:
    """A file of gates, of its bytes.

    Raises:
        LogError: with file and line; an unknown key names the nearest known one.
    """
    top = parse_yaml(raw, path).fields("the file", ("gates", "decisions"), ("gates",))
    entries = top["gates"].table("gates")
    if not entries:
        raise top["gates"].error("gates is empty", "name at least one gate")
    gates = tuple(_gate(name, entry) for name, entry in entries.items())
    decisions = _decisions(top["decisions"]) if "decisions" in top else {}
    if decisions and not any(gate.kind.name == "decisions" for gate in gates):
        gates = (*gates, Gate("decisions", SPECIAL["decisions"]))
    return Gates(gates, decisions)


def _gate(name: str, entry: Entry) -> Gate:
    bare = entry if isinstance(entry.value, dict) else Entry(entry.path, entry.line, {})
    if bare is not entry and entry.value != "":
        raise entry.error(f"gate {name} holds no keys", "write limits below it, such as at_most: 3%")
    table = bare.table(name)
    kind = _kind(name, table.get("check"), entry)
    found = bare.fields(f"gate {name}", (*ALWAYS, *kind.keys))
    if kind.needs and not any(key in found for key in kind.needs):
        raise entry.error(f"gate {name} has no limit", f"add {' or '.join(kind.needs)}")
    limits = {key: found[key].parsed(key, _bound(kind.unit, key)) for key in LIMITS if key in found}
    worse = found.get("worse_by_at_most")
    return Gate(
        name=name,
        kind=kind,
        limits={**({} if limits else kind.usual), **limits},
        relative=kind.unit == "span" and worse is not None and worse.text("worse_by_at_most").endswith("%"),
        percentile=_one_of(found.get("percentile"), "percentile", PERCENTILES, "p90"),
        classes=_some_of(found.get("classes"), "classes", CLASSES, ("large", "huge")),
        scenarios=_some_of(found.get("scenarios"), "scenarios", tuple(SCENARIOS), ()),
        longest=found["longest"].parsed("longest", span) / SECOND if "longest" in found else None,
        because=found["because"].text("because") if "because" in found else "",
    )


def _kind(name: str, check: Entry | None, entry: Entry) -> Kind:
    asked = name if check is None else check.text("check")
    kind = kind_of(asked)
    if kind is None:
        remedy = advice(asked, [*SPECIAL, *BY_KEY])
        if check is None:
            raise entry.error(f"gate {name!r} is no check and names none", f"add check:, or {remedy}")
        raise check.error(f"there is no check {asked!r}", remedy)
    return kind


def _bound(unit: str, key: str) -> Callable[[str], Bound]:
    """A limit in the unit of its check; a wait may be worse by a percentage too."""

    def parse(text: str) -> Bound:
        if unit == "count":
            return count(text)
        if unit == "ratio" or (key == "worse_by_at_most" and text.endswith("%")):
            return parse_share(text) / WHOLE
        return span(text) / SECOND

    return parse


def _one_of(entry: Entry | None, name: str, known: Sequence[str], usual: str) -> str:
    return usual if entry is None else entry.parsed(name, lambda text: _known(text, name, known))


def _some_of(entry: Entry | None, name: str, known: Sequence[str], usual: tuple[str, ...]) -> tuple[str, ...]:
    """One word, or a list of them."""
    if entry is None:
        return usual
    items: Iterable[Entry] = entry.rows(name) if isinstance(entry.value, list) else [entry]
    return tuple(item.parsed(name, lambda text: _known(text, name, known)) for item in items)


def _known(text: str, name: str, known: Sequence[str]) -> str:
    if text not in known:
        raise ValueError(f"{text!r} is not known: {advice(text, list(known))}")
    return text


def _decisions(entry: Entry) -> dict[str, Decision]:
    found = entry.fields("decisions", FIVE)
    return {name: _decision(name, item) for name, item in found.items()}


def _decision(name: str, entry: Entry) -> Decision:
    if entry.value == "":
        return Decision()
    found = entry.fields(f"decision {name}", DECISION_KEYS)
    words = {key: _word(found.get(key), key) for key in ("says", "owner", "date")}
    settings: dict[str, str | int | None] = {}
    if "settings" in found:
        for key, value in found["settings"].table("settings").items():
            settings[key] = value.parsed(key, lambda text, key=key: parse_setting(key, text))  # type: ignore[misc]
    return Decision(**words, settings=settings)


def _word(entry: Entry | None, key: str) -> str:
    """A decision that does not say something is a gate that is not met, not a file that cannot be read."""
    return "" if entry is None or entry.value == "" else entry.text(key).strip()
