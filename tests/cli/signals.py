"""The command as a child that hears the signals of a terminal, however the tests themselves were started."""

from __future__ import annotations

import subprocess
import sys

_HEAR = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
_BE_PATIENT = """
import mirab.cli.foreground
mirab.cli.foreground.TWICE_S = 600
"""
_GO = """
runpy.run_module("mirab", run_name="__main__", alter_sys=True)
"""

HEARING = [sys.executable, "-c", _HEAR + _GO]
"""`mirab`, without what nohup and background shells pass on: Ctrl-C and hang-up ignored."""
PATIENT = [sys.executable, "-c", _HEAR + _BE_PATIENT + _GO]
"""The same, and a second Ctrl-C counts as one of a pair however slow the machine is."""


def hear(child: subprocess.Popen[str], words: str) -> str:
    """What it says on standard error, up to the line with these words."""
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}, but: {said}")
