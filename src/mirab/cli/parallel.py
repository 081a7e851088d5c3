"""Several replays of one trace: one after the other, on all cores, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from errno import ETIMEDOUT
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from mirab.cli.exits import Exit, UnusableError
from mirab.cli.progress import bar
from mirab.cli.replaying import measured

if TYPE_CHECKING:
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace

Report = dict[str, Any]
POLL_S = 0.1
PARENT_POLL_S = 1.0

_trace: Trace | None = None
"""What a worker process replays: inherited, not sent."""
_reached: Any = None
"""An array in shared memory: the instant that each replay has reached."""


def cores() -> int:
    return len(os.sched_getaffinity(0))


def measured_all(
    trace: Trace, policies: Sequence[Policy], *, jobs: int | None = None, quiet: bool = False
) -> list[Report]:
    """The report of each policy, in their order; `jobs` replays at a time (default: as many as there are cores)."""
    at_once = min(jobs or cores(), len(policies))
    if at_once == 1:
        return [measured(trace, policy, quiet=quiet) for policy in policies]
    global _trace, _reached
    context = multiprocessing.get_context("fork")
    _trace, _reached = trace, context.RawArray("q", len(policies))
    with ExitStack() as ending:
        pool = ProcessPoolExecutor(at_once, context, initializer=_begin_worker, initargs=(os.getpid(),))
        ending.callback(_end_pool, pool)
        tell = ending.enter_context(bar(f"{len(policies)} replays", trace.ends_at * len(policies), quiet=quiet))
        futures = [pool.submit(_measure, number, policy) for number, policy in enumerate(policies)]
        return _results(futures, lambda: tell(sum(_reached)))


def _results(futures: Sequence[Future[Report]], tell: Callable[[], None]) -> list[Report]:
    """All results in order; the first failure is raised at once."""
    waiting: set[Future[Report]] = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL_S)
        for future in done:
            _check(future)
        tell()
    return [future.result() for future in futures]


def _check(future: Future[Report]) -> None:
    from concurrent.futures.process import BrokenProcessPool

    try:
        future.result()
    except BrokenProcessPool as error:
        raise UnusableError(
            "a replay was killed, probably for want of memory: use fewer at a time, --jobs 1"
        ) from error


def _begin_worker(parent: int) -> None:
    """A worker dies quietly when the person stops the command, and when the command is killed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    os._exit(Exit.FAILED)


def _measure(number: int, policy: Policy) -> Report:
    assert _trace is not None
    return measured(_trace, policy, quiet=True, reached=lambda instant: _note(number, instant))


def _note(number: int, instant: int) -> None:
    _reached[number] = instant


def _end_pool(pool: ProcessPoolExecutor) -> None:
    """Leave no worker behind, whatever happened."""
    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()


def measured_by_dask(trace: Trace, policies: Sequence[Policy], scheduler: str, *, quiet: bool = False) -> list[Report]:
    """The same on the workers of a Dask cluster, which must have this version of mirab installed.

    Raises:
        click.UsageError: Dask is not installed here.
        TimeoutError: the scheduler does not answer.
    """
    from mirab.study.replays import replay_report

    try:
        distributed: Any = import_module("dask.distributed")
    except ImportError as error:
        raise click.UsageError("--dask needs Dask: pip install 'mirab[grid]'") from error
    try:
        client = distributed.Client(scheduler, timeout="10s")
    except OSError as error:
        raise TimeoutError(ETIMEDOUT, "timed out", scheduler) from error
    with client:
        shared = client.scatter(trace, broadcast=True)
        futures = [client.submit(replay_report, shared, policy, pure=False) for policy in policies]
        with bar(f"{len(policies)} replays", len(policies), quiet=quiet) as tell:
            for count, _ in enumerate(distributed.as_completed(futures), 1):
                tell(count)
        reports: list[Report] = client.gather(futures)
    return reports
