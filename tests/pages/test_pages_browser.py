"""The pages in a real browser, on a live service: each page's main act, and what holds for all of them.

Screenshots are left in ``out/pages`` to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.stage import Stage
from tests.chromium import CHROMIUM, cut_off, violations
from tests.pages.reader import PICTURES, Reader

ADDRESSES = {
    "now": "/", "queue": "/queue", "job-runs": "/jobs/1", "job-waits": "/jobs/40", "accounts": "/accounts",
    "account": "/accounts/vision", "nodes": "/nodes", "node": "/nodes/n3", "decisions": "/decisions",
    "replays": "/replays?show=budget.json&show=priority.json",
}  # fmt: skip
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]


@pytest.fixture
def reader(browser: Any, served: Stage) -> Iterator[Reader]:
    with Reader(browser, served) as reader:
        yield reader
        assert reader.complaints == []


# --- all pages -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "light"), (1280, "dark"), (390, "dark")])
def test_nothing_breaks_sticks_out_or_shuts_anybody_out(browser: Any, served: Stage, width: int, scheme: str) -> None:
    """No fault on any page, nothing from outside, no sideways scrolling, and axe-core finds nothing."""
    with Reader(browser, served, width=width, color_scheme=scheme) as reader:
        reader.look_through(ADDRESSES, f"live-{{}}-{width}-{scheme}")
        assert reader.complaints == []
        assert {url for url in reader.requests if not url.startswith(served.url)} == set()


def test_axe_sees_what_is_broken(browser: Any, served: Stage) -> None:
    """A check that finds nothing anywhere would be none: faults that are put into a page are found."""
    with Reader(browser, served) as reader:
        page = reader.open("/queue")
        page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button><input>')")
        assert {rule for rule, _ in violations(page)} >= {"button-name", "label"}


def test_the_form_of_the_login_is_for_everybody_too(browser: Any, served: Stage) -> None:
    for scheme in ("light", "dark"):
        with Reader(browser, served, None, 390, color_scheme=scheme) as reader:
            page = reader.open("/queue")
            assert violations(page) == []
            page.screenshot(path=str(PICTURES / f"live-login-390-{scheme}.png"))
            assert reader.complaints == []


def test_everything_is_told_without_colour(browser: Any, served: Stage) -> None:
    """Nodes differ by their form: the drained one has lines through it, and its name says so."""
    with Reader(browser, served) as reader:
        page = reader.open("/")
        drained = page.locator(".tiles a[href='/nodes/n3']")
        assert re.search("draining|in repair|degraded", drained.get_attribute("aria-label") or "")
        assert drained.locator("path.mark").count() == 1
        assert page.locator(".tiles a[href='/nodes/n0'] path.mark").count() == 0
        page.evaluate("document.documentElement.style.filter = 'grayscale(1)'")
        page.screenshot(path=str(PICTURES / "live-now-grey.png"), full_page=True)


def test_long_words_are_cut_only_where_their_whole_is_told(reader: Reader) -> None:
    for address in ADDRESSES.values():
        page = reader.open(address)
        assert cut_off(page, "[title], .unseen, svg, thead") == [], address


# --- logging in ------------------------------------------------------------------------------------------------------
def test_a_link_leads_there_after_logging_in_and_the_token_is_kept_nowhere(browser: Any, served: Stage) -> None:
    with Reader(browser, served, None) as reader:
        page = reader.open("/jobs/1")
        reader.log_in("mirab_wrong")
        page.wait_for_selector("#login-problem:has-text('token')")
        assert "not known" in page.inner_text("#login-problem")
        reader.log_in(served.tokens["ada"])
        page.wait_for_selector("h1:has-text('Job 1')")
        [cookie] = reader.context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert served.tokens["ada"] not in cookie["value"]
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert kept == '[{},{},""]'
        page.click("text=Log out")
        page.wait_for_selector("#token")
        assert reader.context.cookies() == []


def test_a_person_sees_what_their_role_allows(browser: Any, served: Stage) -> None:
    with Reader(browser, served, "ada") as owner:
        owner.open("/jobs/2")
        assert "What it executes" in owner.text()
        assert "sleep 1000" in owner.text()
    with Reader(browser, served, "eve") as other:
        other.open("/jobs/2")
        assert "vision/video" in other.text()
        assert "sleep 1000" not in other.text()


# --- fresh ---------------------------------------------------------------------------------------------------------
def test_the_queue_shows_a_new_job_and_its_end_without_reload(reader: Reader, served: Stage) -> None:
    page = reader.open("/queue?user=bob&show=all")
    assert "No job is like this" in reader.text()
    page.evaluate("window.stayed = true")
    made = served.submit("bob", name="came-later")
    page.wait_for_selector("text=came-later")
    with served.client("bob") as bob:
        bob.post(f"/api/v1/jobs/{made['id']}/cancel", json={})
    page.wait_for_selector(f"tr[data-key='{made['id']}'] >> text=cancelled")
    assert page.evaluate("window.stayed")


def test_what_the_reader_does_survives_news(reader: Reader, served: Stage) -> None:
    """What is typed, folded open and focused stays while the page renews itself."""
    page = reader.open("/accounts")
    page.locator("summary").nth(1).click()
    page.locator("summary").nth(1).focus()
    waiting = int(page.locator("tr[data-key='vision/video'] td[data-label='Waiting jobs']").inner_text())
    served.submit("bob", name="more", gpus_per_node=2)
    page.wait_for_selector(f"tr[data-key='vision/video'] td:has-text('{waiting + 1}')")
    assert page.locator("details").nth(1).get_attribute("open") is not None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_page_comes_back_when_the_service_was_away(browser: Any, served: Stage) -> None:
    with Reader(browser, served) as reader:
        page = reader.page
        page.route("**/api/v1/events", lambda route: route.abort())
        reader.open("/queue")
        page.wait_for_selector("text=connecting again")
        page.unroute("**/api/v1/events")
        page.wait_for_selector(".live:has-text('live')")


# --- each page's main act --------------------------------------------------------------------------------------------
def test_now_tells_the_measures_and_who_runs_what(reader: Reader) -> None:
    text = reader.text()
    for word in ("Availability", "Occupancy", "Impact", "Utilization", "Who runs what", "vision/video", "eve"):
        assert word in text
    assert "jobs wait for" in reader.page.inner_text(".lede")


def test_now_names_the_runs_that_are_silent(reader: Reader) -> None:
    """Whoever holds GPUs without a sign of progress stands there with what is missed, and not as a number alone."""
    run = {"job": "7", "run": "7.1", "user": "eve", "account": "llm", "gpus": 4, "silent_s": 7200, "gpu_hours": 8.0,
           "flag": "has shown no checkpoint for 2 h"}  # fmt: skip
    reader.page.route("**/api/v1/now", lambda route: route.fulfill(json={**route.fetch().json(), "silent_runs": 1}))
    reader.page.route("**/api/v1/squatters", lambda route: route.fulfill(json={"runs": [run]}))
    page = reader.open("/")
    row = page.inner_text("tr[data-key='7.1']")
    for word in ("7", "eve", "llm", "8.0 GPU-h in 2\u00a0h", "no checkpoint"):
        assert word in row


@pytest.mark.parametrize("runs", [0, 50])
def test_a_jobs_page_does_not_wait_for_the_runs_forward(reader: Reader, runs: int) -> None:
    """What is recorded is shown while the scheduler is still run, and what stands in; then its own forecast."""
    waiting: list[Any] = []

    def keep(route: Any) -> None:
        waiting.append(route)

    first = {"id": "40", "sentence": "it starts after lunch" if runs else "ask again in a moment", "runs": runs,
             "stands_in": "39" if runs else "", "age_s": 30, "because": "", "trust": ""}  # fmt: skip
    reader.page.route(re.compile(r"/jobs/40/when\?wait=0$"), lambda route: route.fulfill(json=first))
    reader.page.route("**/api/v1/jobs/40/when", keep)
    page = reader.open("/jobs/40")
    assert page.locator("ol.blockers li").count() >= 1
    if runs:
        assert "it starts after lunch" in reader.text() and "this one is being looked at for itself" in reader.text()
        assert page.locator("a[href='/jobs/39']", has_text="39").count() >= 1
    else:
        assert "The scheduler is being run forward" in reader.text()
    while not waiting:
        page.wait_for_timeout(20)
    for route in waiting:
        route.fulfill(json={"id": "40", "sentence": "half start it by noon", "runs": 50, "age_s": 3, "because": "",
                            "trust": ""})  # fmt: skip
    page.wait_for_selector("text=half start it by noon")
    assert "is being run forward" not in reader.text() and "for itself" not in reader.text()


def test_a_person_with_a_keyboard_alone_gets_from_now_to_why(reader: Reader) -> None:
    """Tab and Enter: the queue, the first job that waits, what keeps it."""
    page = reader.page

    def tab_to(selector: str) -> None:
        for _ in range(200):
            page.keyboard.press("Tab")
            if page.evaluate("at => document.activeElement.matches(at)", selector):
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", "one sees where one is"
                return
        raise AssertionError(f"nobody gets to {selector} with Tab")

    def follow(selector: str) -> None:
        """Enter on a link; the page it leads to is there, and has the focus, before the next key."""
        tab_to(selector)
        address = page.evaluate("document.activeElement.getAttribute('href')")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "at => location.pathname + location.search === at && document.activeElement.matches('main')", arg=address
        )

    follow("nav a[href='/queue']")
    assert page.locator("h1:has-text('Queue')").is_visible()
    follow("a[href='/queue?show=waiting']")
    assert page.locator("tbody td:has-text('waiting')").first.is_visible()
    follow("tbody a[href^='/jobs/']")
    page.wait_for_selector("ol.blockers li")


def test_the_nodes_are_walked_with_arrows_and_opened_with_enter(reader: Reader) -> None:
    page = reader.page
    page.locator(".tiles a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/nodes/n2"
    assert page.locator(".tiles").first.locator("a[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('n2')")
    assert page.evaluate("document.activeElement.id") == "main"


def test_filters_of_the_queue_stand_in_the_address(reader: Reader) -> None:
    page = reader.open("/queue")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "f-user"
    page.keyboard.type("eve")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queue?show=active&user=eve")
    page.wait_for_selector("td:has-text('vision/video')", state="detached")
    assert "train-0" in page.inner_text("tbody")
    page.select_option("#f-show", "ended")
    page.wait_for_url("**/queue?show=ended&user=eve")
    page.wait_for_selector(".empty-note")
    page.go_back()
    page.wait_for_selector("td:has-text('train-0')")


def test_a_job_tells_its_story(reader: Reader) -> None:
    reader.open("/jobs/1")
    text = reader.text()
    assert "submitted by eve for llm" in text
    assert "its turn came" in text
    waiting = reader.open("/jobs/40")
    assert "waiting" in waiting.inner_text(".lede")
    assert len(waiting.inner_text(".lede")) > 30


def test_an_account_shows_its_formula_with_numbers(reader: Reader) -> None:
    page = reader.open("/accounts/vision/video")
    formula = r"\(used [\d.,]+ h( \+ before its first day [\d.,]+ h)? \+ committed [\d.,]+ h\) / entitled [\d.,]+ h = "
    assert re.match(formula, page.inner_text(".sum"))
    for word in ("Next opportunity", "Running", "Waiting", "Debt"):
        assert word in reader.text()
    page.click(".crumbs >> text=vision")
    page.wait_for_selector("h1:has-text('vision')")


def test_an_account_tells_what_it_has_borrowed(reader: Reader) -> None:
    def borrowing(route: Any) -> None:
        shares = route.fetch().json()
        shares["accounts"][0]["borrowed_gpus"] = 2.5
        route.fulfill(json=shares)

    reader.page.route("**/api/v1/share/vision/video", borrowing)
    reader.open("/accounts/vision/video")
    assert "2.5 of them beyond its share: borrowed from accounts that do not use theirs" in reader.text()


def test_an_account_over_time_is_drawn(reader: Reader) -> None:
    steps = [{"at": f"2026-03-01T{hour:02}:00:00Z", "hours": 1, "owed": 8 + hour, "charged": 12} for hour in range(24)]
    made_up = {"ready": True, "steps": steps, "debts": {"vision": {
        "debt_h": 12.5, "leaves_from": "2026-03-07T20:00:00Z", "gone_by": "2026-03-08T20:00:00Z"}}}  # fmt: skip
    reader.page.route("**/api/v1/trend**", lambda route: route.fulfill(json=made_up))
    page = reader.open("/accounts/vision")
    drawn = page.locator("svg.plot").bounding_box()
    assert drawn["width"] > 500
    assert drawn["height"] > 150
    assert "all of it by" in reader.text()
    page.screenshot(path=str(PICTURES / "live-account-trend.png"), full_page=True)


def test_a_node_that_drains_says_why_and_until_when(reader: Reader) -> None:
    page = reader.open("/nodes?state=draining")
    if page.locator("td:has-text('its fan is loud')").count() == 0:
        page = reader.open("/nodes/n3")
    assert "its fan is loud" in reader.text()


def test_decisions_are_searched_by_node_and_by_account(reader: Reader) -> None:
    page = reader.open("/decisions?about=n3&topic=nodes")
    assert "its fan is loud" in reader.text()
    assert "submitted" not in reader.text()
    page.fill("#f-about", "llm")
    page.select_option("#f-topic", "people")
    page.wait_for_url("**/decisions?about=llm&topic=people")
    page.wait_for_selector("text=submitted by eve for llm")
    page.wait_for_selector(".story >> text=vision/video", state="detached")


def test_replays_stand_side_by_side(reader: Reader) -> None:
    page = reader.open("/replays")
    for name in ("budget.json", "priority.json"):
        page.check(f"input[value='{name}']")
    page.click("button:has-text('Side by side')")
    page.wait_for_selector("th:has-text('priority')")
    assert "Owed and delivered" in reader.text()
    with reader.context.expect_page() as opened:
        page.click("text=The whole report with its pictures")
    opened.value.wait_for_selector("svg.plot")


def test_instants_are_those_of_the_reader(browser: Any, served: Stage) -> None:
    shown = {}
    for zone in ("Asia/Tokyo", "America/New_York"):
        with Reader(browser, served, timezone_id=zone) as reader:
            page = reader.open("/jobs/1")
            shown[zone] = page.locator("dd time").first.inner_text()
            assert page.locator("dd time").first.get_attribute("datetime").endswith("Z")
    assert shown["Asia/Tokyo"] != shown["America/New_York"]
