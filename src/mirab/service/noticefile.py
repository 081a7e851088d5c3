"""Who is to be told: a webhook, a Slack channel, people by e-mail; each of what, and of which accounts.

Nobody is told anything while there is no such file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mirab.logs.errors import LogError
from mirab.logs.yamltree import Entry, advice, read_yaml
from mirab.model.accounts import covers

KINDS = ("preempted", "resumed", "review-due", "exception-ending", "under-served", "needs-human")
FORMS = ("webhook", "slack", "email")
KEYS = ("to", "about", "accounts", "url", "token_file", "address", "from", "server", "user", "password_file", "tls")
OF_FORM = {
    "webhook": ("url", "token_file"),
    "slack": ("url",),
    "email": ("address", "from", "server", "user", "password_file", "tls"),
}
TLS = ("no", "starttls", "yes")
SMTP_PORT = 25
HERE = ("localhost", "127.0.0.1", "[::1]", "::1")
"""Mail servers to which nothing goes over a wire."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody who is told.

    Attributes:
        form: one of `FORMS`; about: of `KINDS`; accounts: only these and what lies below them, empty = all.
        url: of a webhook or a Slack channel. token_file: what a webhook gets as ``Authorization: Bearer``.
        addresses, sender, server, port, user, password_file, tls: of e-mail.
    """

    form: str
    about: tuple[str, ...] = KINDS
    accounts: tuple[str, ...] = ()
    url: str = ""
    token_file: Path | None = None
    addresses: tuple[str, ...] = ()
    sender: str = ""
    server: str = ""
    port: int = SMTP_PORT
    user: str = ""
    password_file: Path | None = None
    tls: str = "no"

    @property
    def name(self) -> str:
        """For a log: an address without what may be a secret in it (a Slack address is one)."""
        where = ", ".join(self.addresses) if self.form == "email" else urlsplit(self.url).netloc.rpartition("@")[2]
        return f"{self.form} {where}"

    def wants(self, kind: str, account: str) -> bool:
        """Whether it is to hear of that. What is about no account is for all."""
        mine = not account or not self.accounts or any(covers(each, account) for each in self.accounts)
        return kind in self.about and mine


def read_receivers(path: Path) -> tuple[Receiver, ...]:
    """Read the file.

    Raises:
        LogError: with file and line; an unknown word names the nearest known one.
    """
    entry = read_yaml(path).fields("the file", ("notices",), ("notices",))["notices"]
    return tuple(_receiver(item) for item in entry.rows("notices"))


def open_secrets(path: Path, receivers: Sequence[Receiver]) -> list[Path]:
    """The files with a secret that others can read: `path` itself if it has an address of Slack, and those it names."""
    named = [file for each in receivers for file in (each.token_file, each.password_file) if file is not None]
    own = [path] if any(each.form == "slack" for each in receivers) else []
    return [file for file in dict.fromkeys([*own, *named]) if file.stat().st_mode & 0o077]


def _receiver(item: Entry) -> Receiver:
    found = item.fields("the receiver", KEYS, ("to",))
    form = found["to"].parsed("to", lambda text: _one_of(text, "to", FORMS))
    strange = next((key for key in found if key not in ("to", "about", "accounts", *OF_FORM[form])), None)
    if strange is not None:
        raise found[strange].error(f"a receiver of kind {form} has no {strange!r}", f"use {', '.join(OF_FORM[form])}")
    needed = ("address", "from", "server") if form == "email" else ("url",)
    missing = next((key for key in needed if key not in found), None)
    if missing is not None:
        raise item.error(f"a receiver of kind {form} needs {missing!r}", "add it")
    server, port = _server(found["server"]) if form == "email" else ("", SMTP_PORT)
    tls = found["tls"].parsed("tls", lambda text: _one_of(text, "tls", TLS)) if "tls" in found else "no"
    if "password_file" in found and tls == "no" and server not in HERE:
        raise item.error(f"the password would go to {server} in the clear", "add tls: starttls, or tls: yes")
    return Receiver(
        form=form,
        about=_words(found.get("about"), "about", KINDS) or KINDS,
        accounts=_words(found.get("accounts"), "accounts", None),
        url=found["url"].parsed("url", _url) if "url" in found else "",
        token_file=_path(found.get("token_file"), item),
        addresses=tuple(_address(word, found["address"]) for word in _words(found.get("address"), "address", None)),
        sender=_address(found["from"].text("from"), found["from"]) if form == "email" else "",
        server=server,
        port=port,
        user=found["user"].text("user") if "user" in found else "",
        password_file=_path(found.get("password_file"), item),
        tls=tls,
    )


def _one_of(text: str, name: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ValueError(f"{text!r} is no {name}: {advice(text, list(known))}")
    return text


def _words(entry: Entry | None, name: str, known: tuple[str, ...] | None) -> tuple[str, ...]:
    """One word or a list of them."""
    if entry is None:
        return ()
    items = entry.rows(name) if isinstance(entry.value, list) else [entry]
    texts = [item.text(name).strip() for item in items]
    if known is not None:
        for item, text in zip(items, texts, strict=True):
            item.parsed(name, lambda _, text=text: _one_of(text, name, known))  # type: ignore[misc]
    return tuple(texts)


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{text!r} is no address: write https://host/path")
    return text


def _address(text: str, entry: Entry) -> str:
    if "@" not in text or any(sign.isspace() or sign in '<>,;"' or not sign.isprintable() for sign in text):
        raise entry.error(f"{text!r} is no e-mail address", "write name@host")
    return text


def _server(entry: Entry) -> tuple[str, int]:
    host, sign, port = entry.text("server").rpartition(":")
    if not sign:
        return port, SMTP_PORT
    if not port.isdigit() or not 0 < int(port) < 65_536 or not host:
        raise entry.error(f"{entry.text('server')!r} is no mail server", "write host:port, such as localhost:25")
    return host, int(port)


def _path(entry: Entry | None, item: Entry) -> Path | None:
    """Secrets stand in files of their own, beside this one where the path is relative."""
    if entry is None:
        return None
    path = item.path.parent / entry.text("a file")
    if not path.is_file():
        raise LogError(f"there is no file {path}", item.path, entry.line, remedy="write the secret into it (mode 600)")
    return path
