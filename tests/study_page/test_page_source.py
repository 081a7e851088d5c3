"""The page as text: whole, self-contained, safe against hostile names, the same each time."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from mirab.study.catalogue import BY_KEY, MEASURES
from mirab.study.page import MOST, html_page
from tests.study_page.made_up import CLASSES, HOSTILE, TEAMS, empty_report, report

ALL = ("budget", "priority", "fifo", "fair-tree", "quota")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Source(HTMLParser):
    """Elements and text of a page; every element that is opened must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).replace("\u00a0", " ").split())


def many(count: int) -> list[str]:
    return [f"lab/team{number:03}" for number in range(count)]


@pytest.mark.parametrize("count", range(1, MOST + 1))
def test_one_to_six_replays(count: int) -> None:
    source = Source(html_page([report(f"policy{number}" if number > 4 else ALL[number]) for number in range(count)]))
    for measure in MEASURES:
        if measure.key != "utilization":
            assert measure.name in source.words
    for name in (*TEAMS, *CLASSES):
        assert name in source.words
    assert len(source.named("title")) >= 1 and source.words.count("What was replayed") == 1


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_other_numbers_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to {MOST} replays, not {count}"):
        html_page([report()] * count)


def test_it_loads_nothing_and_allows_only_itself() -> None:
    page = html_page([report(), report("fifo")])
    source = Source(page)
    policy = next(each["content"] for each in source.named("meta") if each.get("http-equiv"))
    for kind in ("style", "script"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for _, attributes in source.elements:
        assert not any(name.startswith("on") or name in ("style", "src", "srcset") for name in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert "http://" not in page and "https://" not in page and "url(#hatch)" in page


def test_hostile_names_are_only_text() -> None:
    made, other = (report(name, HOSTILE, days=3) for name in ("budget", "fifo"))
    for each in (made, other):
        each["input"] |= {
            "name": HOSTILE[0],
            "notes": list(HOSTILE),
            "dropped": {HOSTILE[1]: {"count": 1, "lines": [3]}},
        }
    other["policy"] |= {"name": HOSTILE[8]}
    page = html_page([made, other])
    source = Source(page)
    assert len(source.named("script")) == 1 and not source.named("img")
    assert "\u202e" not in page
    for name in HOSTILE:
        shown = name.replace("\u202e", "\ufffd")
        assert shown in "".join(source.text)


def test_titles_inside_pictures_are_escaped_too() -> None:
    page = html_page([report(accounts=[HOSTILE[7]], days=3)])
    assert HOSTILE[7] not in page
    assert "Ratio of &lt;/style&gt;&lt;script&gt; over time" in page


@pytest.mark.parametrize("count", [1, 2, 40, 500])
def test_any_number_of_accounts(count: int) -> None:
    source = Source(html_page([report(accounts=many(count), days=2), report("fifo", many(count), days=2)]))
    rows = [attributes for attributes in source.named("th") if attributes.get("scope") == "row"]
    assert len(rows) > 2 * count
    pictures = [each for each in source.named("svg") if each.get("role") == "img"]
    assert len(pictures) < 70
    if count == 500:
        assert "484 further accounts" in source.words and "464 accounts with less owed have no picture" in source.words


@pytest.mark.parametrize("policies", [("budget",), ("budget", "fifo")])
def test_a_replay_of_nothing(policies: tuple[str, ...]) -> None:
    source = Source(html_page([empty_report(name) for name in policies]))
    for told in ("No time passed", "Nothing was submitted", "No run was stopped", "No budget was owed anything"):
        assert told in source.words
    assert "None" not in source.words and "nan" not in source.words.lower().split()


def test_nothing_is_shown_for_what_is_null() -> None:
    """Every number that may be absent is, one at a time."""
    other = report(days=1)
    for key in other["metrics"]:
        made: Any = report(days=1)
        if isinstance(made["metrics"][key], float | int):
            made["metrics"][key] = None
            assert "None" not in html_page([made, other]), key
            assert "None" not in html_page([made]), key


def test_ratios_that_were_not_recorded_are_said_to_be() -> None:
    made = report(days=3)
    for series in made["series"]["accounts"].values():
        series["ratio"] = [None] * len(series["ratio"])
    assert "The ratio of accounts was not recorded" in Source(html_page([made])).words


def test_each_picture_has_a_name_and_a_description() -> None:
    source = Source(html_page([report(), report("priority")]))
    ids = [attributes["id"] for _, attributes in source.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in source.named("svg"):
        if attributes.get("role") == "img":
            assert all(each in ids for each in attributes["aria-labelledby"].split())
        else:
            assert attributes.get("aria-hidden") == "true" or "viewbox" in attributes or "overflow" in attributes


def test_policies_differ_by_more_than_colour() -> None:
    """A shape and a dash for each, so that greyscale is enough."""
    page = html_page([report(name) for name in ALL])
    style = page[page.index("<style>") : page.index("</style>")]
    assert len(set(re.findall(r'class="mark p\d"[^>]*><path d="([^"]+)"', page))) == len(ALL)
    dashes = re.findall(r"\.ln\.p\d \{ stroke-dasharray: ([^;]+); \}", style)
    assert len(dashes) == len(set(dashes)) == MOST - 1


def test_the_better_one_is_evident() -> None:
    page = html_page([report("budget"), report("priority")])
    panel = page[page.index("<h3>Worst account</h3>") :]
    panel = panel[: panel.index("</article>")]
    assert panel.count('class="best"') == 1 and panel.index('class="best"') < panel.index("priority")
    assert 'class="p1 solid"' in panel and 'class="p2 pale"' in panel
    assert "institute: 90.0 %" in panel


def test_who_gains_and_who_loses() -> None:
    words = Source(html_page([report("priority"), report("budget")])).words
    assert "budget instead of priority 15 accounts gain a point or more, 0 lose." in words


def test_the_same_reports_give_the_same_page() -> None:
    assert html_page([report(), report("fifo")]) == html_page([report(), report("fifo")])


def test_the_institute_stands_beside_the_numbers() -> None:
    words = Source(html_page([report()])).words
    for key, told in (("delivered_ratio", "98.0 %"), ("waits.all.p90_s", "1.8 h"), ("accounts_at_95", "13 of 15")):
        assert f"{BY_KEY[key].note}" in words and f"institute: {told}" in words
