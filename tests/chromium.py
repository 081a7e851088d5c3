"""The one browser of a test process: Playwright's synchronous form can be begun only once in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def violations(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds (names, roles, landmarks, headings, contrast of 4.5 to 1): rule and element of each."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in axe.run(page).response["violations"]]


def cut_off(page: Any, besides: str) -> list[str]:
    """Texts that do not fit where they stand and whose whole no title tells; `besides`: where that may be, as CSS."""
    found: list[str] = page.evaluate(
        """besides => [...document.querySelectorAll('main *')]
        .filter(each => each.clientWidth && each.scrollWidth > each.clientWidth + 1)
        .filter(each => getComputedStyle(each).overflowX === 'hidden' && each.textContent.trim())
        .filter(each => !each.title && !each.closest(besides))
        .map(each => each.textContent.trim().slice(0, 60))""",
        besides,
    )
    return found


PATIENCE_MS = 180_000
"""A net: beside everything else a browser may take its time to begin, and to do what takes it a few hundred."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, headless. Tests that ask for it are skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        yield browser
        browser.close()
