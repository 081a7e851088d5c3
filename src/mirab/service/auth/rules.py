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
    """What a right is, where it holds, for which roles, and whether the owner of the job has it too.

    `own`: the job's user has it with any role on the job's account (so a token for one account is no key to another).
    """

    what: str
    scope: Scope
    roles: tuple[str, ...] = ()
    own: bool = False


def _members(what: str) -> Rule:
    return Rule(what, Scope.MEMBER, (RESEARCHER, MANAGER, OPERATOR, ADMIN))


def _keepers(what: str) -> Rule:
    return Rule(what, Scope.ACCOUNT, (MANAGER, OPERATOR, ADMIN), own=True)


def _team(what: str) -> Rule:
    return Rule(what, Scope.ACCOUNT, (MANAGER, ADMIN), own=True)


def _operators(what: str) -> Rule:
    return Rule(what, Scope.CLUSTER, (OPERATOR, ADMIN))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "health.see": Rule("see whether the service is well", Scope.OPEN),
        "metrics.see": Rule("read the metrics", Scope.OPEN),
        "api.describe": Rule("read the description of the API", Scope.OPEN),
        "page.see": Rule("load the pages, which hold nothing until you say who you are", Scope.OPEN),
        "session.end": Rule("log out of the pages", Scope.OPEN),
        "session.begin": Rule("log in to the pages with their token", Scope.KNOWN),
        "version.see": Rule("see the version", Scope.KNOWN),
        "self.see": Rule("see who they are", Scope.KNOWN),
        "job.list": _members("list jobs"),
        "job.see": _members("see a job"),
        "share.see": _members("see the shares"),
        "budget.see": _members("see the budgets"),
        "node.see": _members("see the nodes"),
        "squatter.see": _members("see who holds GPUs without progress"),
        "event.see": _members("follow the events"),
        "decision.see": _members("see the decisions"),
        "replay.see": _members("see the replays that are kept"),
        "forecast.see": _members("see how past forecasts held"),
        "forecast.ask": Rule("ask when jobs of an account would start", Scope.ACCOUNT, (RESEARCHER, MANAGER, ADMIN)),
        "job.submit": Rule("submit jobs", Scope.ACCOUNT, (RESEARCHER, MANAGER, ADMIN)),
        "job.cancel": _keepers("cancel a job"),
        "job.hold": _keepers("hold a job"),
        "job.release": _keepers("release a job"),
        "job.requeue": _keepers("requeue a job"),
        "job.checkpoint": Rule("say that a job's work is safe", Scope.ACCOUNT, (ADMIN,), own=True),
        "job.private": _team("see what a job executes: script, arguments, folder, environment"),
        "job.output": _team("read a job's output"),
        "budget.set": Rule("divide a budget", Scope.ACCOUNT, (MANAGER, ADMIN)),
        "rollout.see": _members("see which accounts are enforced upon"),
        "rollout.set": Rule("roll out", Scope.CLUSTER, (ADMIN,)),
        "report.see": _members("see the measures of the last window"),
        "whatif.ask": _members("try a division of the budgets on the last days"),
        "exception.see": _members("see the exceptions"),
        "exception.request": Rule("ask for an exception", Scope.ACCOUNT, (RESEARCHER, MANAGER, ADMIN)),
        "exception.approve": Rule("approve exceptions", Scope.ACCOUNT, (MANAGER, ADMIN)),
        "exception.revoke": Rule("revoke an exception", Scope.ACCOUNT, (MANAGER, ADMIN), own=True),
        "node.drain": _operators("drain a node"),
        "node.resume": _operators("put a node back into use"),
        "node.report": _operators("report on a node"),
        "token.own": _members("have tokens of their own"),
        "token.any": Rule("give out tokens to others", Scope.CLUSTER, (ADMIN,)),
        "audit.see": _operators("read the audit log"),
    }
)
"""Action -> rule.

``job.see`` is all of a job but what ``job.private`` names. Everybody sees it, as in squeue: who runs and waits for what
is how people judge whether the sharing is fair.
``exception.approve`` is asked about the account that holds everybody whom the exception may cost something.
``budget.set`` is asked about the account whose division changes: the parent of each share that differs.
``token.own``: tokens for oneself, with no more rights than one has; ``token.any``: for anybody.
"""
