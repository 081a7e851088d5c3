"""From the lines of a scenario file to the nouns of the model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from mirab.model.accounts import Budget, Budgets, sorted_shares
from mirab.model.policy import POLICIES, Exemption, Policy, Reservation
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.units import (
    SECOND,
    AccountPath,
    Instant,
    NodeMask,
    NodeName,
    UserName,
    WorkloadId,
    parse_duration,
    parse_share,
)
from mirab.model.workloads import Workload
from tests.pretend import Conduct
from tests.scenarios.fileform import Scenario, ScenarioError, Statement, names_of

PRIORITIES = {"LOW": 0, "NORMAL": 1, "HIGH": 2}
DEFAULT_GRACE = 10 * SECOND


def cluster_of(scenario: Scenario) -> Cluster:
    return Cluster(scenario.name, tuple(_pool(line) for line in scenario.cluster))


def _pool(line: Statement) -> Pool:
    count = _count(line, "nodes", 0)
    if not count:
        raise ScenarioError(f"{line.where}: a pool needs nodes=COUNT and gpus=COUNT or cpus=COUNT")
    return Pool(
        name=line.words[0],
        nodes=tuple(NodeName(f"{line.words[0]}{number}") for number in range(count)),
        gpus_per_node=_count(line, "gpus", 0),
        gpu_type=line.get("type"),
        cpus_per_node=_count(line, "cpus", 0),
        memory_mib_per_node=_count(line, "memory", 0),
        weight=thousandths(line.get("weight", "1"), line.where),
        domains=_domains(line, count),
    )


def _domains(line: Statement, nodes: int) -> tuple[NodeMask, ...]:
    """``domains=4+4``: the first four nodes are one rack, the next four another."""
    text = line.get("domains")
    if not text:
        return ()
    masks, first = [], 0
    for size in text.split("+"):
        if not size.isdigit():
            raise ScenarioError(f"{line.where}: domains={text}: write sizes such as 4+4")
        masks.append(((1 << int(size)) - 1) << first)
        first += int(size)
    if first != nodes:
        raise ScenarioError(f"{line.where}: domains={text} name {first} nodes, the pool has {nodes}")
    return tuple(masks)


def budgets_of(lines: Iterable[Statement]) -> Budgets:
    """A tree from lines ``budget path share``, parents before children."""
    lines = list(lines)
    try:
        return Budgets(_children("", lines))
    except ValueError as error:
        raise ScenarioError(f"{lines[0].where}: {error}") from error


def _children(parent: str, lines: list[Statement]) -> tuple[Budget, ...]:
    found = []
    for line in lines:
        path, _, name = line.words[0].rpartition("/")
        if path != parent:
            if path and not any(other.words[0] == path for other in lines):
                raise ScenarioError(f"{line.where}: {line.words[0]} has no line for its parent {path}")
            continue
        found.append(
            Budget(
                name,
                attempt(parse_share, line.words[1], line.where),
                _children(line.words[0], lines),
                save_for_gangs=line.flag("save_for_gangs", False),
                equal_users=line.flag("equal_users", True),
                formerly=tuple(line.get("formerly").split(",")) if line.get("formerly") else (),
                closed=line.get("closed"),
                gpus_max=_count(line, "gpus_max", 0) if "gpus_max" in line.settings else None,
                min_runtime_cap=line.duration("min_runtime_cap") if "min_runtime_cap" in line.settings else None,
                gang_gpus_max=_count(line, "gang_gpus_max", 0) if "gang_gpus_max" in line.settings else None,
                pool_shares=_pool_shares(line),
            )
        )
    return tuple(found)


def _pool_shares(line: Statement) -> tuple[tuple[str, int], ...]:
    """``pool_shares=h100:50%,a100:0%``"""
    shares: dict[str, int] = {}
    for part in line.get("pool_shares").split(",") if line.get("pool_shares") else ():
        pool, colon, share = part.partition(":")
        if not colon:
            raise ScenarioError(f"{line.where}: pool_shares={part}: write POOL:SHARE such as h100:50%")
        shares[pool] = attempt(parse_share, share, line.where)
    return sorted_shares(shares)


def policy_of(line: Statement) -> Policy:
    """A stock policy with settings; a setting's form follows the type of the field."""
    name = line.words[0]
    if name not in POLICIES:
        raise ScenarioError(f"{line.where}: no policy {name!r}: the stock ones are {', '.join(POLICIES)}")
    kinds = {item.name: str(item.type) for item in dataclasses.fields(Policy)}
    changes: dict[str, object] = {}
    for key, text in line.settings.items():
        if key not in kinds or key == "name":
            raise ScenarioError(f"{line.where}: a policy has no setting {key!r}: known are {', '.join(sorted(kinds))}")
        changes[key] = value_of(text, kinds[key], line.where)
    return dataclasses.replace(POLICIES[name], **changes)  # type: ignore[arg-type]


