"""Routes of the pages: one document for all of them, and its styles and scripts. They hold nothing of anybody's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from mirab.service.api.needs import needs
from mirab.service.api.problems import not_found
from mirab.service.auth.principal import Principal

router = APIRouter()

ADDRESSES = (
    "/", "/queue", "/jobs/{job_id}", "/accounts", "/accounts/{path:path}", "/nodes", "/nodes/{name}", "/decisions",
    "/replays", "/whatif",
)  # fmt: skip
ASSET = "/assets/{name}"
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages, and the mark by which a browser knows whether it still has it."""

    kind: str
    data: bytes
    mark: str


@cache
def assets() -> dict[str, Asset]:
    """All files of the pages by name; they are part of the package and do not change while it runs."""
    found = {}
    for each in files("mirab.service.pages").joinpath("assets").iterdir():
        kind = KINDS.get(each.name.rpartition(".")[2])
        if kind is not None:
            data = each.read_bytes()
            found[each.name] = Asset(f"{kind}; charset=utf-8", data, f'"{sha256(data).hexdigest()[:20]}"')
    return found


def _answer(asset: Asset, known: str | None, **headers: str) -> Response:
    stated = {"ETag": asset.mark, "Cache-Control": "no-cache", **headers}
    if known is not None and asset.mark in known:
        return Response(status_code=304, headers=stated)
    return Response(asset.data, media_type=asset.kind, headers=stated)


Known = Annotated[str | None, Header(alias="If-None-Match", max_length=1_024)]


def show_page(who: Annotated[Principal, needs("page.see")], known: Known = None) -> Response:
    """The document of every page; what it shows, its script asks the API for."""
    return _answer(assets()["index.html"], known, **{"Content-Security-Policy": POLICY})


for _address in ADDRESSES:
    router.add_api_route(_address, show_page, methods=["GET"], include_in_schema=False, response_class=Response)


@router.get(ASSET, include_in_schema=False, response_class=Response)
def show_asset(
    who: Annotated[Principal, needs("page.see")],
    name: Annotated[str, Path(max_length=64, pattern=r"^[a-z-]+\.[a-z]+$")],
    known: Known = None,
) -> Response:
    asset = assets().get(name)
    if asset is None or name == "index.html":
        raise not_found("there is no such part of the pages")
    return _answer(asset, known)
