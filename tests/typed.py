"""Pages of docs that a reader types: their files are written, their commands run, their outputs hold to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mirab

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"`([\w-]+\.(?:yaml|awk))`[^`]*$")
LEFT_OUT = "..."

Printed = list[tuple[str, str, "subprocess.CompletedProcess[str]"]]
"""Each command of the page, what the page shows of its output, and what it did."""


def steps(page: Path) -> Iterator[tuple[str, str, str]]:
    """(``file`` or ``run``, its name or the command, its text or output), in the order of the page."""
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        if found[1] == "console":
            command, _, output = found[2].removeprefix("$ ").partition("\n")
            yield "run", command, output
        else:
            name = NAME.search(text[: found.start()])
            assert name is not None, f"the block at {found.start()} has no file name before it"
            yield "file", name[1], found[2]


def play(page: Path, folder: Path) -> Printed:
    """Write its files into the folder and run its commands there, from the beginning to the end."""
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100",
        "HOME": str(folder), "PYTHONPATH": str(Path(mirab.__file__).parents[1]),
    }  # fmt: skip
    printed: Printed = []
    for kind, name, text in steps(page):
        if kind == "file":
            (folder / name).write_text(text, "utf-8")
            continue
        done = subprocess.run(
            name, check=False, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        printed.append((name, text, done))
    return printed


def hold(printed: Printed) -> None:
    """Each command succeeds, and prints each part that the page shows."""
    for name, text, done in printed:
        assert done.returncode == 0, f"{name}: {done.stderr}"
        for part in text.split(f"{LEFT_OUT}\n"):
            part = part.strip("\n")
            assert part in done.stdout, f"{name} does not print:\n{part}\nbut:\n{done.stdout}"
