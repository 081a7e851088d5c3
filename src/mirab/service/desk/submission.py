"""From what somebody asks for to workloads: judged against the accounts, the installed pools and the contract."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from difflib import get_close_matches

from mirab.core.caps import too_large
from mirab.core.charge import pools_for
from mirab.core.explain import too_large_for_all
from mirab.core.state import State
from mirab.model.accounts import ledger_of, plain
from mirab.model.codec import encode
from mirab.model.reasons import UnknownAccount
from mirab.model.records import JobSpec
from mirab.model.resources import Cluster, Shape
from mirab.model.units import AccountPath, Duration, Instant, UserName, WorkloadId, format_duration
from mirab.model.workloads import Workload
from mirab.service.auth.principal import Principal
from mirab.service.desk.arrays import ArraySpec, task_id
from mirab.service.desk.ask import ARRAY_OUTPUT, OUTPUT, Ask, progress_interval
from mirab.service.desk.dependencies import Dependency
from mirab.service.desk.errors import DeskError, denied, invalid, not_found
from mirab.study import words

NO_ID = WorkloadId("")


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that could be accepted: one workload and spec without ids, to be numbered."""

    workload: Workload
    spec: JobSpec
    array: ArraySpec | None
    hold: bool
    notes: tuple[str, ...]

    def numbered(self, number: str) -> list[tuple[Workload, JobSpec]]:
        """The job of that number, or the tasks of the array."""
        job = WorkloadId(number)
        if self.array is None:
            return [(replace(self.workload, id=job), replace(self.spec, workload_id=job))]
        after = len(self.array.tasks)
        return [self._task(job, self.array, place - after + 1) for place in range(after)]

    def _task(self, job: WorkloadId, array: ArraySpec, place: int) -> tuple[Workload, JobSpec]:
        """The tasks are a millisecond apart, the last one at `place` 0, so that they keep their order in the queue."""
        task = array.tasks[place - 1]
        name = task_id(job, task)
        spec = replace(self.spec, workload_id=name, array_job=job, array_task=task, array_limit=array.limit)
        return replace(self.workload, id=name, submitted_at=self.workload.submitted_at + place), spec


def judged(ask: Ask, who: Principal, run_as: tuple[int | None, int | None], state: State, now: Instant,
           after: tuple[Dependency, ...]) -> Draft:  # fmt: skip
    """What becomes of a form at this instant.

    Args:
        run_as: Unix user and group of its processes; None = the service's own.
        after: its dependencies, with those that name nobody resolved.

    Raises:
        DeskError: no such account, no right to it, it can never fit, or its deadline is over.
    """
    account = account_for(ask.form.account, who, state)
    check_fits(ask.shape, state.cluster)
    check_caps(ask.shape, account, state)
    if ask.deadline_at is not None and ask.deadline_at <= now:
        raise invalid("the deadline is over already: give one in the future, or none")
    form, shape = ask.form, ask.shape
    workload = Workload(
        id=NO_ID,
        submitted_at=now,
        account=account,
        user=UserName(who.user),
        shape=shape,
        label=form.label,
        checkpoint=ask.checkpoint,
        restart=ask.restart,
        resume=form.resume,
        priority=form.priority,
        deadline_at=ask.deadline_at,
    )
    spec = JobSpec(
        workload_id=NO_ID,
        name=ask.name,
        argv=tuple(form.argv),
        script=form.script,
        cwd=form.cwd,
        environment=tuple(sorted(form.environment.items())),
        output=form.output or (ARRAY_OUTPUT if ask.array else OUTPUT),
        error=form.error,
        append=form.append,
        signal=signal_name(form.signal),
        grace=min(shape.grace, state.policy.grace_max),
        time_limit=shape.time_limit,
        checkpoint_file=form.checkpoint_file,
        verify_resume=form.verify_resume,
        uid=run_as[0],
        gid=run_as[1],
        interactive=form.interactive,
        idle_timeout=ask.idle_timeout,
        after=tuple((each.kind, each.job) for each in after),
        progress_interval=progress_interval(ask),
        account=account,
        user=UserName(who.user),
    )
    return Draft(workload, spec, ask.array, form.hold, (*ask.notes, *_notes(shape, account, state)))


def _notes(shape: Shape, account: AccountPath, state: State) -> list[str]:
    """What is accepted, and yet not as asked."""
    notes = []
    minimum = state.minimum_in_force(account, shape.min_runtime)
    if minimum < shape.min_runtime:
        notes.append(_cut("its minimum", shape.min_runtime, minimum, f"that {account} may declare"))
    if shape.grace > state.policy.grace_max:
        notes.append(_cut("its notice before a stop", shape.grace, state.policy.grace_max, "there is"))
    return notes


def _cut(what: str, asked: Duration, given: Duration, longest: str) -> str:
    return f"{what} is cut from {format_duration(asked)} to {format_duration(given)}, the longest {longest}"


