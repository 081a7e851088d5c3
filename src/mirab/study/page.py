"""One self-contained HTML page about one replay, or several side by side. Nothing is loaded from anywhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mirab.study import pagehead, pageparts
from mirab.study.catalogue import Report
from mirab.study.formats import printable
from mirab.study.pagehead import Subject, subject
from mirab.study.reportparts import rows_used, scene
from mirab.study.svg import MARKS

_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h|d|pt|of \d+|nodes?|cores?|GPUs?|GPU-h)(?!\w))")

MOST = len(MARKS)
"""Policies that can be told apart on one page."""


def html_page(reports: Sequence[Report]) -> str:
    """The page. The same reports give the same bytes.

    The policy of the page allows this one style sheet and this one script, by their hashes, and no request at all.

    Raises:
        ValueError: no report, or more than `MOST`.
    """
    if not 1 <= len(reports) <= MOST:
        raise ValueError(f"a page shows 1 to {MOST} replays, not {len(reports)}: leave some out, or make several pages")
    of = subject(reports)
    style, script = asset("page.css"), asset("page.js")
    return environment().get_template("page.html.j2").render(
        of=of,
        title=_title(of),
        style=Markup(style),
        script=Markup(script),
        policy=security_policy(style, script),
        scene=scene(of.first)[0],
        used=rows_used(of.first),
        lede=pagehead.lede(of),
        cards=[] if of.several else pagehead.cards(of),
        panels=pagehead.panels(of) if of.several else [],
        capacity=pageparts.capacity(of),
        budgets=pageparts.budgets(of),
        waits=pageparts.waits(of),
        preemption=pageparts.preemption(of),
        fragmentation=pageparts.fragmentation(of),
        measures=pagehead.measures(of),
        absent=pagehead.absent_measures(of),
        settings=pagehead.settings(of),
        marks=MARKS,
    )  # fmt: skip


def _title(of: Subject) -> str:
    name = of.first["input"]["name"]
    if not of.several:
        return f"{name} under policy {of.labels[0]}"
    return f"{name} under {', '.join(of.labels[:-1])} and {of.labels[-1]}"


@cache
def environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mirab.study"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["tight"] = _tight
    environment.finalize = _shown
    return environment


def _shown(value: object) -> object:
    return printable(value) if type(value) is str else value


def _tight(text: str) -> str:
    """Numbers stay on one line with their units."""
    return _UNIT.sub("\u00a0", text)


@cache
def asset(name: str) -> str:
    return files("mirab.study").joinpath("templates", name).read_text("utf-8")


def security_policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
