"""Who may what: one table from each action to the roles that may do it, and where. Routes and commands name an action.

A role is granted on a subtree of accounts; granted on ``""`` it holds for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

RESEARCHER, MANAGER, OPERATOR, ADMIN = "researcher", "manager", "operator", "admin"
ROLES: Mapping[str, str] = MappingProxyType(
    {
        RESEARCHER: "submits jobs for the account and looks after their own",
        MANAGER: "a researcher who also divides the budget below the account and looks after its jobs",
        OPERATOR: "looks after the nodes, and stops, holds or requeues any job; reads no output or script",
        ADMIN: "may do everything, and gives out tokens",
    }
)

INCLUDES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {RESEARCHER: (RESEARCHER,), MANAGER: (MANAGER, RESEARCHER), OPERATOR: (OPERATOR,), ADMIN: tuple(ROLES)}
)
"""The roles that are no more than a role."""


class Scope(Enum):
    """Where a right holds."""

    OPEN = "anybody, without saying who they are"
    KNOWN = "anybody who has said who they are"
    MEMBER = "anybody with a role on any account"
    ACCOUNT = "those with one of the roles on the account in question or above it"
    CLUSTER = "those with one of the roles on the whole cluster"


@dataclass(frozen=True, slots=True)
class Rule:
    """Where a right holds, for which roles, and whether the owner of the job has it too.

    `own`: the job's user has it with any role on the job's account (so a token for one account is no key to another).
    """

    scope: Scope
    roles: tuple[str, ...] = ()
    own: bool = False


_EVERY_MEMBER = Rule(Scope.MEMBER, (RESEARCHER, MANAGER, OPERATOR, ADMIN))
_KEEPERS = Rule(Scope.ACCOUNT, (MANAGER, OPERATOR, ADMIN), own=True)
_TEAM = Rule(Scope.ACCOUNT, (MANAGER, ADMIN), own=True)
_OPERATORS = Rule(Scope.CLUSTER, (OPERATOR, ADMIN))

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "health.see": Rule(Scope.OPEN),
        "metrics.see": Rule(Scope.OPEN),
        "api.describe": Rule(Scope.OPEN),
        "version.see": Rule(Scope.KNOWN),
        "self.see": Rule(Scope.KNOWN),
        "job.list": _EVERY_MEMBER,
        "job.see": _EVERY_MEMBER,
        "share.see": _EVERY_MEMBER,
        "budget.see": _EVERY_MEMBER,
        "node.see": _EVERY_MEMBER,
        "squatter.see": _EVERY_MEMBER,
        "event.see": _EVERY_MEMBER,
        "decision.see": _EVERY_MEMBER,
        "job.submit": Rule(Scope.ACCOUNT, (RESEARCHER, MANAGER, ADMIN)),
        "job.cancel": _KEEPERS,
        "job.hold": _KEEPERS,
        "job.release": _KEEPERS,
        "job.requeue": _KEEPERS,
        "job.checkpoint": Rule(Scope.ACCOUNT, (ADMIN,), own=True),
        "job.private": _TEAM,
        "job.output": _TEAM,
        "budget.set": Rule(Scope.ACCOUNT, (MANAGER, ADMIN)),
        "node.drain": _OPERATORS,
        "node.resume": _OPERATORS,
        "node.report": _OPERATORS,
        "token.own": _EVERY_MEMBER,
        "token.any": Rule(Scope.CLUSTER, (ADMIN,)),
        "audit.see": _OPERATORS,
    }
)
"""Action -> rule.

``job.private`` is the script, arguments, folder and environment of a job; ``job.see`` all the rest of it, which
everybody sees, as in squeue: who runs and waits for what is how people judge whether the sharing is fair.
``budget.set`` is asked about the account whose division changes: the parent of each share that differs.
``token.own``: tokens for oneself, with no more rights than one has; ``token.any``: for anybody.
"""


def covers(subtree: str, account: str) -> bool:
    """Whether an account is a subtree's root or below it; ``""`` is the whole tree."""
    return not subtree or account == subtree or account.startswith(f"{subtree}/")
