"""The files of the pages: nothing from outside, nothing inline, nothing forgotten."""

from __future__ import annotations

import re

import httpx

from mirab.service.pages.site import ADDRESSES, KINDS, assets
from tests.api.stage import PATIENCE, Stage

OUTSIDE = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]", re.IGNORECASE)
DANGEROUS = ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function", "document.write", "@import")
NAMED = re.compile(r"/assets/([a-z-]+\.[a-z]+)")


def texts() -> dict[str, str]:
    return {name: asset.data.decode() for name, asset in assets().items()}


def test_nothing_is_loaded_from_outside_or_stands_inline() -> None:
    for name, text in texts().items():
        assert OUTSIDE.search(text) is None, name
        assert [word for word in DANGEROUS if word in text] == [], name
    html = texts()["index.html"]
    assert re.search(r"<style|style=|\son[a-z]+=|<script(?![^>]*src=)", html) is None


def test_every_file_is_used_and_every_name_is_a_file() -> None:
    found = texts()
    named = {name for text in found.values() for name in NAMED.findall(text)}
    assert named == set(found) - {"index.html"}
    assert {name.rpartition(".")[2] for name in found} == set(KINDS)


def test_every_address_gives_the_page_and_every_file_its_kind(service: Stage) -> None:
    with httpx.Client(base_url=service.url, timeout=PATIENCE, verify=False) as visitor:
        for address in ADDRESSES:
            page = visitor.get(re.sub(r"\{[^}]*\}", "1", address))
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
        for name, asset in assets().items():
            if name != "index.html":
                answer = visitor.get(f"/assets/{name}")
                assert (answer.content, answer.headers["content-type"]) == (asset.data, asset.kind)
        for name in ("none.js", "index.html", "..%2fsite.py", "site.py"):
            assert visitor.get(f"/assets/{name}").status_code in (404, 422), name
