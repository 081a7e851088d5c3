"""From the store to a running state: the journal, a snapshot where one fits, and what the settings say is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from mirab.control.recover import FILE, Intents, take_in
from mirab.core.state import State
from mirab.model.accounts import Budgets
from mirab.model.codec import decode, encode
from mirab.model.events import BudgetsChanged, ClusterChanged, Event, PolicyChanged
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.records import Beginning
from mirab.model.resources import Cluster, Pool, extends
from mirab.model.units import HOUR, Duration, Instant, NodeName
from mirab.service.snapshot import SnapshotError, fingerprint, freeze, thaw
from mirab.store.beginning import beginning

CRASHES = "crashes.json"
OFTEN = 3
"""So many ends for the same reason, each within `LATELY` after the one before, are no accident."""
DOUBTFUL = 2
"""After so many of them the next start reads the whole journal instead of a snapshot."""
LATELY: Duration = HOUR

log = structlog.get_logger("mirab.recover")


class RecoverError(Exception):
    """The state cannot be rebuilt, or not so as the settings want it; the message says what to do."""


class Journal(Protocol):
    """What recovery asks of the store."""

    def records(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...], Plan]]: ...
    def last(self) -> tuple[int, Instant]: ...
    def meta(self, key: str) -> str | None: ...
    def put_meta(self, key: str, value: str) -> None: ...
    def snapshot(self, fingerprint: str) -> tuple[int, bytes] | None: ...
    def put_snapshot(self, seq: int, fingerprint: str, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings of this start say; None = nothing, what the ledger has goes on.

    `detected`: the cluster is what this machine has, and its nodes are named after it (which a container changes).
    `mode`: of a policy on an engine that has a scheduler of its own (where accounts without a budget run too).
    """

    cluster: Cluster | None = None
    budgets: Budgets | None = None
    policy: Policy | None = None
    detected: bool = False
    mode: str | None = None

    def fitted(self, policy: Policy) -> Policy:
        """The policy in the mode that is wanted."""
        return policy if self.mode is None else replace(policy, mode=self.mode, unknown_accounts="zero")


@dataclass(slots=True)
class Recovered:
    """A state as of the last record.

    Attributes:
        first: the ledger has just begun.
        changes: facts by which the state becomes what the settings want; the first cycle is to take them in.
        replayed: records that were folded, beyond the snapshot.
    """

    state: State
    intents: Intents
    seq: int
    first: bool = False
    replayed: int = 0
    changes: list[Event] = field(default_factory=list)


def recover(journal: Journal, wanted: Wanted, defaults: Beginning, *, snapshot: bool = True) -> Recovered:
    """The state of the journal, or a new one from what is wanted (and the defaults) if nothing has been recorded.

    `snapshot`: one may be used; without, the whole journal is read.

    Raises:
        RecoverError: a record cannot be folded, or what is wanted cannot follow from what there is.
    """
    fingerprint()  # now, of what this process has loaded: an upgrade replaces the files while it runs
    began = beginning(journal.meta)
    if began is None:
        return _begin(journal, wanted, defaults)
    found = (_from_snapshot(journal) if snapshot else None) or Recovered(
        State(began.cluster, began.budgets, began.policy, now=began.at), Intents(), 0
    )
    _replay(journal, found)
    found.changes = list(_changes(found.state, found.intents, wanted, began))
    return found


def _begin(journal: Journal, wanted: Wanted, defaults: Beginning) -> Recovered:
    """Put down what the ledger begins with; what a first start that was cut short has put down stays."""
    seq, _ = journal.last()
    if seq:
        raise RecoverError(
            f"the store has {seq} records and does not say what they began with: it was not made by mirab serve, or "
            "was damaged; see `mirab db check`"
        )
    cluster: Cluster = _put_once(journal, "cluster", wanted.cluster or defaults.cluster)
    budgets: Budgets = _put_once(journal, "budgets", wanted.budgets or defaults.budgets)
    policy: Policy = _put_once(journal, "policy", wanted.fitted(wanted.policy or defaults.policy))
    journal.put_meta("began_at", str(defaults.at))
    return Recovered(State(cluster, budgets, policy, now=defaults.at), Intents(), 0, first=True)


def _put_once(journal: Journal, key: str, value: Any) -> Any:
    kept = journal.meta(key)
    if kept is not None:
        return decode(json.loads(kept))
    journal.put_meta(key, json.dumps(encode(value), ensure_ascii=False, separators=(",", ":")))
    return value


