"""The contract of jobs whose log states none: a visible rule, and overrides by a file.

contract:
  small_slots: 2            # jobs of at most so many GPUs ...
  small_minimum: 15m        # ... get this minimum runtime,
  minimum: 2h               # all others this one
  cap: 8h                   # and none a longer one
  checkpoint: 30m           # or: never
  restart: 60s
  grace: 10s
  resume: yes
  rules:                    # for each setting, the first rule that matches and states it wins, even over the log
    - match: {account: vision/*, label: debug*, user: u0*, name: "*test*", slots: 1-2}
      min_runtime: 15m
      label: debug
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from mirab.logs.fields import span
from mirab.logs.yamltree import Entry, read_yaml
from mirab.model.units import HOUR, MINUTE, SECOND, Duration, format_duration


class Terms(NamedTuple):
    """What a log, or a rule, states of a contract; None = not stated. `checkpoint` 0 = never."""

    min_runtime: Duration | None = None
    checkpoint: Duration | None = None
    restart: Duration | None = None
    grace: Duration | None = None
    resume: bool | None = None


UNSTATED = Terms()
PATTERNS = ("account", "user", "label", "name")


class Agreed(NamedTuple):
    """The contract that a job gets."""

    min_runtime: Duration
    checkpoint: Duration
    restart: Duration
    grace: Duration
    resume: bool
    label: str


@dataclass(frozen=True, slots=True)
class Rule:
    """An override. Patterns are shell patterns (``*``, ``?``, ``[ab]``); `slots` is an inclusive range.

    `name` is the job's name, where the log tells it (sacct).
    """

    account: str = "*"
    user: str = "*"
    label: str = "*"
    name: str = "*"
    slots: tuple[int, int] = (0, 10**9)
    terms: Terms = UNSTATED
    new_label: str | None = None

    def matches(self, account: str, user: str, label: str, slots: int, name: str) -> bool:
        return (
            self.slots[0] <= slots <= self.slots[1]
            and fnmatchcase(account, self.account)
            and fnmatchcase(user, self.user)
            and fnmatchcase(label, self.label)
            and fnmatchcase(name, self.name)
        )


@dataclass(frozen=True, slots=True)
class ContractRules:
    """Defaults for what a log does not state, and overrides.

    Attributes:
        small_slots: a job of at most so many GPUs (or cores, or nodes) is small.
        small_minimum, minimum: minimum runtime of small jobs and of all others, never more than the job's time limit.
        cap: no minimum that a rule or a default gives is longer; what the log itself states is left to the policy.
        checkpoint: interval between checkpoints, 0 = never.
    """

    small_slots: int = 2
    small_minimum: Duration = 15 * MINUTE
    minimum: Duration = 2 * HOUR
    cap: Duration = 8 * HOUR
    checkpoint: Duration = 30 * MINUTE
    restart: Duration = 60 * SECOND
    grace: Duration = 10 * SECOND
    resume: bool = True
    rules: tuple[Rule, ...] = ()

    @property
    def by_name(self) -> bool:
        """Whether any rule asks for a job's name."""
        return any(rule.name != "*" for rule in self.rules)

    def agree(
        self,
        account: str,
        user: str,
        label: str,
        slots: int,
        terms: Terms = UNSTATED,
        limit: Duration | None = None,
        name: str = "",
    ) -> Agreed:
        """The contract of one job: rules before the log's own statements before defaults."""
        ruled, new_label = self._overrides(account, user, label, slots, name)
        stated = _first(ruled, terms)
        minimum = terms.min_runtime
        if ruled.min_runtime is not None:
            minimum = min(ruled.min_runtime, self.cap)
        elif minimum is None:
            minimum = min(self.small_minimum if slots <= self.small_slots else self.minimum, self.cap)
            minimum = minimum if limit is None else min(minimum, limit)
        return Agreed(
            minimum,
            self.checkpoint if stated.checkpoint is None else stated.checkpoint,
            self.restart if stated.restart is None else stated.restart,
            self.grace if stated.grace is None else stated.grace,
            self.resume if stated.resume is None else stated.resume,
            label if new_label is None else new_label,
        )

    def _overrides(self, account: str, user: str, label: str, slots: int, name: str) -> tuple[Terms, str | None]:
        terms, new_label = UNSTATED, None
        for rule in self.rules:
            if rule.matches(account, user, label, slots, name):
                terms = _first(terms, rule.terms)
                new_label = rule.new_label if new_label is None else new_label
        return terms, new_label

    def sentence(self, unit: str = "gpu") -> str:
        """The default rule as a note for people."""
        slots = {"gpu": "GPU", "cpu": "core", "node": "node"}[unit] + ("s" if self.small_slots != 1 else "")
        saves = f"a checkpoint every {format_duration(self.checkpoint)}" if self.checkpoint else "no checkpoints"
        more = f"; {len(self.rules)} overriding rules" if self.rules else ""
        return (
            f"the rule is that at most {self.small_slots} {slots} get a minimum of "
            f"{format_duration(self.small_minimum)}, else {format_duration(self.minimum)}, never beyond the time limit "
            f"or {format_duration(self.cap)}; {saves}, {format_duration(self.restart)} to restart{more}"
        )


