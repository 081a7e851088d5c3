"""From a decision about one pool to what everybody sees of it: service, commands and pages, two types of GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.model.accounts import Budgets
from tests.api.stage import Stage, stage
from tests.chromium import CHROMIUM
from tests.cli.conftest import Mirab, mirab
from tests.pages.reader import Reader
from tests.pools.house import BOTH, PAID, budget

__all__ = ["mirab"]

ADDRESSES = {
    "accounts": "/accounts", "account": "/accounts/vision", "of-pool": "/accounts/h100:vision", "whatif": "/whatif",
    "decisions": "/decisions?about=h100:vision",
}  # fmt: skip

PLAIN = Budgets((budget("vision", 30, budget("video", 60), budget("image", 40)), budget("llm", 70)))


@pytest.fixture
def as_admin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def point(service: Stage, user: str = "adm") -> None:
        monkeypatch.setenv("MIRAB_SERVER", service.url)
        monkeypatch.setenv("MIRAB_TOKEN", service.tokens[user])

    return point


def test_a_program_comes_to_pay_for_a_pool(tmp_path: Path, mirab: Mirab, as_admin: Any) -> None:
    with stage(tmp_path, cluster=BOTH, budgets=PLAIN) as service:
        as_admin(service)
        before = mirab("share")
        assert "h100:" not in before.out and "Pool" not in before.out
        made = mirab("budget", "set", "h100:vision=75%", "--reason", "grant 2027-12")
        assert made.code == 0 and "vision share of pool h100 – -> 75%" in made.out
        assert "vision share of pool h100" in mirab("budget", "log").out
        shown = mirab("budget", "show", "h100:vision")
        assert shown.code == 0 and "75%" in shown.out
        assert "25% of pool h100 is promised to nobody" in mirab("budget", "show").out

        as_admin(service, "ada")
        tried = mirab("submit", "--dry-run", "-A", "vision/video", "--gpus", "8", "--gpu-type", "h100", "--",
                      "sleep", "60")  # fmt: skip
        assert "it is charged to h100:vision/video: only pool h100, which has shares of its own" in tried.out, tried.err
        for _ in range(3):
            service.submit("ada", gpus_per_node=8, min_runtime="1h", gpu_types=["h100"])
        as_admin(service)
        told = mirab("share", "--json").out
        found = json.loads(told[told.index("{\n") :])
        by_path = {each["path"]: each for each in found["accounts"]}
        assert [each["name"] for each in found["ledgers"]] == ["", "h100"]
        assert (by_path["h100:vision"]["running_gpus"], by_path["h100:vision"]["waiting_jobs"]) == (16, 1)
        assert by_path["vision"]["running_gpus"] == 0 and by_path["h100:vision"]["share"] == 0.75
        text = mirab("share").out
        assert "All other pools (a100), 32 GPUs:" in text and "Pool h100, 16 GPUs:" in text
        one = mirab("share", "vision/video").out
        assert "vision/video: ratio" in one and "h100:vision/video: ratio" in one
        assert "h100:vision/video: ratio" in mirab("share", "h100:vision", "--formula").out
        why = " ".join(mirab("why", "3", "--quick").out.split())
        assert "It is charged to h100:vision/video: only pool h100" in why

        for words in (("ls",), ("cancel",)):
            listed = mirab(*words, "-A", "h100:vision")
            assert listed.code != 0 and "jobs are of an account, whatever the pool: name vision" in listed.err
        refused = mirab("budget", "set", "b200:llm=10%", "--reason", "x")
        assert refused.code != 0
        assert "account llm has a share of the pool b200, and the pools are a100, h100" in refused.err
        with service.client("adm") as client:
            answer = client.get("/api/v1/budgets")
            tree, tag = answer.json()["budgets"], answer.headers["ETag"]
            assert tree["vision"]["pool_shares"] == {"h100": "75%"} and answer.json()["pools"] == ["a100", "h100"]
            tree["llm"]["pool_shares"] = {"h100": "25%"}
            body = {"budgets": tree, "why": "llm buys the rest"}
            assert client.put("/api/v1/budgets", json=body, headers={"If-Match": tag}).status_code == 200
            assert client.put("/api/v1/budgets", json=body, headers={"If-Match": tag}).status_code == 412
            for address in ("/trend?account=h100:vision", "/share/h100:vision/video", "/chronicle?about=h100:vision",
                            "/now", "/exceptions", "/report"):  # fmt: skip
                assert client.get(f"/api/v1{address}").status_code == 200, address
            told = client.get("/api/v1/report").json()["by_account"]
            assert told["h100:vision/video"]["ledger"] == "h100"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_pages_show_a_tree_for_each_pool(browser: Any, paid: Stage, width: int, scheme: str) -> None:
    with Reader(browser, paid, "adm", width=width, color_scheme=scheme) as reader:
        reader.look_through(ADDRESSES, f"pools-{{}}-{width}-{scheme}")
        page = reader.open("/accounts")
        heads = page.locator("section h2").all_inner_texts()
        assert heads[:2] == ["All other pools (a100), 32 GPUs", "Pool h100, 16 GPUs"]
        page.get_by_role("link", name="h100:vision", exact=True).click()
        page.wait_for_selector("main[data-ready] h1:has-text('h100:vision')")
        assert "Share of pool h100" in reader.text() and "75" in reader.text()
        page = reader.open("/accounts/vision")
        assert "In pools with shares of their own" in reader.text()
        assert reader.complaints == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_a_slider_for_each_pool_is_tried_and_becomes_a_command(browser: Any, paid: Stage) -> None:
    """Nobody has named the A100s: as soon as one moves, all of that group are named. The H100s are named already."""
    with Reader(browser, paid, "adm") as reader:
        page = reader.open("/whatif")
        page.get_by_label("h100:vision", exact=True).fill("50")
        page.locator("summary", has_text="Pool a100 alone: shared as everything else").click()
        page.get_by_label("a100:llm", exact=True).fill("60")
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector("table.whatif")
        command = page.locator("pre").inner_text()
        for words in ("h100:vision=50%", "a100:llm=60%", "a100:vision=30%"):
            assert words in command
        assert "share of pool h100" in reader.text()
        assert reader.complaints == []


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paid"), cluster=BOTH, budgets=PAID) as service:
        service.desk.portfolio.trials.folder = tmp_path_factory.mktemp("kept")
        for _ in range(4):
            service.submit("ada", gpus_per_node=8, min_runtime="1h", gpu_types=["h100"], time_limit="1h")
            service.submit("eve", account="llm", gpus_per_node=8, min_runtime="1h", gpu_types=["a100"], time_limit="1h")
        yield service
