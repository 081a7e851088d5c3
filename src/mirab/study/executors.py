"""Many replays of one trace on any `concurrent.futures.Executor`: threads, processes, Dask, Ray.

The command's own way to use all cores is `mirab.cli.parallel`; this is for programs, and for engines that it does not
know. See docs/howto/sweep-on-a-grid.md.
"""

from __future__ import annotations

import hashlib
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from mirab.model.policy import Policy
from mirab.model.settings import format_setting, settings
from mirab.model.trace import Trace
from mirab.study.replays import replay_report

Report = dict[str, Any]


class ReplayFailedError(Exception):
    """One of the replays failed. `policy` is its policy; `story` the worker's own traceback."""

    def __init__(self, policy: Policy, name: str, why: str, story: str = "") -> None:
        super().__init__(f"the replay of {name} failed: {why}")
        self.policy = policy
        self.story = story


def replay_all(
    trace: Trace,
    policies: Sequence[Policy],
    executor: Executor,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Report]:
    """The report of each policy, in their order, whatever order they finish in.

    Args:
        executor: takes the replays; it stays open. Its workers need this version of mirab.
        progress: called with the number of replays that are done.

    Raises:
        ReplayFailedError: the first failure; what has not begun is cancelled.
    """
    parcel = pack(trace)
    futures = [executor.submit(replay_parcel, parcel, policy) for policy in policies]
    place = {future: number for number, future in enumerate(futures)}
    names = names_of(policies)
    try:
        for done, future in enumerate(as_completed(futures), 1):
            _check(future, policies[place[future]], names[place[future]])
            if progress is not None:
                progress(done)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [_report(future.result()) for future in futures]


def names_of(policies: Sequence[Policy]) -> list[str]:
    """What each is called in an error: its name, and the settings in which it differs from any of the others."""
    told = [name for name in settings() if len({getattr(policy, name) for policy in policies}) > 1]
    return [
        " ".join([policy.name, *(f"{name}={format_setting(policy, name)}" for name in told)]) for policy in policies
    ]


# --- what travels, and what happens there -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Parcel:
    """A trace on its way to a worker."""

    digest: str
    content: bytes


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


def unpack(parcel: Parcel) -> Trace:
    known = _unpacked.get(parcel.digest)
    if known is None:
        _unpacked.clear()
        known = _unpacked[parcel.digest] = pickle.loads(parcel.content)
    return known


def replay_parcel(parcel: Parcel, policy: Policy) -> Report | Failure:
    """One replay, in a worker."""
    try:
        return replay_report(unpack(parcel), policy)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _check(future: Future[Report | Failure], policy: Policy, name: str) -> None:
    try:
        found = future.result()
    except BrokenProcessPool:
        why = "a worker process died, perhaps for want of memory: use fewer workers"
        raise ReplayFailedError(policy, name, why) from None
    if isinstance(found, Failure):
        raise ReplayFailedError(policy, name, found.why, found.story)


def _report(found: Report | Failure) -> Report:
    assert not isinstance(found, Failure)
    return found
