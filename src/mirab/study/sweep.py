"""A grid of settings: one replay for each combination, on all cores or on somebody else's cluster."""

from __future__ import annotations

import hashlib
import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from typing import Any

from mirab import __version__
from mirab.model.policy import Policy
from mirab.model.settings import with_texts
from mirab.model.trace import Trace
from mirab.study.figures import input_part, policy_fields
from mirab.study.replays import replay_report

Grid = Sequence[tuple[str, Sequence[str]]]
"""Settings with the values that each takes, as texts: ``[("window", ["1d", "7d"]), ("margin", ["5%", "10%"])]``."""

Settings = dict[str, str]


class SweepError(Exception):
    """A replay of the grid failed. `settings` is its point; `story` the worker's own traceback."""

    def __init__(self, settings: Settings, why: str, story: str = "") -> None:
        super().__init__(f"grid point {named(settings)}: {why}")
        self.settings = settings
        self.story = story


def sweep(
    trace: Trace,
    policy: Policy,
    grid: Grid,
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Replay the trace once for each combination of settings.

    Args:
        workers: processes on this machine; None = as many as it has cores.
        executor: an engine that takes the replays instead, such as Dask's ``Client.get_executor()``. It stays open.
        progress: called with the number of replays that are done.

    Returns:
        ``{"mirab", "policy", "input", "grid", "points"}``: points in the order of the grid, the last setting
        changing fastest, each with its ``settings``, ``policy``, ``metrics``, ``by_account`` and ``performance``.

    Raises:
        ValueError: the grid names no known setting, a value that it cannot have, a setting twice or one without values.
        SweepError: a replay failed; nothing more is started then.
    """
    points = combinations(grid)
    policies = [with_texts(policy, settings) for settings in points]
    parcel = pack(trace)
    tasks = list(zip(points, policies, strict=True))
    if executor is not None:
        found = _gather([(settings, executor.submit(run, each, parcel)) for settings, each in tasks], progress)
    else:
        found = _on_this_machine(tasks, parcel, min(workers or cores(), len(tasks)), progress)
    return {
        "mirab": __version__,
        "policy": policy_fields(policy),
        "input": input_part(trace),
        "grid": {name: list(values) for name, values in grid},
        "points": [{"settings": settings, **point} for settings, point in zip(points, found, strict=True)],
    }


def combinations(grid: Grid) -> list[Settings]:
    """Every combination of the grid, the last setting changing fastest; one empty point for an empty grid.

    Raises:
        ValueError: a setting stands twice, or has no values.
    """
    names = [name for name, _ in grid]
    for name, values in grid:
        if names.count(name) > 1:
            raise ValueError(f"the grid names {name} twice: give all its values at once, as in {name}=a,b")
        if not values:
            raise ValueError(f"the grid gives no value to {name}: write {name}=a,b")
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*(values for _, values in grid))]


def named(settings: Settings) -> str:
    """A point as people write it: ``window=1d margin=5%``."""
    return " ".join(f"{name}={text}" for name, text in settings.items()) or "(no settings)"


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


# --- what travels to a worker and what it does there ------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Parcel:
    """A trace on its way to a worker. `content` is None where the worker has been given it already."""

    digest: str
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a worker, as text: exceptions of others do not always survive the journey."""

    why: str
    story: str


_unpacked: dict[str, Trace] = {}
"""The last trace that this worker got, by its digest, so that it is unpacked once and not for each replay."""


def pack(trace: Trace) -> Parcel:
    content = pickle.dumps(trace, protocol=pickle.HIGHEST_PROTOCOL)
    return Parcel(hashlib.sha256(content).hexdigest(), content)


def receive(parcel: Parcel) -> Trace:
    """The trace of a parcel."""
    known = _unpacked.get(parcel.digest)
    if known is None:
        if parcel.content is None:
            raise RuntimeError("this worker was not given the log")
        _unpacked.clear()
        known = _unpacked[parcel.digest] = pickle.loads(parcel.content)
    return known


def run(policy: Policy, parcel: Parcel) -> dict[str, Any] | Failure:
    """One replay, in a worker."""
    try:
        report = replay_report(receive(parcel), policy)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
    return {key: report[key] for key in ("policy", "metrics", "by_account", "performance")}


# --- who runs them ----------------------------------------------------------------------------------------------------
def _on_this_machine(
    tasks: Sequence[tuple[Settings, Policy]], parcel: Parcel, workers: int, progress: Callable[[int], None] | None
) -> list[dict[str, Any]]:
    """Fresh processes, each given the trace once. They import the caller's main module, so it must be importable."""
    light = Parcel(parcel.digest, None)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare, initargs=(parcel,))
    try:
        return _gather([(settings, pool.submit(run, policy, light)) for settings, policy in tasks], progress)
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(parcel: Parcel) -> None:
    receive(parcel)


def _gather(
    futures: Sequence[tuple[Settings, Future[dict[str, Any] | Failure]]], progress: Callable[[int], None] | None
) -> list[dict[str, Any]]:
    """Results in the order of the grid. The first failure cancels what has not started."""
    settings_of = {future: settings for settings, future in futures}
    try:
        for done, future in enumerate(as_completed(settings_of), 1):
            _result(settings_of[future], future)
            if progress is not None:
                progress(done)
    except BaseException:
        for _, future in futures:
            future.cancel()
        raise
    return [_result(settings, future) for settings, future in futures]


def _result(settings: Settings, future: Future[dict[str, Any] | Failure]) -> dict[str, Any]:
    try:
        found = future.result()
    except BrokenProcessPool:
        why = "a worker process died, perhaps for want of memory: try again with fewer workers"
        raise SweepError(settings, why) from None
    if isinstance(found, Failure):
        raise SweepError(settings, found.why, found.story)
    return found
