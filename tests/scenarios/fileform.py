"""The scenario file form: strict, line based, errors that name file and line.

`docs/reference/scenario-files.md` is the reference for people; a test compares it with the tables here.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mirab.model.units import Duration, Instant, parse_duration

COMMENT = "--"


class ScenarioError(Exception):
    """The file is not a scenario; the message starts with ``file:line:``."""


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of line is written: its words in order, ``on X`` style words, and ``key=value`` settings."""

    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    why: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One line, split and checked against its form. `reason` is what follows ``why``."""

    verb: str
    where: str
    words: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    reason: tuple[str, Mapping[str, str]] | None = None

    def get(self, name: str, default: str = "") -> str:
        return self.settings.get(name, default)

    def duration(self, name: str, default: Duration = 0) -> Duration:
        text = self.settings.get(name)
        return default if text is None else duration_of(text, self.where)

    def flag(self, name: str, default: bool) -> bool:
        text = self.settings.get(name)
        if text is None:
            return default
        if text not in ("yes", "no"):
            raise ScenarioError(f"{self.where}: {name}={text}: write yes or no")
        return text == "yes"


SUBMIT_SETTINGS = (
    *("user", "min", "run", "limit", "grace", "checkpoint", "restart", "resume", "type", "cpus", "memory"),
    *("priority", "deadline", "preemptible", "held", "label", "after", "at_most"),
    *("start_delay", "never_starts", "launch_fails", "ignores_stop", "refuses_stop", "vouched"),
)
CLUSTER_LINES = {"pool": Form(("name",), (), ("nodes", "gpus", "type", "cpus", "memory", "weight", "domains"))}
BUDGET_SETTINGS = (
    *("save_for_gangs", "equal_users", "formerly", "closed"),
    *("gpus_max", "min_runtime_cap", "gang_gpus_max", "pool_shares"),
)
BUDGET_LINES = {"budget": Form(("account", "share"), (), BUDGET_SETTINGS)}
FACT_LINES = {
    "submit": Form(
        ("workloads", "account", "nodes-x-gpus"),
        (),
        SUBMIT_SETTINGS,
    ),
    "cancel": Form(("workloads",)),
    "requeue": Form(("workloads",)),
    "keep": Form(("workloads",), (), ("because",)),
    "let-go": Form(("workloads",)),
    "end": Form(("workloads",), (), ("outcome",)),
    "checkpoint": Form(("workloads",)),
    "suspend": Form(("workloads",)),
    "continue": Form(("workloads",)),
    "degraded": Form(("nodes",), (), ("cause", "repair")),
    "down": Form(("nodes",), (), ("cause", "repair")),
    "up": Form(("nodes",)),
    "budget": BUDGET_LINES["budget"],
    "reserve": Form(("id", "account", "nodes-x-gpus"), ("from", "until"), ("pool", "owner", "approver", "reason")),
    "unreserve": Form(("id",)),
    "exempt": Form(
        ("id", "kind", "account"), ("from", "until"), ("cap", "share", "donor", "node", "owner", "approver", "reason")
    ),
    "revoke": Form(("id",)),
    "look": Form(),
    "rebuild": Form(),
}
PLAN_LINES = {
    "nothing": Form(),
    "start": Form(("workloads",), ("on",), ("min", "resumed"), why=True),
    "preempt": Form(("workloads",), ("for",), ("grace",), why=True),
    "cancel": Form(("workloads",), (), ("grace",)),
    "requeue": Form(("workloads",), (), ("grace",)),
    "hold": Form(("workload",), ("on", "until"), ("reservation",)),
    "release": Form(("workload",)),
    "drain": Form(("nodes",), ("stop",)),
    "repair": Form(("nodes",)),
    "resume": Form(("nodes",)),
    "human": Form(("node", "workload")),
    "reject": Form(("workloads",), (), (), why=True),
    "wait": Form(("workloads",), (), (), why=True),
    "no-reason": Form(("workloads",)),
    "wake": Form(("instant",)),
    "running": Form(("workloads",)),
    "queued": Form(("workloads",)),
    "gone": Form(("workloads",)),
    "protected": Form(("workloads",), ("until",)),
    "share": Form(("account", "share")),
    "ratio": Form(("account", "number")),
    "usage": Form(("account", "gpu-time")),
    "commitment": Form(("account", "gpu-time")),
    "entitled": Form(("account", "gpu-time")),
}


@dataclass(frozen=True, slots=True)
class Round:
    """What happens at an instant (or is decided within a span), and what must be decided."""

    at: Instant
    until: Instant
    where: str
    facts: tuple[Statement, ...]
    plan: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file: prose for people, what there is, and the rounds in order of time."""

    name: str
    prose: str
    cluster: tuple[Statement, ...]
    budgets: tuple[Statement, ...]
    policy: Statement
    rounds: tuple[Round, ...]


