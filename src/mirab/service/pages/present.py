"""The present as bytes, made once for all who look within a second: a page that many keep open costs no more."""

from __future__ import annotations

import json
from threading import Lock
from time import monotonic
from weakref import WeakKeyDictionary

from mirab.service.api.parts import Parts

FRESH = 1.0
"""Seconds."""


class Present:
    """The last answer of each service of this process, and when it was made."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: WeakKeyDictionary[Parts, tuple[float, bytes]] = WeakKeyDictionary()

    def text(self, parts: Parts) -> bytes:
        with self._lock:
            made = self._made.get(parts)
            if made is not None and monotonic() - made[0] < FRESH:
                return made[1]
            text = json.dumps(parts.views.present(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            data = text.encode("utf-8", "replace")
            self._made[parts] = (monotonic(), data)
            return data


PRESENT = Present()
