"""From what a request brings (a token, or the kernel's word for a peer) to a principal."""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from mirab.model.records import Grant, TokenRow
from mirab.model.units import AccountPath, Instant
from mirab.service.auth.failures import FailureLimit
from mirab.service.auth.peers import Peer, unix_ids, user_name
from mirab.service.auth.principal import Principal
from mirab.service.auth.rules import ADMIN, RESEARCHER
from mirab.service.auth.tokens import LONGEST_TOKEN, TokenStore, digest_of, local_digest, valid

RECENT_KEPT = 1_000


class UnknownCallerError(Exception):
    """Who asks has not said who they are, or is not believed; the sentence says what to do."""


class TooManyFailuresError(Exception):
    """So many bad tokens came from there that none is looked up for `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__("too many requests with a bad token came from your address: wait, and check the token")
        self.wait = wait


class NotYourServiceError(Exception):
    """The kernel says who it is, and this service is not for them."""


@dataclass(frozen=True, slots=True)
class LocalUsers:
    """What Unix users of this machine may do over the socket.

    Attributes:
        service_uid: the user that the service runs as. Unless it is root, it can run jobs only as this user, so it
            takes commands over the socket only from this user and from root.
        role: what other users are where nothing was granted to them: a role on the whole tree; "" = nothing.
    """

    service_uid: int
    role: str = RESEARCHER

    @classmethod
    def of_this_process(cls, role: str = RESEARCHER) -> LocalUsers:
        return cls(os.geteuid(), role)

    @property
    def as_root(self) -> bool:
        return self.service_uid == 0


class Authenticator:
    """Makes principals. Safe to call from many threads.

    A role on an account that was renamed or merged is one on the account that goes on for it.

    Args:
        heirs: account that is no more -> the one that goes on for it, as the budgets in force say.
    """

    def __init__(
        self,
        store: TokenStore,
        now: Callable[[], Instant],
        local: LocalUsers,
        limit: FailureLimit | None = None,
        heirs: Callable[[], Mapping[AccountPath, AccountPath]] = dict,
    ) -> None:
        self._store, self._now, self._local, self._heirs = store, now, local, heirs
        self._limit = limit or FailureLimit()
        self._lock = Lock()
        self._recent: OrderedDict[str, None] = OrderedDict()

    def of_token(self, secret: str, origin: str) -> Principal:
        """The principal of a token.

        Raises:
            UnknownCallerError: there is no such token, or no longer.
            TooManyFailuresError: and it was not even looked up; a token that was good before still is.
        """
        digest = digest_of(secret[:LONGEST_TOKEN])
        if digest not in self._recent and (wait := self._limit.wait(origin)):
            raise TooManyFailuresError(wait)
        row = self._store.token(digest)
        if row is None or not hmac.compare_digest(row.digest, digest) or not valid(row, self._now()):
            self._limit.failed(origin)
            raise UnknownCallerError("the token is not known, has expired or was revoked: ask for a new one")
        self._remember(digest)
        return self._of_row(row, origin)

    def of_session(self, digest: str, origin: str) -> Principal:
        """The principal of a session that was begun with the token of that hash.

        Raises:
            UnknownCallerError: the token has expired or was revoked meanwhile.
        """
        row = self._store.token(digest)
        if row is None or not valid(row, self._now()):
            raise UnknownCallerError("your token has expired or was revoked: log in with a new one")
        return self._of_row(row, origin)

    def _of_row(self, row: TokenRow, origin: str) -> Principal:
        uid, gid = (unix_ids(row.user) if self._local.as_root else None) or (None, None)
        return self._of(row.user, row.grants, origin, uid, gid, row.id)

    def _of(
        self, user: str, grants: tuple[Grant, ...], origin: str, uid: int | None, gid: int | None,
        token_id: str | None = None,
    ) -> Principal:  # fmt: skip
        heirs = self._heirs()
        present = tuple(replace(each, account=heirs.get(AccountPath(each.account), each.account)) for each in grants)
        return Principal(user, present, origin, uid, gid, token_id, heirs)

    def _remember(self, digest: str) -> None:
        """That it was good once, so that a neighbour's failures do not shut it out."""
        with self._lock:
            self._recent[digest] = None
            self._recent.move_to_end(digest)
            while len(self._recent) > RECENT_KEPT:
                self._recent.popitem(last=False)

    def of_peer(self, peer: Peer) -> Principal:
        """The principal of a Unix user.

        Raises:
            NotYourServiceError: the service could run their jobs only as somebody else.
        """
        name = user_name(peer.uid)
        uid, gid = (peer.uid, peer.gid) if self._local.as_root else (None, None)
        if peer.uid in (0, self._local.service_uid):
            return Principal(name, (Grant(ADMIN),), peer.origin, uid, gid)
        if not self._local.as_root:
            raise NotYourServiceError(
                f"this service runs as {user_name(self._local.service_uid)} and would run your jobs as that user: "
                "use a service that runs as root, your own (`mirab serve`), or a token"
            )
        return self._of(name, self._grants_of(name), peer.origin, uid, gid)

    def _grants_of(self, user: str) -> tuple[Grant, ...]:
        row = self._store.token(local_digest(user))
        if row is not None and valid(row, self._now()):
            return row.grants
        return (Grant(self._local.role),) if self._local.role else ()