def read_scenario(path: Path) -> Scenario:
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, name: str) -> Scenario:
    """The scenario in a text.

    Raises:
        ScenarioError: the first thing that is wrong, with file and line.
    """
    prose, sections = _sections(text, name)
    fixed: dict[str, list[tuple[str, str]]] = {}
    rounds: list[Round] = []
    pending: tuple[str, str, list[tuple[str, str]]] | None = None
    for where, heading, lines in sections:
        kind = heading.split()[0] if heading else ""
        if kind in ("cluster", "budgets", "policy"):
            if pending or rounds or kind in fixed or heading != kind:
                raise ScenarioError(f"{where}: '# {heading}': write '# {kind}' once, before the first '# at'")
            fixed[kind] = lines
        elif kind == "at" and pending is None:
            pending = (where, heading, lines)
        elif heading == "plan" and pending is not None:
            rounds.append(_round(pending, lines, rounds[-1].until if rounds else -1))
            pending = None
        else:
            raise ScenarioError(
                f"{where}: '# {heading}' cannot stand here: cluster, budgets, policy, then pairs of '# at', '# plan'"
            )
    if pending or not rounds:
        raise ScenarioError(f"{sections[-1][0] if sections else name + ':1'}: the file must end with a '# plan'")
    for kind in ("cluster", "budgets"):
        if not fixed.get(kind):
            raise ScenarioError(f"{name}:1: no '# {kind}' before the first '# at'")
    return Scenario(
        name,
        prose,
        tuple(statement(line, where, CLUSTER_LINES) for where, line in fixed["cluster"]),
        tuple(statement(f"budget {line}", where, BUDGET_LINES) for where, line in fixed["budgets"]),
        _policy(fixed.get("policy", []), name),
        tuple(rounds),
    )


def _sections(text: str, name: str) -> tuple[str, list[tuple[str, str, list[tuple[str, str]]]]]:
    prose: list[str] = []
    sections: list[tuple[str, str, list[tuple[str, str]]]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        if raw.startswith("#"):
            sections.append((where, raw[1:].split(f" {COMMENT}")[0].strip(), []))
        elif not sections:
            prose.append(raw)
        else:
            line = _without_comment(raw)
            if line:
                sections[-1][2].append((where, line))
    return "\n".join(prose).strip(), sections


def _without_comment(raw: str) -> str:
    line = raw.strip()
    return "" if line.startswith(COMMENT) else line.split(f" {COMMENT} ")[0].strip()


def _round(opened: tuple[str, str, list[tuple[str, str]]], plan: list[tuple[str, str]], after: Instant) -> Round:
    where, heading, facts = opened
    words = heading.split()
    if len(words) != 2:
        raise ScenarioError(f"{where}: write '# at 2h' or, for decisions within a span, '# at 2h..2h1m'")
    first, dots, last = words[1].partition("..")
    at = duration_of(first, where)
    until = duration_of(last, where) if dots else at
    if at <= after or until < at:
        raise ScenarioError(f"{where}: '# {heading}' is not after the round before it")
    if not plan:
        raise ScenarioError(f"{where}: its '# plan' is empty: write 'nothing' if nothing is to be decided")
    return Round(
        at,
        until,
        where,
        tuple(statement(line, spot, FACT_LINES) for spot, line in facts),
        tuple(statement(line, spot, PLAN_LINES) for spot, line in plan),
    )


def _policy(lines: list[tuple[str, str]], name: str) -> Statement:
    """``# policy``: the name of a stock policy, then any of its settings. Which exist is checked when it is built."""
    where = lines[0][0] if lines else f"{name}:1"
    words = [word for _, line in lines for word in split_line(line, where)]
    base = words.pop(0) if words and "=" not in words[0] else "budget"
    return Statement("policy", where, (base,), _settings(words, where))


def statement(line: str, where: str, forms: Mapping[str, Form]) -> Statement:
    """One line checked against the forms that are allowed where it stands."""
    verb, *rest = split_line(line, where)
    if verb not in forms:
        raise ScenarioError(f"{where}: {verb!r} is not a line that can stand here{_nearest(verb, forms)}")
    form = forms[verb]
    rest, reason = _split_reason(rest, form, where)
    count = len(form.words)
    words, rest = rest[:count], rest[count:]
    if len(words) < count or any("=" in word for word in words):
        raise ScenarioError(f"{where}: write '{verb} {' '.join(name.upper() for name in form.words)}'")
    settings: dict[str, str] = {}
    while rest and rest[0] in form.after:
        if len(rest) < 2:
            raise ScenarioError(f"{where}: nothing stands after {rest[0]!r}")
        settings[rest[0]], rest = rest[1], rest[2:]
    for key, value in _settings(rest, where).items():
        if key not in form.settings:
            raise ScenarioError(f"{where}: {verb} has no setting {key!r}{_nearest(key, form.settings)}")
        settings[key] = value
    return Statement(verb, where, tuple(words), settings, reason)


def _split_reason(rest: list[str], form: Form, where: str) -> tuple[list[str], tuple[str, Mapping[str, str]] | None]:
    if not form.why or "why" not in rest:
        return rest, None
    place = rest.index("why")
    if place + 1 == len(rest):
        raise ScenarioError(f"{where}: nothing stands after 'why': name a reason")
    return rest[:place], (rest[place + 1], _settings(rest[place + 2 :], where))


def split_line(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ScenarioError(f"{where}: {str(error).lower()}") from error


def _settings(words: list[str], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ScenarioError(f"{where}: {word!r} is not understood: settings are written key=value")
        if key in found:
            raise ScenarioError(f"{where}: {key} stands twice")
        found[key] = value
    return found


def _nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f": did you mean {close[0]!r}?" if close else f": known are {', '.join(known)}" if known else ""


def duration_of(text: str, where: str) -> Duration:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error


def names_of(text: str, where: str) -> list[str]:
    """``a1``, ``a1,b2`` or ``a1..a4`` as single names."""
    found: list[str] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        found += _counted(first, last, where) if dots else [part]
    return found


def _counted(first: str, last: str, where: str) -> list[str]:
    stem = first.rstrip("0123456789")
    start, end = first[len(stem) :], last[len(stem) :]
    if not last.startswith(stem) or not start.isdigit() or not end.isdigit() or int(start) > int(end):
        raise ScenarioError(f"{where}: {first}..{last} is not a range such as a1..a4")
    return [f"{stem}{number}" for number in range(int(start), int(end) + 1)]
