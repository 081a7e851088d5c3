"""What if on a service that has lived for more than fourteen days: noise is called noise, and a difference is not.

Screenshots are left in ``out/pages`` to be looked at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.stage import Stage
from tests.chromium import CHROMIUM, violations
from tests.pages.reader import PICTURES, Reader
from tests.portfolio.conftest import Mirab
from tests.portfolio.fortnight import DAYS, lived_through

pytestmark = pytest.mark.slow
LONG = 300_000
"""Milliseconds until a test gives up on two replays beside everything else."""
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with lived_through(tmp_path_factory.mktemp("fortnight")) as service:
        yield service


def moved(page: Any, account: str, steps: int) -> None:
    """Move a slider by keys."""
    page.locator(f"#s-{account}").focus()
    for _ in range(abs(steps)):
        page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def row(page: Any, table: str, account: str) -> dict[str, str]:
    """The row of an account in a table of the answer: what stands under each head."""
    cells = page.locator(f"table.{table} tr[data-key='{account}'] td").all()
    return {cell.get_attribute("data-label"): cell.inner_text().replace("\u00a0", " ") for cell in cells}


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_noise_is_called_noise_and_a_difference_is_not(browser: Any, served: Stage, width: int, scheme: str) -> None:
    """llm gives 15 points to robots; vision, whose share stays, has other waits by luck alone."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Reader(browser, served, "adm", width=width, color_scheme=scheme, has_touch=width < 400) as reader:
        page = reader.open("/whatif")
        moved(page, "llm", -15)
        moved(page, "robots", +15)
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector("table.whatif", timeout=LONG)
        text = reader.text().replace("\u00a0", " ")
        assert f"The last {DAYS} d of the journal" in text
        assert re.search(r"1 account gains: robots \(.* ±", text)
        assert re.search(r"1 account loses: llm \(delivered −[\d,]+ ±[\d,]+ GPU-h", text)
        assert "For 2 accounts all differences are within noise" in text
        assert f"The {DAYS} days of the log were drawn again" in text
        llm, image = row(page, "whatif", "llm"), row(page, "whatif", "vision/image")
        assert (llm["Verdict"], image["Verdict"], llm["Share"]) == ("▼ loses", "noise", "25 % → 10 %")
        assert re.search(r"▼ worse \(± \d+\)", llm["Delivered h"])
        assert re.search(r"noise \(± \d+\)", image["Delivered h"])
        assert re.search(r"noise \(± \d+ \w+\)", image["p90 wait"])
        assert re.fullmatch(r"−[\d,]+ ± [\d,]+", row(page, "differences", "llm")["Difference"])
        assert row(page, "differences", "vision/image")["Verdict"] == "noise"
        assert page.locator("table.differences tr[data-key='vision/image'] svg.difference.noise .luck").count() == 1
        assert page.locator("table.whatif tr").count() == 1 + 1 + 4, "nobody is shown who has neither share nor work"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        page.screenshot(path=str(PICTURES / f"live-whatif-fortnight-{width}-{scheme}.png"), full_page=True)
        page.evaluate("document.documentElement.style.filter = 'grayscale(1)'")
        page.screenshot(path=str(PICTURES / f"live-whatif-fortnight-{width}-{scheme}-grey.png"), full_page=True)
        assert reader.complaints == []


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_the_answer_stands_beside_the_decision_that_rests_on_it(
    browser: Any, served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAB_SERVER", served.url)
    monkeypatch.setenv("MIRAB_TOKEN", served.tokens["adm"])
    name = tried(served, llm="10%", robots="40%")
    done = mirab("budget", "set", "llm=10%", "robots=40%", "--reason", "robots waits", "--evidence", name)
    assert done.code == 0, done.err
    log = log_of(mirab)
    assert f"evidence: what-if {name} sha256:" in log
    assert "says: 1 account gains: robots" in log
    with served.client("adm") as client:
        kept = client.get("/api/v1/budgets/history", params={"account": "robots", "latest": 1}).json()["changesets"]
        assert [each["evidence_told"][0][:23] for each in kept] == ["1 account gains: robots"]
        assert client.get("/api/v1/budgets/history", params={"account": "nobody"}).json()["changesets"] == []
    with Reader(browser, served, "adm") as reader:
        page = reader.open("/accounts/robots")
        section = page.locator("section", has_text="Who decided")
        assert "robots waits" in section.inner_text()
        assert "Decided on a what-if" in section.inner_text()
        assert "1 account loses: llm (delivered" in section.inner_text()
        page.screenshot(path=str(PICTURES / "live-account-decided.png"), full_page=True)
        page.get_by_role("link", name="a what-if").click()
        page.wait_for_selector("table.whatif")
        assert row(page, "whatif", "llm")["Verdict"] == "▼ loses"
        page.screenshot(path=str(PICTURES / "live-whatif-kept.png"), full_page=True)
        assert reader.complaints == []
    trials = served.desk.portfolio.trials
    assert trials.folder is not None
    (trials.folder / f"{name}.json").write_text("{}")
    assert "its hash differs" in log_of(mirab)
    (trials.folder / f"{name}.json").unlink()
    assert "does not keep this what-if any more" in log_of(mirab)


def log_of(mirab: Mirab) -> str:
    return " ".join(mirab("budget", "log").out.split())


def tried(served: Stage, **shares: str) -> str:
    """Try shares; the name of the answer when it is there."""
    until = time.monotonic() + LONG / 1_000
    with served.client("adm") as client:
        wanted: dict[str, Any] = {"share": [f"{account}={share}" for account, share in shares.items()], "days": 30}
        while (told := client.get("/api/v1/whatif", params=wanted).json())["state"] == "running":
            assert time.monotonic() < until
            time.sleep(0.1)
    assert told["state"] == "done", told
    return str(told["id"])
