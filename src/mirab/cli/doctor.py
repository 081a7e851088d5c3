"""`mirab doctor`: what this installation has, and what it lacks."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

import click

from mirab.cli.connection import JSON_OPTION, SERVER_OPTION
from mirab.cli.exits import Exit
from mirab.cli.missing import PACKAGES, pip
from mirab.cli.output import emit, to_json

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@click.command()
@JSON_OPTION
@SERVER_OPTION
@click.pass_context
def command(ctx: click.Context, as_json: bool, server: str | None) -> None:
    """Check this installation, this machine and the service: exit 1 if something lacks.

    Of a service: whether one answers, which, its clock, and your rights there. Of the machine: GPUs, and whether the
    state folder can hold a store.
    """
    from mirab.cli.doctorlive import look_at_service

    checks = [*look(), *_machine(), *look_at_service(server or os.environ.get("MIRAB_SERVER"))]
    if as_json:
        emit(to_json(checks))
    else:
        for each in checks:
            emit(f"{'ok  ' if each['ok'] else 'LACK'}  {each['what']:14}  {each['found']}")
    if not all(each["ok"] for each in checks):
        ctx.exit(Exit.FAILED)


def look() -> list[dict[str, Any]]:
    """Each check: what, whether it is well, and what was found or what to do."""
    from mirab import __version__
    from mirab.cli.demo import bundled
    from mirab.cli.doctorlive import check

    return [
        check("mirab", True, f"{__version__}, in {os.path.dirname(os.path.dirname(__file__))}"),
        check("core", True, _core()),
        check("python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} (3.11 or later is needed)"),
        *(_library(name) for name in PACKAGES.values()),
        check("bundled log", bundled("philly-2017-10.csv.gz").is_file(), os.fspath(bundled("philly-2017-10.csv.gz"))),
        check("cores", True, f"{len(os.sched_getaffinity(0))} for `mirab sweep`"),
        check("memory", True, _memory()),
        check("browser", True, _browser()),
    ]


def _core() -> str:
    """Whether the scheduler is compiled."""
    found = find_spec("mirab.core.decide")
    if found is not None and not str(found.origin).endswith(".py"):
        return "compiled"
    return "plain Python, two to three times slower (docs/howto/compiled.md says how to compile it)"


def _machine() -> list[dict[str, Any]]:
    from mirab.cli.doctorlive import check, look_at_machine

    try:
        return list(look_at_machine())
    except ImportError as error:
        return [check("machine", False, f"not looked at, as {error.name or error} is not installed")]


def _library(name: str) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from mirab.cli.doctorlive import check

    try:
        return check(name, True, version(name))
    except PackageNotFoundError:
        return check(name, False, f"not installed: {pip(name)}")


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"


def _browser() -> str:
    from shutil import which

    found = next((name for name in BROWSERS if which(name)), None)
    return f"{found}, for the pages" if found else "none found here: copy the page to a machine that has one"
