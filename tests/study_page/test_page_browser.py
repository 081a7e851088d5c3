"""The page in a real browser: nothing breaks, nothing is loaded, nothing sticks out, and everybody can read it.

Screenshots are left in ``out/pages`` to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirab.study.page import html_page
from tests.chromium import CHROMIUM, PATIENCE_MS, cut_off, violations
from tests.study_page.made_up import HOSTILE, empty_report, report

PICTURES = Path("out/pages")
MANY = [f"lab/team{number:03}" for number in range(500)]
PAGES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "one": lambda: [report()],
    "two": lambda: [report("priority"), report("budget")],
    "six": lambda: [report(name, days=9) for name in ("budget", "priority", "fifo", "fair-tree", "quota", "mine")],
    "many": lambda: [report(accounts=MANY, days=2), report("fifo", MANY, days=2)],
    "hostile": lambda: [report(accounts=HOSTILE, days=3)],
    "empty": lambda: [empty_report()],
}
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, written once."""
    folder = tmp_path_factory.mktemp("pages")
    for name, made in PAGES.items():
        (folder / f"{name}.html").write_text(html_page(made()), "utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    return folder


class Visit:
    """A page that is open, and what went wrong on it."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **context: Any) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._context = browser.new_context(viewport={"width": width, "height": 900}, **context)
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state("load")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def open_all(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_breaks_is_loaded_or_sticks_out(browser: Any, folder: Path, name: str, width: int) -> None:
    path = folder / f"{name}.html"
    with Visit(browser, path, width) as visit:
        visit.open_all()
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = visit.page.eval_on_selector_all(
            "svg.plot",
            "all => all.map(each => [each.getBoundingClientRect().width, each.getBoundingClientRect().height])",
        )
        assert all(wide > 200 and high > 60 for wide, high in sizes)
        assert name == "empty" or len(sizes) > 5


@pytest.mark.parametrize("name", PAGES)
def test_no_text_is_cut_off_without_its_whole_being_told(browser: Any, folder: Path, name: str) -> None:
    with Visit(browser, folder / f"{name}.html", 390) as visit:
        assert cut_off(visit.page, ".unseen, svg, .legend") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["one", "two", "hostile", "empty"])
def test_everybody_can_read_it(browser: Any, folder: Path, name: str, scheme: str) -> None:
    with Visit(browser, folder / f"{name}.html", color_scheme=scheme) as visit:
        visit.open_all()
        assert violations(visit.page) == []


CONTRAST = """() => {
  const light = rgb => {
    const [r, g, b] = rgb.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const found = [];
  for (const each of document.querySelectorAll('svg text')) {
    found.push(ratio(light(getComputedStyle(each).fill), paper));
  }
  for (const each of document.querySelectorAll('.ln, .mark path')) {
    const style = getComputedStyle(each);
    const colour = style.stroke !== 'none' && each.classList.contains('ln') ? style.stroke : style.fill;
    found.push(ratio(light(colour), paper) * 1.5);
  }
  return Math.min(...found);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_lines_in_pictures_stand_out(browser: Any, folder: Path, scheme: str) -> None:
    """Letters 4.5 to 1, lines and marks 3 to 1, on the paper."""
    with Visit(browser, folder / "six.html", color_scheme=scheme) as visit:
        assert visit.page.evaluate(CONTRAST) >= 4.5


def test_letters_keep_their_size_on_a_phone(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "one.html", 390) as visit:
        heights = visit.page.eval_on_selector_all(
            "svg text", "all => all.map(each => parseFloat(getComputedStyle(each).fontSize))"
        )
        assert min(heights) >= 12


def test_labels_of_an_axis_do_not_run_into_each_other(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "two.html", 390) as visit:
        clashes = visit.page.evaluate(
            """[...document.querySelectorAll('svg.plot')].flatMap(plot => {
              const boxes = [...plot.querySelectorAll(':scope > text')].map(each => each.getBoundingClientRect());
              return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
                a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1).map(() => 1));
            }).length"""
        )
        assert clashes == 0


def test_pointing_at_a_picture_tells_its_numbers(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "one.html", reduced_motion="reduce") as visit:
        plot = visit.page.locator("svg.plot").first
        plot.scroll_into_view_if_needed()
        visit.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        plot.hover()
        tip = visit.page.locator(".tip")
        tip.wait_for(state="visible")
        assert "fit for work busy" in tip.inner_text()
        visit.page.keyboard.press("Escape")
        assert not tip.is_visible()
        assert visit.complaints == []


def test_it_reads_without_its_script(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "two.html", java_script_enabled=False) as visit:
        assert visit.page.locator("svg.plot").count() > 5
        assert "Side by side" in visit.page.inner_text("main")


def test_paper_shows_what_is_folded_away(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "one.html", color_scheme="dark") as visit:
        assert visit.page.evaluate("document.querySelectorAll('details:not([open])').length") > 3
        visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert visit.page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
        visit.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert visit.page.evaluate("document.querySelectorAll('details:not([open])').length") > 3
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert visit.page.pdf(path=str(PICTURES / "one.pdf"), format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("mode", ["light", "dark", "phone", "grey", "print"])
@pytest.mark.parametrize("name", ["one", "six"])
def test_pictures_to_look_at(browser: Any, folder: Path, name: str, mode: str) -> None:
    scheme = "dark" if mode == "dark" else "light"
    with Visit(browser, folder / f"{name}.html", 390 if mode == "phone" else 1280, color_scheme=scheme) as visit:
        if mode == "grey":
            visit.page.evaluate("document.documentElement.style.filter = 'grayscale(1)'")
        if mode == "print":
            visit.page.emulate_media(media="print")
        path = PICTURES / f"{name}-{mode}.png"
        visit.page.screenshot(path=str(path), full_page=True)
        assert path.stat().st_size > 20_000
