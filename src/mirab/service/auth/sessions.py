"""The cookie of the pages: a signed mark that a token was shown here, good for reading, and no token itself.

It holds the token's hash, so that revoking the token ends the session at once; whoever gets hold of it cannot make the
token of it, and can change nothing with it. Its name is the service's own: cookies do not tell ports apart.
"""

from __future__ import annotations

import hmac
import os
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from mirab.model.units import DAY, Instant

LIFETIME = 7 * DAY
KEY_BYTES = 32
LONGEST = 512
PATH = "/api/v1"


class Sessions:
    """Makes and reads the cookies of one service. `key`: its secret; None = one that lasts as long as this process."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(KEY_BYTES)
        self.cookie = f"mirab_{sha256(b'name' + self._key).hexdigest()[:8]}"

    def begin(self, digest: str, now: Instant, *, secure: bool) -> str:
        """The header `Set-Cookie` of a session for the token with that hash. `secure`: the browser came over HTTPS."""
        text = f"{now + LIFETIME}.{digest}"
        return self._written(f"{text}.{self._signed(text)}", secure)

    def end(self, *, secure: bool) -> str:
        return self._written("", secure) + "; Max-Age=0"

    def digest(self, header: str, now: Instant) -> str | None:
        """The token's hash that a header `Cookie` vouches for; None = it has no session of ours, or it is over."""
        value = self._value(header)
        text, _, mark = value.rpartition(".")
        if not text or not hmac.compare_digest(mark.encode(), self._signed(text).encode()):
            return None
        until, _, digest = text.partition(".")
        return digest if now < int(until) else None

    def _value(self, header: str) -> str:
        """Ours alone is looked at: other cookies of this host may be written as they like."""
        for part in header.split(";"):
            if part.strip().startswith(f"{self.cookie}="):
                return _parsed(part.strip(), self.cookie)
        return ""

    def _signed(self, text: str) -> str:
        return urlsafe_b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode().rstrip("=")

    def _written(self, value: str, secure: bool) -> str:
        return f"{self.cookie}={value}; Path={PATH}; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def _parsed(part: str, name: str) -> str:
    if len(part) > LONGEST or not part.isascii():
        return ""
    try:
        return SimpleCookie(part)[name].value
    except (CookieError, KeyError):
        return ""


def kept_key(folder: Path) -> bytes:
    """The key in a file of the state folder that only the service reads, made at the first start."""
    path = folder / "pages.key"
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) == KEY_BYTES:
        return found
    key = secrets.token_bytes(KEY_BYTES)
    part = path.with_suffix(".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key)
    part.replace(path)
    return key
