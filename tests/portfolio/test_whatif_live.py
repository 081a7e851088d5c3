"""What if on a live service: the page with its sliders in a real browser, the command, and the result as evidence.

Screenshots are left in ``out/pages`` to be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.stage import Stage, stage
from tests.chromium import CHROMIUM, violations
from tests.pages.reader import PICTURES, Reader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("whatif")) as service:
        service.desk.portfolio.trials.folder = tmp_path_factory.mktemp("kept")
        for user, account in (("ada", "vision/video"), ("eve", "llm")):
            with service.client(user) as client:
                for _ in range(10):
                    wanted = {"account": account, "argv": ["sleep", "60"], "gpus_per_node": 4, "time_limit": "1h"}
                    assert client.post("/api/v1/jobs", json=wanted).status_code == 201
        yield service


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_sliders_are_moved_by_keys_tried_and_answered(browser: Any, served: Stage, width: int, scheme: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Reader(browser, served, width=width, color_scheme=scheme, has_touch=width < 400) as reader:
        page = reader.open("/whatif")
        first = page.locator("#s-llm")
        first.focus()
        before = float(first.input_value())
        for _ in range(10):
            page.keyboard.press("ArrowLeft")
        assert float(first.input_value()) == before - 10
        assert f"{before - 10:.0f}" in page.locator("output[for='s-llm']").inner_text()
        assert "for nobody" in page.locator("fieldset", has=first).locator(".sum").inner_text()
        page.get_by_label("vision", exact=True).fill("60")
        assert "100" in page.locator("fieldset", has=first).locator(".sum").inner_text()
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector("table.whatif")
        assert "Who gains, who loses" in reader.text()
        command = page.locator("pre").inner_text()
        assert "llm=40%" in command and "vision=60%" in command and "--evidence w" in command
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        page.screenshot(path=str(PICTURES / f"live-whatif-{width}-{scheme}.png"), full_page=True)
        page.reload()
        page.wait_for_selector("table.whatif")
        assert float(page.locator("#s-llm").input_value()) == before - 10, "the address holds the question"
        assert reader.complaints == []
        assert {url for url in reader.requests if not url.startswith(served.url)} == set()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_shares_of_more_than_everything_are_told(browser: Any, served: Stage) -> None:
    with Reader(browser, served) as reader:
        page = reader.open("/whatif")
        page.get_by_label("vision", exact=True).fill("70")
        assert "too much" in page.locator(".sum.problem").inner_text()
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector("[role=alert]")
        assert "120%" in page.locator("[role=alert]").inner_text()


def test_the_command_tries_an_exception_that_was_asked_for(
    served: Stage, mirab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAB_SERVER", served.url)
    monkeypatch.setenv("MIRAB_TOKEN", served.tokens["adm"])
    wanted = {"kind": "guaranteed", "account": "llm", "lasts": "2d", "reason": "an evaluation"}
    with served.client("eve") as client:
        case = client.post("/api/v1/exceptions", json=wanted).json()["id"]
    told = mirab("whatif", "--log", "last-7d", "--with-exception", case)
    assert told.code == 0, told.err
    assert f"{case}: guaranteed for llm" in told.out
    assert f"name it in the reason when you approve {case}" in told.err
    assert mirab("whatif", "--log", "last-7d", "--with-exception", "x99").code == 3
    with served.client("adm") as client:
        assert "either budgets or the id" in client.post("/api/v1/whatif", json={"days": 3}).json()["detail"]


def test_the_command_tries_a_file_on_the_last_days_and_a_change_names_it(
    served: Stage, mirab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAB_SERVER", served.url)
    monkeypatch.setenv("MIRAB_TOKEN", served.tokens["adm"])
    with served.client("adm") as client:
        tree = client.get("/api/v1/budgets").json()["budgets"]
    tree["llm"]["share"], tree["vision"]["share"] = "30%", "70%"
    proposal, answer = tmp_path / "budgets.yaml", tmp_path / "answer.json"
    proposal.write_text(json.dumps({"budgets": tree}))
    told = mirab("whatif", proposal, "--log", "last-7d", "--json", answer)
    assert told.code == 0, told.err
    assert {"accounts", "method", "reports"} <= set(json.loads(answer.read_text()))
    name = told.err.split("Kept by the service as ")[1][:17]
    done = mirab("budget", "set", "llm=30%", "vision=70%", "--reason", "as tried", "--evidence", name)
    assert done.code == 0, done.err
    with served.client("adm") as client:
        last = client.get("/api/v1/budgets/history").json()["changesets"][-1]
        assert last["evidence"].startswith(f"what-if {name} sha256:")
        assert client.get(f"/api/v1/whatif/{name}").json()["sha256"] == last["evidence"].partition("sha256:")[2]
        wanted = {"edits": {"": tree}, "why": "x", "evidence": "w0000000000000000"}
        assert "there is no what-if" in client.post("/api/v1/budgets/changes", json=wanted).json()["detail"]