def _first(before: Terms, after: Terms) -> Terms:
    return Terms._make(second if first is None else first for first, second in zip(before, after, strict=True))


def read_contract(path: Path) -> ContractRules:
    """The rules of a contract file.

    Raises:
        LogError: with the file and line, for anything that is not as the module's example.
    """
    root = read_yaml(path)
    top = root.fields("the file", ("contract",), ("contract",))["contract"]
    return contract_from(top)


_PARSE: dict[str, Callable[[str], Any]] = {}


def contract_from(entry: Entry) -> ContractRules:
    """The rules of a `contract` section."""
    known = [field.name for field in fields(ContractRules)]
    changes: dict[str, Any] = {}
    for key, value in entry.fields("contract", known).items():
        if key == "rules":
            changes["rules"] = tuple(_rule(item) for item in value.rows("rules"))
        else:
            changes[key] = value.parsed(key, _PARSE[key])
    return replace(ContractRules(), **changes)


def _rule(entry: Entry) -> Rule:
    found = entry.fields("the rule", ("match", *Terms._fields, "label"), ("match",))
    match = found["match"].fields("match", (*PATTERNS, "slots", "gpus"))
    patterns = {key: match[key].text(key) for key in PATTERNS if key in match}
    if "gpus" in match and "slots" in match:
        raise match["gpus"].error("match names both gpus and slots", "they mean the same: keep one")
    size = match.get("slots", match.get("gpus"))
    terms = Terms(**{key: found[key].parsed(key, _PARSE[key]) for key in Terms._fields if key in found})
    new_label = found["label"].text("label") if "label" in found else None
    bounds = size.parsed("gpus" if "gpus" in match else "slots", parse_range) if size is not None else (0, 10**9)
    return Rule(**patterns, slots=bounds, terms=terms, new_label=new_label)


def parse_range(text: str) -> tuple[int, int]:
    """An inclusive range of sizes: ``4``, ``1-2``, ``<=2``, ``>8``.

    Raises:
        ValueError: none of these.
    """
    compact = text.replace(" ", "")
    if match := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", compact, re.ASCII):
        low = int(match[1])
        high = int(match[2]) if match[2] else low
        if low <= high:
            return low, high
    elif match := re.fullmatch(r"(<=|<|>=|>)(\d{1,9})", compact, re.ASCII):
        size = int(match[2])
        return {"<=": (0, size), "<": (0, size - 1), ">=": (size, 10**9), ">": (size + 1, 10**9)}[match[1]]
    raise ValueError(f"{text!r} is not a size: write 4, 1-2, <=2 or >8")


def parse_flag(text: str) -> bool:
    """Yes or no, in the usual spellings.

    Raises:
        ValueError: neither.
    """
    word = text.strip().lower()
    if word in ("yes", "true", "on", "1"):
        return True
    if word in ("no", "false", "off", "0"):
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


def parse_interval(text: str) -> Duration:
    """A duration, or ``never`` = 0."""
    return 0 if text.strip().lower() == "never" else span(text)


def _size(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a count: write a whole number")
    return int(text)


_PARSE.update(
    small_slots=_size,
    small_minimum=span,
    minimum=span,
    min_runtime=span,
    cap=span,
    checkpoint=parse_interval,
    restart=span,
    grace=span,
    resume=parse_flag,
)