def workloads_of(line: Statement, at: Instant) -> list[tuple[Workload, Conduct]]:
    ids, account, _ = line.words
    conduct = Conduct(
        run=line.duration("run") if "run" in line.settings else None,
        start_delay=line.duration("start_delay"),
        never_starts=line.flag("never_starts", False),
        launch_fails=_count(line, "launch_fails", 0),
        ignores_stop=line.flag("ignores_stop", False),
        refuses_stop=line.flag("refuses_stop", False),
        vouched=line.flag("vouched", True),
    )
    shape = _shape(line)
    return [
        (
            Workload(
                WorkloadId(name),
                at,
                AccountPath(account),
                UserName(line.get("user", account.rpartition("/")[2])),
                shape,
                label=line.get("label"),
                checkpoint=line.duration("checkpoint"),
                restart=line.duration("restart"),
                resume=line.flag("resume", True),
                priority=_priority(line),
                preemptible=line.flag("preemptible", True),
                deadline_at=line.duration("deadline") if "deadline" in line.settings else None,
                held=line.flag("held", False),
            ),
            conduct,
        )
        for name in names_of(ids, line.where)
    ]


def _shape(line: Statement) -> Shape:
    nodes, gpus = nodes_by_gpus(line.words[2], line.where)
    return Shape(
        nodes,
        gpus,
        _count(line, "cpus", 0),
        _count(line, "memory", 0),
        tuple(line.get("type").split(",")) if line.get("type") else (),
        line.duration("min"),
        line.duration("limit") if "limit" in line.settings else None,
        line.duration("grace", DEFAULT_GRACE),
    )


def _priority(line: Statement) -> int:
    text = line.get("priority", "NORMAL")
    if text not in PRIORITIES:
        raise ScenarioError(f"{line.where}: priority={text}: write {', '.join(PRIORITIES)}")
    return PRIORITIES[text]


def reservation_of(line: Statement) -> Reservation:
    nodes, gpus = nodes_by_gpus(line.words[2], line.where)
    return Reservation(
        line.words[0],
        line.words[1],
        nodes,
        gpus,
        line.duration("from"),
        line.duration("until"),
        line.get("owner", "owner"),
        line.get("approver", "approver"),
        line.get("reason", "a deadline"),
        line.get("pool"),
    )


def exemption_of(line: Statement) -> Exemption:
    return Exemption(
        line.words[0],
        line.words[1],
        line.words[2],
        line.duration("from"),
        line.duration("until"),
        line.get("owner", "owner"),
        line.get("approver", "approver"),
        line.get("reason", "a deadline"),
        line.duration("cap"),
        attempt(parse_share, line.get("share", "0%"), line.where),
        line.get("donor"),
        line.get("node"),
    )


def nodes_by_gpus(text: str, where: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise ScenarioError(f"{where}: {text!r} is not NODESxGPUS such as 2x8")
    return int(match[1]), int(match[2])


def node_names(text: str, where: str) -> list[str]:
    """``n0``, ``n0-3`` or ``n0-1,n4`` as node names."""
    found: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([A-Za-z_-]*[A-Za-z_])(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ScenarioError(f"{where}: {part!r} is not a node or a range of nodes such as n0-3")
        last = int(match[3] or match[2])
        found += [f"{match[1]}{number}" for number in range(int(match[2]), last + 1)]
    return found


def value_of(text: str, kind: str, where: str) -> object:
    """A value written for a field of the given type, by the rules of scenario files."""
    bare = kind.removesuffix(" | None").strip()
    if kind.endswith("| None") and text in ("none", "never"):
        return None
    if bare in ("Instant", "Duration"):
        return attempt(parse_duration, text, where)
    if bare == "Charge":
        return attempt(parse_duration, text, where)
    if bare == "int":
        return attempt(int, text, where)
    if bare == "float":
        return attempt(float, text, where)
    if bare == "bool":
        return text == "yes"
    if bare.startswith("tuple"):
        return tuple(text.split(","))
    return text


def thousandths(text: str, where: str) -> int:
    match = re.fullmatch(r"(\d+)(?:\.(\d{1,3}))?", text)
    if match is None:
        raise ScenarioError(f"{where}: {text!r} is not a number with at most three decimals")
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))


def _count(line: Statement, key: str, default: int) -> int:
    text = line.get(key)
    if text and not text.isdigit():
        raise ScenarioError(f"{line.where}: {key}={text}: write a whole number")
    return int(text) if text else default


_T = TypeVar("_T")


def attempt(read: Callable[[str], _T], text: str, where: str) -> _T:
    try:
        return read(text)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error
