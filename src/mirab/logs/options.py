"""How a log is to be read: everything that a person can choose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from mirab.logs.contracts import ContractRules
from mirab.logs.errors import LogError
from mirab.model.units import Duration, parse_duration

UNITS = ("gpu", "cpu", "node")
ACCOUNTS_BY = ("user", "account", "partition", "qos", "vc")
MOST_COPIES = 1_000


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Choices for one log; the defaults ask for what can be detected to be detected, and said.

    Attributes:
        form: name of the log's form (see `mirab.logs.detect.FORMS`); None = detect.
        columns: names of the columns of an `sacct` output without header, separated by commas.
        account_by: which of a job's names is its account, one of `ACCOUNTS_BY`; None = what is natural for the form.
        unit: what is shared out, one of `UNITS`; None = GPUs if the log has them, else cores, else nodes.
        overlay: ``4x7d`` = four copies of the log on top of each other, each shifted by 7 days more than the one
            before, cyclically inside the log's period.
        from_, to: the part of the log to use: a duration from its start (``3d``) or a date (``2017-10-02``).
        scale: 0.5 = every second arrival; 2 = twice the arrivals. Deterministic.
        contract: the contract of jobs whose log states none, and overrides.
        cluster: a cluster file (YAML), or the nodes file of an Alibaba log (CSV); None = infer the cluster.
        node_events: hardware events (CSV).
        timezone: of times written without one: ``Europe/Berlin``, ``UTC``, ``+08:00``; None = UTC, and said.
    """

    form: str | None = None
    columns: str = ""
    account_by: str | None = None
    unit: str | None = None
    overlay: str | None = None
    from_: str | None = None
    to: str | None = None
    scale: float = 1.0
    contract: ContractRules = field(default_factory=ContractRules)
    cluster: Path | None = None
    node_events: Path | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        _one_of("unit", self.unit, UNITS)
        _one_of("account-by", self.account_by, ACCOUNTS_BY)
        if not 0 < self.scale <= MOST_COPIES:
            raise LogError(f"scale {self.scale} is not above 0 and at most {MOST_COPIES}", remedy="try 0.5 or 2")
        if self.overlay is not None:
            parse_overlay(self.overlay)


def _one_of(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise LogError(f"{name} {value!r} is not known", remedy=f"choose one of {', '.join(known)}")


def parse_overlay(text: str) -> tuple[int, Duration]:
    """Copies and the shift between them, of ``4x7d``.

    Raises:
        LogError: not of that form, no copy, or no shift.
    """
    match = re.fullmatch(r"\s*(\d{1,4})\s*x\s*(\S.*?)\s*", text, re.ASCII)
    try:
        copies, shift = (int(match[1]), parse_duration(match[2])) if match else (0, 0)
    except ValueError:
        copies, shift = 0, 0
    if not 1 <= copies <= MOST_COPIES or not shift:
        raise LogError(f"{text!r} is not an overlay", remedy="write copies x shift, such as 4x7d")
    return copies, shift
