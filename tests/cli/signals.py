"""The command as a child that hears the signals of a terminal, however the tests themselves were started."""

from __future__ import annotations

import sys

_CODE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
runpy.run_module("mirab", run_name="__main__", alter_sys=True)
"""

HEARING = [sys.executable, "-c", _CODE]
"""`mirab`, without what nohup and background shells pass on: Ctrl-C and hang-up ignored."""
