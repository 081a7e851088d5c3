"""From observing to enforcing: only past the gates that somebody signed off, or with an exception that ends.

With Slurm each account is governed or left to Slurm, by the same file as `mirab slurm govern` writes. The local engine
has no other scheduler to leave accounts to: there the policy as a whole observes or enforces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from mirab.backends.slurm.governed import ALL, read_governed, write_governed
from mirab.control.recover import FILE
from mirab.core.state import State
from mirab.model.accounts import covers
from mirab.model.events import Event, PolicyChanged
from mirab.model.plans import Plan
from mirab.model.records import AuditEntry
from mirab.model.units import DAY, SECOND, Duration, Instant
from mirab.service.auth.principal import Principal
from mirab.service.desk.cases import ROLLOUT, Case, Cases
from mirab.service.desk.changesets import MIRAB
from mirab.service.desk.errors import conflict, invalid, not_found
from mirab.service.desk.forms import check_word
from mirab.service.desk.office import BRIEF, Office
from mirab.service.inbox import Entry
from mirab.service.paging import PAGE, every
from mirab.study.gatekeeping import DIGEST, broken

ACTION = "rollout.set"
OBSERVE, ENFORCE = "observe", "enforce"
SIGNED_WITHIN: Duration = 30 * DAY
"""A gate report that was signed off longer ago says nothing of today."""

Json: TypeAlias = Mapping[str, Any]

log = structlog.get_logger("mirab.rollout")


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about an account (`ALL` = everybody).

    Attributes:
        gates: digest of the gate report that it rests on; exception: id of the exception; "" = neither.
        stated: the mode that the settings named when it was decided: while they do not change, it holds over them.
        number: decisions have an order.
    """

    account: str
    mode: str
    by: str
    at: Instant
    why: str = ""
    gates: str = ""
    exception: str = ""
    stated: str = ""
    number: int = 1


class RolloutCommands:
    """For admins. `governed`: the file of governed accounts, where Slurm executes."""

    def __init__(self, office: Office, cases: Cases) -> None:
        self._office, self._cases = office, cases
        self.governed: Path | None = None
        self._decided: dict[str, Decision] = {}

    def load(self) -> None:
        """What was decided before this start."""
        store = self._office.live.store
        for entry in every(lambda cursor: store.audit(action=ACTION, limit=PAGE, after=cursor)):
            found = Decision(**json.loads(entry.after))
            known = self._decided.get(found.account)
            if known is None or known.number < found.number:
                self._decided[found.account] = found

    # --- read ---------------------------------------------------------------------------------------------------------
    def status(self) -> dict[str, Any]:
        """Which accounts are enforced upon, and on what grounds."""
        with self._office.live.reading() as state:
            mode, roots = state.policy.mode, [budget.name for budget in state.budgets.roots]
            cases = dict(self._cases.known)
            now = max(state.now, self._office.live.now())
            decided = dict(self._decided)
        if self.governed is None:
            known = decided.get(ALL)
            return {"engine": "local", "mode": mode, "accounts": [_line(ALL, mode, known, cases, now)]}
        governed = read_governed(self.governed)
        names = dict.fromkeys((*governed, *(name for name in decided if name != ALL), *roots))
        lines = [
            _line(name, ENFORCE if name in governed or ALL in governed else OBSERVE, decided.get(name), cases, now)
            for name in names
        ]
        return {"engine": "slurm", "mode": mode, "accounts": lines}

    # --- decide -------------------------------------------------------------------------------------------------------
    def set(
        self, who: Principal, account: str, mode: str, why: str, report: Json | None = None, exception: str = ""
    ) -> dict[str, Any]:
        """Let an account be enforced upon, or only observed. To observe needs no grounds.

        Args:
            report: a gate report as `mirab gate --keep --sign` keeps it.
            exception: one of kind ``rollout`` that is in force for the account.

        Raises:
            DeskError: no reason or grounds, gates that are not met or signed off, an exception that is not in force, or
                an account that this engine cannot set apart.
        """
        check_word("why", why, BRIEF)
        if not why.strip():
            raise invalid("say why: it stands in the log beside your name")
        self._check_account(account, mode)

        def build(state: State, now: Instant) -> Entry:
            gates = "" if mode == OBSERVE else self._grounds(account, report, exception, now)
            known = self._decided.get(account)
            before = state.policy.mode if self.governed is None else ""
            held = known is not None and known.mode == state.policy.mode
            made = Decision(account, mode, who.user, now, why, gates, exception if mode == ENFORCE else "",
                            known.stated if held and known is not None else before, _next(known))  # fmt: skip
            self._decided[account] = made
            facts = self._facts(state, now, made)
            return Entry(facts, (_audit(made, who.user, who.origin, before),))

        self._office.live.send(build)
        if self.governed is not None:
            self._govern(account, mode)
        return self.status()

    def _check_account(self, account: str, mode: str) -> None:
        if self.governed is None and account != ALL:
            raise invalid(
                "without Slurm there is no other scheduler to leave an account to: the policy observes or enforces as "
                f"a whole, so name the account {ALL!r}"
            )
        if not account or any(sign.isspace() for sign in account):
            raise invalid("name the account as Slurm does, or * for all")
        if self.governed is not None and mode == OBSERVE and account != ALL and ALL in read_governed(self.governed):
            raise conflict("all accounts are governed, by one line *: set * to observe, then enforce those to keep")

    def _grounds(self, account: str, report: Json | None, exception: str, now: Instant) -> str:
        """The digest of the gate report that it rests on, or "" for an exception."""
        if (report is None) == (not exception):
            raise invalid("to enforce takes grounds: a gate report that was signed off, or an exception that ends")
        if report is None:
            self._check_exception(account, exception, now)
            return ""
        _check_report(report, now)
        return str(report[DIGEST])

    def _check_exception(self, account: str, exception: str, now: Instant) -> None:
        case = self._cases.known.get(exception)
        if case is None:
            raise not_found(f"there is no exception {exception[:40]}: `mirab except request rollout ...` asks for one")
        fits = self.governed is None or account in (case.account, case.account.rpartition("/")[2])
        if case.kind != ROLLOUT or not (fits or covers(case.account, account)):
            raise conflict(f"{case.id} is of kind {case.kind} for {case.account}, not a rollout of {account}")
        if case.standing(now) != "in force":
            raise conflict(f"{case.id} is {case.standing(now)}: a rollout takes one that is in force")

    def _facts(self, state: State, now: Instant, made: Decision) -> tuple[Event, ...]:
        if self.governed is not None or state.policy.mode == made.mode:
            return ()
        return (PolicyChanged(now, replace(state.policy, mode=made.mode), made.by, made.why),)

    def _govern(self, account: str, mode: str) -> None:
        """Write the file that the backend, Slurm's plugin and `mirab slurm` read."""
        assert self.governed is not None
        accounts = dict.fromkeys(read_governed(self.governed))
        if mode == ENFORCE:
            accounts[account] = None
        elif account == ALL:
            accounts.clear()
        else:
            accounts.pop(account, None)
        write_governed(self.governed, accounts)

    # --- in the loop --------------------------------------------------------------------------------------------------
    def __call__(self, state: State, now: Instant) -> Iterator[Event]:
        """Back to observing when an exception has ended; what was decided again when only a restart undid it."""
        if self.governed is not None:
            return
        known = self._decided.get(ALL)
        if known is None:
            return
        if self._run_out(known, now) and state.policy.mode == ENFORCE:
            yield PolicyChanged(now, replace(state.policy, mode=OBSERVE), MIRAB, _ended(known))
            return
        for fact in self._office.live.news:
            if _undoes(fact, known) and state.policy.mode != known.mode:
                why = "as was decided by command; the settings name the mode that they named then"
                yield PolicyChanged(now, replace(state.policy, mode=known.mode), known.by, why)
                return

    def timer(self) -> Instant | None:
        """When the next exception that a rollout rests on ends."""
        ends = [self._cases.known[each.exception].end for each in self._decided.values() if each.exception]
        return min(ends, default=None)

    def hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """After a record: decisions whose exception has ended are over, and those that the settings overrule."""
        for known in list(self._decided.values()):
            overruled = self.governed is None and any(_overrules(fact, known) for fact in facts)
            if not overruled and not self._run_out(known, plan.at):
                continue
            by, why = (FILE, "the settings name another mode") if overruled else (MIRAB, _ended(known))
            mode = self._office.live.state.policy.mode if overruled else OBSERVE
            stated = mode if overruled else known.stated
            made = Decision(known.account, mode, by, plan.at, why, stated=stated, number=_next(known))
            self._decided[known.account] = made
            if self.governed is not None:
                self._govern(known.account, OBSERVE)
            log.warning("rollout.changed", account=known.account, mode=mode, hint=why)
            self._office.live.store.write((_audit(made, by, "", known.mode),))

    def _run_out(self, known: Decision, now: Instant) -> bool:
        """Whether it rests on an exception that is no longer in force."""
        case = self._cases.known.get(known.exception)
        return case is not None and known.mode == ENFORCE and case.standing(now) != "in force"


