"""Somebody at a real browser who reads the live pages. Pictures are left in ``out/pages`` to be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.api.stage import Stage
from tests.chromium import PATIENCE_MS, violations

PICTURES = Path("out/pages")


class Reader:
    """Somebody who looks at the pages, and what went wrong meanwhile."""

    def __init__(
        self, browser: Any, service: Stage, user: str | None = "ada", width: int = 1280, **context: Any
    ) -> None:
        self.service = service
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if user is not None:
            self.page.goto(service.url)
            self.log_in(service.tokens[user])
            self.page.wait_for_selector(".pyramid")

    def _hear(self, message: Any) -> None:
        self.complaints.append(f"{message.text} {message.location['url']}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def log_in(self, token: str) -> None:
        self.page.fill("#token", token)
        self.page.keyboard.press("Enter")

    def open(self, address: str) -> Any:
        self.page.goto(self.service.url + address)
        self.page.wait_for_selector("main[data-ready] h1")
        return self.page

    def text(self) -> str:
        return str(self.page.inner_text("main"))

    def look_through(self, addresses: dict[str, str], picture: str) -> None:
        """Open each page with all that is folded, hold it to the screen's width and to axe-core, and leave a picture.

        Args:
            addresses: path by name of the page.
            picture: the file's name, with ``{}`` for that of the page.
        """
        PICTURES.mkdir(parents=True, exist_ok=True)
        width = self.page.viewport_size["width"]
        for name, address in addresses.items():
            page = self.open(address)
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert violations(page) == [], name
            page.screenshot(path=str(PICTURES / f"{picture.format(name)}.png"), full_page=True)
