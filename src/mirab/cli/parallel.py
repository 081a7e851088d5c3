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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from mirab.cli.exits import Exit, UnusableError
from mirab.cli.progress import bar
from mirab.cli.replaying import measured

if TYPE_CHECKING:
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace

Report = dict[str, Any]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Replay(Protocol[R_co]):
    """One replay and what is made of it; `reached` is told the instants that it reaches, in place of a bar."""

    def __call__(
        self, trace: Trace, policy: Policy, *, quiet: bool = False, reached: Callable[[int], None] | None = None
    ) -> R_co: ...


POLL_S = 0.1
PARENT_POLL_S = 1.0

_work: Callable[[int], Any] | None = None
"""What a worker process does with the number of a replay: inherited with all that it needs, not sent."""
_reached: Any = None
"""An array in shared memory: the instant that each replay has reached."""


def cores() -> int:
    return len(os.sched_getaffinity(0))


def measured_all(
    trace: Trace, policies: Sequence[Policy], *, jobs: int | None = None, quiet: bool = False
) -> list[Report]:
    """The report of each policy, in their order; `jobs` replays at a time (default: as many as there are cores)."""
    return replayed_all(measured, [(trace, policy) for policy in policies], jobs=jobs, quiet=quiet)


def replayed_all(
    replayed: Replay[R], pairs: Sequence[tuple[Trace, Policy]], *, jobs: int | None = None, quiet: bool = False
) -> list[R]:
    """What `replayed` makes of each trace under its policy, in their order; `jobs` at a time (default: all cores)."""
    at_once = min(jobs or cores(), len(pairs))
    if at_once == 1:
        return [replayed(trace, policy, quiet=quiet) for trace, policy in pairs]
    global _work, _reached
    context = multiprocessing.get_context("fork")
    _work, _reached = _worker(replayed, pairs), context.RawArray("q", len(pairs))
    with ExitStack() as ending:
        pool = ProcessPoolExecutor(at_once, context, initializer=_begin_worker, initargs=(os.getpid(),))
        ending.callback(_end_pool, pool)
        end = sum(trace.ends_at for trace, _ in pairs)
        tell = ending.enter_context(bar(f"{len(pairs)} replays", end, quiet=quiet))
        futures = [pool.submit(_do, number) for number in range(len(pairs))]
        return _results(futures, lambda: tell(sum(_reached)))


def _worker(replayed: Replay[R], pairs: Sequence[tuple[Trace, Policy]]) -> Callable[[int], R]:
    def work(number: int) -> R:
        trace, policy = pairs[number]
        return replayed(trace, policy, quiet=True, reached=lambda instant: _note(number, instant))

    return work


def _results(futures: Sequence[Future[R]], tell: Callable[[], None]) -> list[R]:
    """All results in order; the first failure is raised at once."""
    waiting: set[Future[R]] = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL_S)
        for future in done:
            _check(future)
        tell()
    return [future.result() for future in futures]


def _check(future: Future[Any]) -> None:
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


def _do(number: int) -> Any:
    assert _work is not None
    return _work(number)


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