def _undoes(fact: Event, known: Decision) -> bool:
    """Whether a start with unchanged settings has set another mode than was decided."""
    return isinstance(fact, PolicyChanged) and fact.author == FILE and fact.policy.mode == known.stated


def _overrules(fact: Event, known: Decision) -> bool:
    return (
        isinstance(fact, PolicyChanged) and fact.author == FILE and fact.policy.mode not in (known.mode, known.stated)
    )


def _ended(known: Decision) -> str:
    return f"the exception {known.exception} that it rested on has ended"


def _next(known: Decision | None) -> int:
    return 1 if known is None else known.number + 1


def _audit(made: Decision, who: str, origin: str, before: str) -> AuditEntry:
    text = json.dumps(asdict(made), separators=(",", ":"), ensure_ascii=False)
    return AuditEntry(made.at, who, origin, ACTION, made.account, before, text, made.why)


def _line(account: str, mode: str, known: Decision | None, cases: Mapping[str, Case], now: Instant) -> dict[str, Any]:
    """One account of the status; a decision that is not what holds is not its ground."""
    if known is None or known.mode != mode:
        known = Decision(account, mode, "", 0)
    case = cases.get(known.exception)
    return {
        "account": account,
        "mode": mode,
        "by": known.by,
        "at": known.at or None,
        "why": known.why,
        "gates": known.gates,
        "exception": known.exception,
        "until": case.end if case is not None and case.standing(now) == "in force" else None,
    }


def _check_report(report: Json, now: Instant) -> None:
    """Raises DeskError unless every gate was met, somebody signed it off lately, and nobody changed it since."""
    wrong = broken(dict(report), {})
    if wrong:
        raise invalid(f"this gate report does not hold: {'; '.join(wrong)}. Keep one with `mirab gate --keep --sign`")
    if report.get("met") is not True:
        raise conflict("not every gate is met in this report: it is no ground to enforce")
    signed = report.get("signed")
    if not isinstance(signed, Mapping) or not signed.get("by"):
        raise conflict("nobody signed this gate report off: `mirab gate --keep FILE --sign NAME`")
    if now - _signed_at(str(signed.get("at"))) > SIGNED_WITHIN:
        raise conflict("this gate report was signed off more than 30 days ago: check the gates anew")


def _signed_at(text: str) -> Instant:
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except ValueError:
        raise invalid(f"{text[:40]!r} is no date of signing") from None
