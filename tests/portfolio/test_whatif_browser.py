"""The page of a what-if in a real browser: nothing breaks, nothing is loaded, nothing sticks out, all can read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirab.study.whatif import Json, Question, whatif
from mirab.study.whatifpage import whatif_page
from tests.chromium import CHROMIUM, cut_off, violations
from tests.portfolio.made_up import side
from tests.study_page.made_up import HOSTILE
from tests.study_page.test_page_browser import PICTURES, Visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]


def shift() -> Json:
    changes = [{"account": "lab/red", "term": "share", "before": "10%", "after": "22%"}]
    tried = {
        "id": "x1", "kind": "extra-share", "account": "lab/red", "owner": "ann", "approver": "bob", "reason": "a paper",
        "begin_s": 0, "end_s": 86400 * 30, "in_force": True, "unit_hours": 800.0, "placed": "from day 1 to day 31",
    }  # fmt: skip
    return whatif(side(), side(seed=4, red={"more": 12.0}, blue={"more": -15.0}), Question({}, changes, (), [tried]))


PAGES: dict[str, Callable[[], Json]] = {
    "shift": shift,
    "short": lambda: whatif(side(count=3), side(count=3, seed=2)),
    "hostile": lambda: whatif(side(accounts=HOSTILE), side(seed=2, accounts=HOSTILE)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    for name, made in PAGES.items():
        (folder / f"{name}.html").write_text(whatif_page(made()), "utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_breaks_is_loaded_or_sticks_out(browser: Any, folder: Path, name: str, width: int) -> None:
    path = folder / f"{name}.html"
    with Visit(browser, path, width) as visit:
        visit.open_all()
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.page.screenshot(path=str(PICTURES / f"whatif-{name}-{width}.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_read_it(browser: Any, folder: Path, name: str, scheme: str) -> None:
    with Visit(browser, folder / f"{name}.html", color_scheme=scheme) as visit:
        visit.open_all()
        assert violations(visit.page) == []


@pytest.mark.parametrize("name", ["shift", "hostile"])
def test_no_text_is_cut_off_without_its_whole_being_told(browser: Any, folder: Path, name: str) -> None:
    with Visit(browser, folder / f"{name}.html", 390) as visit:
        assert cut_off(visit.page, ".unseen, svg, .legend") == []