def _from_snapshot(journal: Journal) -> Recovered | None:
    """A snapshot only saves time: one that does not fit is left aside."""
    kept = journal.snapshot(fingerprint())
    if kept is None:
        return None
    try:
        state, intents = thaw(kept[1])
        if isinstance(state, State) and isinstance(intents, Intents):
            return Recovered(state, intents, kept[0])
    except (SnapshotError, ValueError, TypeError) as error:
        log.warning("snapshot.unusable", seq=kept[0], error=str(error), hint="the whole journal is read instead")
    return None


def take_snapshot(journal: Journal, state: State, intents: Intents, seq: int) -> None:
    """Put the state after record `seq` away."""
    keep_snapshot(journal, freeze((state, intents)), seq)


def keep_snapshot(journal: Journal, data: bytes, seq: int) -> None:
    """The same with the bytes of state and intents, which somebody else has made."""
    journal.put_snapshot(seq, fingerprint(), data)


def _replay(journal: Journal, found: Recovered) -> None:
    for seq, facts, plan in journal.records(after=found.seq):
        try:
            take_in(found.state, facts, plan)
            found.intents.take_in(facts, plan, found.state.policy.observing)
        except Exception as error:
            raise RecoverError(
                f"record {seq} of the journal cannot be taken in ({type(error).__name__}: {error}). Keep the store as "
                "it is (`mirab db backup FILE`), start the version of mirab that wrote it, and report this"
            ) from error
        found.seq = seq
        found.replayed += 1


def _changes(state: State, intents: Intents, wanted: Wanted, began: Beginning) -> Iterator[Event]:
    """The facts that lead from the ledger's cluster, policy and budgets to those that are wanted.

    Budgets that were decided over the API since the file was last read stay in force as long as nobody edits the file.
    """
    now = state.now
    if wanted.cluster is not None and not _same_cluster(wanted, state.cluster):
        wrong = extends(wanted.cluster, state.cluster)
        if wrong:
            raise RecoverError(
                f"the cluster is not the one that the ledger knows: {wrong}; or begin a new ledger with another "
                "--state-dir and --db"
            )
        yield ClusterChanged(now, wanted.cluster)
    policy = wanted.fitted(wanted.policy or state.policy)
    if policy != state.policy:
        if policy.half_life != state.policy.half_life:
            raise RecoverError(
                "the policy has another half_life than the ledger, which cannot change how it forgets: keep it as it "
                "was, or begin a new ledger with another --state-dir and --db"
            )
        yield PolicyChanged(now, policy, FILE, "the settings say so at this start")
    filed = intents.filed or began.budgets
    if wanted.budgets is not None and wanted.budgets != filed:
        yield BudgetsChanged(now, wanted.budgets, FILE, "the cluster file was changed since the last start")


def _same_cluster(wanted: Wanted, known: Cluster) -> bool:
    """Whether it is the ledger's cluster; one that was detected may have got another name."""
    return wanted.cluster == known or (wanted.detected and _nameless(wanted.cluster) == _nameless(known))


def _nameless(cluster: Cluster | None) -> list[Pool]:
    pools = cluster.pools if cluster is not None else ()
    return [replace(pool, nodes=tuple(NodeName("") for _ in pool.nodes), memory_mib_per_node=0) for pool in pools]


# --- ends for the same reason ----------------------------------------------------------------------------------------
def note_crash(folder: Path, error: str, now: Instant) -> int:
    """Count an end for this reason, and return how often it has been one within `LATELY`, without another between."""
    last, before = _crashes(folder, now)
    count = before + 1 if last == error else 1
    text = json.dumps({"error": error, "count": count, "at": now})
    (folder / CRASHES).write_text(text, encoding="utf-8")
    return count


def crashing(folder: Path, now: Instant) -> bool:
    """Whether it has ended again and again for one reason: a snapshot may be to blame, the journal is not."""
    return _crashes(folder, now)[1] >= DOUBTFUL


def _crashes(folder: Path, now: Instant) -> tuple[str, int]:
    """The reason of the last end, and how often it has been one; ("", 0) = there was none lately."""
    try:
        noted = json.loads((folder / CRASHES).read_text(encoding="utf-8"))
        return (str(noted["error"]), int(noted["count"])) if now - int(noted["at"]) <= LATELY else ("", 0)
    except (OSError, ValueError, TypeError, LookupError):
        return "", 0


def crash_advice(count: int, seq: int, fact: str) -> str:
    """What to do about a fault that comes again at each start; "" = it may have been an accident."""
    if count < OFTEN:
        return ""
    cause = f" It fails on this fact: {fact}." if fact else ""
    return (
        f"mirab has stopped {count} times for the same reason, now after record {seq}.{cause} Runs go on without it. "
        "Save the store with `mirab db backup FILE`, install the version that ran before, and report these lines"
    )
