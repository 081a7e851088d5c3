"""Idempotency keys: the same request with the same key is done once and answered alike, also after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

from mirab.model.records import IdempotentReply
from mirab.service.desk.errors import conflict
from mirab.service.desk.forms import SubmitForm, check_word

if TYPE_CHECKING:
    from mirab.store import Store

REMEMBERED = 4_096
"""Replies kept in memory, beyond those of one cycle: the store has them all."""
LONGEST_KEY = 200


def digest_of(form: SubmitForm) -> str:
    """What tells one request from another, whatever the order of its keys."""
    text = json.dumps(asdict(form), sort_keys=True, default=_plain, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in a request")


class Keys:
    """Requests under way, one at a time for each key, and the replies that the store may not show yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = Lock()
        self._turns: dict[tuple[str, str], tuple[Lock, int]] = {}
        self._recent: dict[tuple[str, str], IdempotentReply] = {}

    @contextmanager
    def turn(self, who: str, key: str) -> Iterator[None]:
        """Wait until no other request with this key is under way."""
        check_word("the Idempotency-Key", key, LONGEST_KEY)
        name = (who, key)
        with self._guard:
            lock, users = self._turns.get(name, (Lock(), 0))
            self._turns[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._turns.pop(name)
                if users > 1:
                    self._turns[name] = (lock, users - 1)

    def answered(self, who: str, key: str, digest: str) -> Any:
        """What was answered before; None = it is new.

        Raises:
            DeskError: the key was used for another request.
        """
        return self._checked(self._store.reply(key, who), key, digest)

    def in_flight(self, who: str, key: str, digest: str) -> Any:
        """The same of what has been accepted, and may not be recorded yet. In the decider's thread."""
        return self._checked(self._recent.get((who, key)), key, digest)

    def keep(self, reply: IdempotentReply) -> IdempotentReply:
        """Remember an answer until the store surely has it."""
        self._recent[reply.who, reply.key] = reply
        while len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]
        return reply

    def _checked(self, reply: IdempotentReply | None, key: str, digest: str) -> Any:
        if reply is None:
            return None
        if reply.request_digest != digest:
            raise conflict(
                f"the Idempotency-Key {key!r} was used for another request: use a new key for each new request"
            )
        return json.loads(reply.reply)
