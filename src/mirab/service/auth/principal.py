"""Who is asking: a name, roles on subtrees of accounts, and where the request came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirab.model.accounts import covers, ledger_of, plain
from mirab.model.records import Grant
from mirab.model.units import AccountPath
from mirab.service.auth.rules import INCLUDES, ROLES, RULES, Rule, Scope


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program that has said who it is.

    Attributes:
        origin: where from, for the audit log: ``unix uid=1000``, ``10.0.0.3``.
        uid, gid: the Unix user that their jobs run as, where the service may choose; None = there is none.
        token_id: the token that was shown; None over the Unix socket.
        heirs: account that is no more -> the one that goes on for it. What is on record for the former is the latter's.
    """

    user: str
    grants: tuple[Grant, ...] = ()
    origin: str = ""
    uid: int | None = None
    gid: int | None = None
    token_id: str | None = None
    heirs: Mapping[AccountPath, AccountPath] = field(default_factory=dict, compare=False, repr=False)

    def may(self, action: str, account: str = "", owner: str | None = None) -> bool:
        """Whether they may do it to something of that account (``""`` = of the whole cluster) and owner.

        An account of a pool's ledger (``h100:vision``) is the same account: roles are of accounts, whatever the pool.

        Raises:
            KeyError: an action without a rule, which is a fault of the caller.
        """
        rule = RULES[action]
        if rule.scope in (Scope.OPEN, Scope.KNOWN):
            return True
        if rule.scope is Scope.MEMBER:
            return bool(self._roles_of(rule))
        account = plain(account)
        account = self.heirs.get(account, account)
        if rule.own and owner == self.user and any(covers(grant.account, account) for grant in self.grants):
            return True
        where = account if rule.scope is Scope.ACCOUNT else ""
        return any(covers(grant.account, where) for grant in self._roles_of(rule))

    def may_somewhere(self, action: str) -> bool:
        """Whether there is an account, or a job of their own, for which they may do it."""
        rule = RULES[action]
        if rule.scope is Scope.ACCOUNT:
            return bool(self.grants) if rule.own else bool(self._roles_of(rule))
        return self.may(action)

    def holds(self, grant: Grant) -> bool:
        """Whether a grant is no more than they have themselves, there or above."""
        where = self.heirs.get(AccountPath(grant.account), grant.account)
        return any(covers(own.account, where) and grant.role in INCLUDES[own.role] for own in self.grants)

    def _roles_of(self, rule: Rule) -> list[Grant]:
        return [grant for grant in self.grants if grant.role in rule.roles]


def parse_grant(text: str) -> Grant:
    """A grant as people write it: ``researcher:llm/pretrain``, or ``operator`` for the whole cluster.

    Raises:
        ValueError: no such role, or an account that cannot be.
    """
    role, _, account = text.partition(":")
    return checked(Grant(role.strip(), account.strip()))


def checked(grant: Grant) -> Grant:
    """The same grant.

    Raises:
        ValueError: its role does not exist, or its account is not written ``program/project``.
    """
    if grant.role not in ROLES:
        raise ValueError(f"there is no role {grant.role!r}: the roles are {', '.join(ROLES)}")
    if ledger_of(grant.account):
        raise ValueError(f"{grant.account!r} is an account in one pool, and roles are of accounts, whatever the pool: "
                         f"write {plain(grant.account)}")  # fmt: skip
    if grant.account and not all(grant.account.split("/")):
        raise ValueError(f"{grant.account!r} is not an account: write program/project, without a '/' at the ends")
    return grant


def format_grant(grant: Grant) -> str:
    """``researcher on llm/pretrain``, ``operator on the whole cluster``."""
    return f"{grant.role} on {grant.account or 'the whole cluster'}"
