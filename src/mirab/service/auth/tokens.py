"""Tokens: 256 random bits, shown once, kept as their hash; and the roles of Unix users, who need none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol, TypedDict, Unpack

from mirab.model.records import AuditEntry, Grant, TokenRow, Write
from mirab.model.units import Duration, Instant, UserName
from mirab.service.auth.peers import user_name
from mirab.service.auth.principal import Principal, format_grant
from mirab.service.auth.rules import ADMIN

PREFIX = "mirab_"
LONGEST_TOKEN = 256
LOCAL = "local user "
"""With a user's name, what stands in place of the hash where roles are a Unix user's: no token has such a hash."""


class Terms(TypedDict, total=False):
    """For how long roles are given (None = for good), and what for."""

    lifetime: Duration | None
    note: str


class TokenStore(Protocol):
    def token(self, digest: str) -> TokenRow | None: ...
    def tokens(self) -> list[TokenRow]: ...
    def write(self, writes: Sequence[Write]) -> None: ...


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def local_digest(user: str) -> str:
    return LOCAL + user


def is_local(row: TokenRow) -> bool:
    return row.digest.startswith(LOCAL)


def valid(row: TokenRow, now: Instant) -> bool:
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def describe(row: TokenRow) -> str:
    """What a token allows, for the audit log; nothing of the token itself."""
    kind = "local user" if is_local(row) else "token for"
    return f"{kind} {row.user}: {', '.join(format_grant(grant) for grant in row.grants)}"


class TokenBook:
    """Gives out tokens and takes them back; each change is written together with its entry in the audit log."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def rows(self) -> list[TokenRow]:
        return self._store.tokens()

    def find(self, token_id: str) -> TokenRow | None:
        return next((row for row in self._store.tokens() if row.id == token_id), None)

    def issue(
        self, who: Principal, now: Instant, user: str, grants: Sequence[Grant], **terms: Unpack[Terms]
    ) -> tuple[str, TokenRow]:
        """A new token and its row."""
        secret = new_secret()
        row = _row(who, now, user, grants, digest_of(secret), terms)
        self._store.write([row, _entry(who, now, "token.create", row.id, "", describe(row), row.note)])
        return secret, row

    def grant_local(
        self, who: Principal, now: Instant, user: str, grants: Sequence[Grant], **terms: Unpack[Terms]
    ) -> TokenRow:
        """Give a Unix user these roles over the socket, in place of those that they had."""
        known = self._store.token(local_digest(user))
        row = _row(who, now, user, grants, local_digest(user), terms)
        if known is not None:
            row = replace(row, id=known.id)
        before = describe(known) if known is not None and valid(known, now) else ""
        self._store.write([row, _entry(who, now, "token.grant", row.id, before, describe(row), row.note)])
        return row

    def revoke(self, who: Principal, now: Instant, row: TokenRow) -> TokenRow:
        """From now on it is nobody's; revoked twice, nothing changes."""
        if row.revoked_at is not None:
            return row
        gone = replace(row, revoked_at=now)
        self._store.write([gone, _entry(who, now, "token.revoke", row.id, describe(row), "", "")])
        return gone


def first_admin_token(store: TokenStore, now: Instant) -> str | None:
    """A token with all rights for a store that has never had one, to be shown this once; else None."""
    if store.tokens():
        return None
    user = user_name(os.geteuid())
    who = Principal(user, origin="first start")
    secret, _ = TokenBook(store).issue(who, now, user, [Grant(ADMIN)], note="made at the first start")
    return secret


def _row(who: Principal, now: Instant, user: str, grants: Sequence[Grant], digest: str, terms: Terms) -> TokenRow:
    lifetime = terms.get("lifetime")
    return TokenRow(
        id=secrets.token_hex(6),
        digest=digest,
        user=UserName(user),
        grants=tuple(grants),
        created_at=now,
        created_by=who.user,
        expires_at=None if lifetime is None else now + lifetime,
        note=terms.get("note", ""),
    )


def _entry(who: Principal, now: Instant, action: str, target: str, before: str, after: str, why: str) -> AuditEntry:
    return AuditEntry(now, who.user, who.origin, action, target, before, after, why)