# --- accounts -------------------------------------------------------------------------------------------------------
def account_for(text: str, who: Principal, state: State) -> AccountPath:
    """The account that it is for, by name or because there is only one.

    Raises:
        DeskError: it does not exist or takes no work (the nearest is named), or they may not submit for it.
    """
    account = AccountPath(text or _only_account(who, state))
    if pool := ledger_of(account):
        mine = plain(account)
        raise invalid(
            f"{account} is what {mine} has of pool {pool}: submit for {mine}, and name the type of GPU to be "
            "charged there"
        )
    if state.budgets.is_closed(account) or (not state.is_open(account) and state.policy.unknown_accounts != "zero"):
        raise _unknown(account, who, state)
    if not _is_path(account):
        raise invalid(f"{account!r} is not an account: write program/project")
    if not who.may("job.submit", account):
        yours = ", ".join(_accounts_of(who)) or "none"
        raise denied(f"{who.user} may not submit for {account} (may for: {yours}): ask its manager for access")
    return account


def _is_path(account: str) -> bool:
    return all(name and name != "*" for name in account.split("/"))


def _accounts_of(who: Principal) -> list[str]:
    return [grant.account for grant in who.grants if grant.account and who.may("job.submit", grant.account)]


def _only_account(who: Principal, state: State) -> str:
    """The one that they have a role in, or the only one there is (as on a laptop)."""
    mine = list(dict.fromkeys(_accounts_of(who)))
    if not mine and len(leaves := state.budgets.leaves()) == 1:
        return leaves[0]
    if len(mine) == 1:
        return mine[0]
    hint = f"yours are {', '.join(mine)}" if mine else "`mirab share` lists them"
    raise invalid(f"say for which account it is (-A): {hint}")


def _unknown(account: AccountPath, who: Principal, state: State) -> DeskError:
    known = [str(path) for path in state.open_accounts if not state.budgets.is_closed(path)]
    close = get_close_matches(account, [path for path in known if who.may("job.submit", path)], 1, 0.5)
    close = close or get_close_matches(account, known, 1, 0.5)
    heir = state.heirs.get(account)
    hint = f"did you mean {close[0]}?" if close else "`mirab share` lists those that there are"
    hint = f"it is {heir} now" if heir else hint
    reason = encode(UnknownAccount(account))
    if account in state.accounts:
        return invalid(f"account {account} is closed and takes no new work: {hint}", reason=reason)
    return not_found(f"there is no account {account!r}: {hint}", reason=reason)


# --- what can ever fit ----------------------------------------------------------------------------------------------
def check_fits(shape: Shape, cluster: Cluster) -> None:
    """Raises DeskError if no pool could ever hold it, with what there is."""
    if pools_for(shape, cluster):
        return
    types = list(dict.fromkeys(pool.gpu_type for pool in cluster.pools if pool.gpu_type))
    for wanted in shape.gpu_types:
        if wanted not in types:
            close = get_close_matches(wanted, types, 1, 0.4)
            there = f"the types here are {', '.join(types)}" if types else "those here have no type"
            raise invalid(
                f"there are no GPUs of type {wanted!r}: {f'did you mean {close[0]}? ' if close else ''}{there}"
            )
    reason = too_large_for_all(shape, cluster)
    raise invalid(_too_much_per_node(shape, cluster) or words.sentence(reason), reason=encode(reason))


def check_caps(shape: Shape, account: AccountPath, state: State) -> None:
    """Raises DeskError if a budget's cap forbids one piece of work of this size."""
    leaf = state.leaf_for(account)
    large = None if leaf is None else too_large(leaf, shape)
    if large is not None:
        raise invalid(words.sentence(large), reason=encode(large))


def _too_much_per_node(shape: Shape, cluster: Cluster) -> str:
    """Cores or memory that no node has, where the GPUs and nodes would be there."""
    lean = shape._replace(cpus_per_node=min(shape.cpus_per_node, 1), memory_mib_per_node=0)
    pools = [cluster.pools[number] for number in pools_for(lean, cluster)]
    for asked, field, unit in (
        (shape.cpus_per_node, "cpus_per_node", "cores"),
        (shape.memory_mib_per_node, "memory_mib_per_node", "MiB of memory"),
    ):
        most = max((getattr(pool, field) for pool in pools), default=0)
        if most and asked > most:
            return f"asks for {asked:,} {unit} on a node, and the largest that would do has {most:,}: ask for less"
    return ""


# --- signals --------------------------------------------------------------------------------------------------------
def signal_name(text: str) -> str:
    """The name without SIG; numbers become names.

    Raises:
        DeskError: there is no such signal, or it leaves no time to save anything.
    """
    name = text.strip().upper().removeprefix("SIG") or "TERM"
    known = {each.name.removeprefix("SIG"): each for each in signal.Signals}
    if name.isdigit():
        name = next((key for key, each in known.items() if each == int(name)), name)
    base = name.partition("+")[0].partition("-")[0]
    if base not in known or (base != name and base not in ("RTMIN", "RTMAX")):
        close = get_close_matches(name, known, 1)
        raise invalid(f"there is no signal {text!r}: " + (f"did you mean {close[0]}?" if close else "USR1 is usual"))
    if name in ("KILL", "STOP"):
        raise invalid(f"{name} as notice leaves a run no time to save its work: choose TERM or USR1")
    return name
