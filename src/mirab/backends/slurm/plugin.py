"""The plugin that holds governed jobs at their submission, as text."""

from __future__ import annotations

from importlib.resources import files
from os import PathLike, fspath

PLUGIN = "job_submit.lua"


def plugin_text(governed: PathLike[str]) -> str:
    """`job_submit.lua` for the controller's folder of settings, reading this file of governed accounts.

    Raises:
        ValueError: a path that cannot stand in it.
    """
    path = fspath(governed)
    if any(char in path for char in '"\\\n'):
        raise ValueError(f"{path!r}: choose a path without quotes and backslashes")
    text = files("mirab").joinpath("data", "slurm", PLUGIN).read_text(encoding="utf-8")
    return text.replace("@GOVERNED@", path)
