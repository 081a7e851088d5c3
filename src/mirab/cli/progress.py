"""A bar on standard error while a person waits; nothing where no terminal is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REFRESH_S = 0.1


@contextmanager
def bar(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A function that is told how much of `total` is done, as often as the work likes.

    It costs one look at the clock a call; the bar is redrawn ten times a second.
    """
    if quiet or total <= 0 or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as drawn:
        task = drawn.add_task(label, total=total)
        last = 0.0

        def tell(done: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= REFRESH_S:
                last = now
                drawn.update(task, completed=min(done, total), refresh=True)

        yield tell


@contextmanager
def spinner(label: str, *, quiet: bool = False) -> Iterator[None]:
    """Something that moves while work of unknown length is done."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
