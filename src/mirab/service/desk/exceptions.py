"""Exceptions: asked for by whoever needs one, granted by somebody else who may, for a reason, until an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from mirab.backends.slurm.governed import ALL
from mirab.core.state import State
from mirab.model.accounts import Budgets, covers, ledger_of, ledger_path, plain
from mirab.model.events import (
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    ReservationApproved,
    ReservationCancelled,
)
from mirab.model.plans import Plan
from mirab.model.policy import DRAIN_PAUSE
from mirab.model.records import Grant
from mirab.model.units import DAY, MINUTE, WHOLE, AccountPath, Duration, Instant, NodeName, format_share
from mirab.service.auth.principal import Principal
from mirab.service.desk.cases import (
    ASKED,
    GRANTED,
    KINDS,
    REFUSED,
    RESERVATION,
    REVOKED,
    ROLLOUT,
    Case,
    Cases,
    line,
)
from mirab.service.desk.changesets import MIRAB
from mirab.service.desk.errors import conflict, denied, invalid, not_found
from mirab.service.desk.forms import check_word
from mirab.service.desk.office import BRIEF, Office
from mirab.service.desk.reservations import ahead_told, check_size, earliest_told, in_a_pool, refusal
from mirab.service.inbox import Entry
from mirab.service.views.portfolio import Part, case_part
from mirab.study.formats import span

LONGEST: Duration = 14 * DAY
"""An exception that lasts longer is a rule: change the budgets or the policy."""
LATE: Duration = MINUTE
"""So much may a request be late for its own begin."""

log = structlog.get_logger("mirab.exceptions")


@dataclass(frozen=True, slots=True)
class Wish:
    """An exception that somebody asks for. `begin` None = when it is granted; see `Case` for the rest."""

    kind: str
    account: str
    reason: str
    end: Instant
    begin: Instant | None = None
    cap: Duration = 0
    share: int = 0
    donor: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    pool: str = ""
    node: str = ""


class ExceptionCommands:
    """Requests for people of an account; decisions for managers and admins of all who may pay for it.

    `longest`: how long one may last.
    """

    def __init__(self, office: Office, cases: Cases, longest: Duration = LONGEST) -> None:
        self._office, self._cases, self.longest = office, cases, longest

    def all(self) -> list[Part]:
        """Every case with what it costs whom, by begin."""
        with self._office.live.reading() as state:
            return [self._told(case, state) for case in self._cases.all(state)]

    def told(self, case: Case) -> Part:
        """The case for people, with what it costs whom."""
        with self._office.live.reading() as state:
            return self._told(case, state)

    def _told(self, case: Case, state: State) -> Part:
        now = max(state.now, self._office.live.now())
        open_ = case.kind == RESERVATION and case.standing(now) in (ASKED, "to come")
        note = ahead_told(case, state, now) if open_ else ""
        return case_part(case, state.cluster, state.budgets, now, note)

    # --- asking -------------------------------------------------------------------------------------------------------
    def request(self, who: Principal, wish: Wish) -> Case:
        """Ask for an exception. Nothing changes until somebody else approves it.

        Raises:
            DeskError: it has no reason, account or end, lasts too long, could never hold, or is not theirs to ask.
        """
        check_word("reason", wish.reason, BRIEF)
        made: list[Case] = []

        def build(state: State, now: Instant) -> Entry:
            case = in_a_pool(_case(self._cases.next_id(state), who, wish, now), state)
            if not who.may("exception.request", case.account):
                raise denied(f"{who.user} may not ask for {case.account}: that takes a role on the account")
            self._check(case, state, now)
            self._cases.keep(case)
            made.append(case)
            return Entry((), (line(case, "request", now, who.user, who.origin, case.reason),))

        self._office.live.send(build)
        return made[-1]

    def _check(self, case: Case, state: State, now: Instant) -> None:
        if not case.reason.strip():
            raise invalid("say why: the reason stands beside the exception as long as it is remembered")
        _check_dates(case, now, self.longest)
        _check_account(case.account, state)
        _CHECKS.get(case.kind, _check_kind)(case, state)

    # --- deciding -----------------------------------------------------------------------------------------------------
    def approve(self, who: Principal, case_id: str, why: str = "") -> Case:
        """Grant it. A reservation that the core cannot promise is refused, with its sentence.

        Raises:
            DeskError: ``denied``: not theirs to approve, or their own request while others could decide;
                ``conflict``: it was decided already, or the core does not accept the reservation.
        """
        check_word("why", why, BRIEF)

        def build(state: State, now: Instant) -> Entry:
            case = self._asked(case_id, state, now)
            self._check_approver(who, case, state, now)
            begin = max(case.begin, now)
            case = replace(
                case, state=GRANTED, approver=who.user, begin=begin, decided=why, decided_at=now, step=case.step + 1
            )
            self._check(case, state, now)
            self._cases.keep(case)
            return Entry(_granted(case, now), (line(case, "approve", now, who.user, who.origin, why or case.reason),))

        seq = self._office.live.send(build)
        self._judge(case_id, seq)
        return self._cases.known[case_id]

    def _judge(self, case_id: str, seq: int) -> None:
        """What the plan of that record says of a reservation."""
        if self._cases.known[case_id].kind != RESERVATION:
            return
        _, _, plan = next(self._office.live.store.records(after=seq - 1))
        sentence = refusal(plan, case_id)
        if not sentence:
            return

        def build(state: State, now: Instant) -> Entry:
            case = self._cases.known[case_id]
            case = replace(case, state=REFUSED, decided=sentence, decided_at=now, step=case.step + 1)
            self._cases.keep(case)
            return Entry((), (line(case, "refuse", now, MIRAB, why=sentence),))

        self._office.live.send(build)
        with self._office.live.reading() as state:
            told = earliest_told(self._cases.known[case_id], state, max(state.now, self._office.live.now()))
        raise conflict(f"reservation {case_id} cannot be promised: {sentence}. {told}")

    def refuse(self, who: Principal, case_id: str, why: str) -> Case:
        """Say no to a request, and why."""
        return self._end(who, case_id, why, REFUSED)

    def revoke(self, who: Principal, case_id: str, why: str) -> Case:
        """End it before its end, or take a request back."""
        return self._end(who, case_id, why, REVOKED)

    def _end(self, who: Principal, case_id: str, why: str, wanted: str) -> Case:
        check_word("why", why, BRIEF)
        if not why.strip():
            raise invalid("say why: it stands in the log beside your name")
        step = "refuse" if wanted == REFUSED else "revoke"

        def build(state: State, now: Instant) -> Entry:
            case = self._found(case_id, state)
            self._check_may_end(who, case, state, wanted)
            if case.standing(now) not in ((ASKED,) if wanted == REFUSED else (ASKED, "to come", "in force")):
                raise conflict(f"{case.id} is {case.standing(now)}: there is nothing to {step}")
            facts = _revoked(case, now) if case.state == GRANTED else ()
            case = replace(case, state=wanted, decided=why, decided_at=now, step=case.step + 1)
            if wanted == REFUSED:
                case = replace(case, approver=who.user)
            self._cases.keep(case)
            return Entry(facts, (line(case, step, now, who.user, who.origin, why),))

        self._office.live.send(build)
        return self._cases.known[case_id]

    def _found(self, case_id: str, state: State) -> Case:
        case = self._cases.find(case_id, state)
        if case is None:
            raise not_found(f"there is no exception {case_id[:40]}: `mirab except list` shows those there are")
        return case

    def _asked(self, case_id: str, state: State, now: Instant) -> Case:
        case = self._found(case_id, state)
        if case.standing(now) != ASKED:
            raise conflict(f"{case.id} is {case.standing(now)} already: ask for a new one")
        return case

    # --- rights -------------------------------------------------------------------------------------------------------
    def _check_approver(self, who: Principal, case: Case, state: State, now: Instant) -> None:
        where = payers(case)
        if not who.may("exception.approve", where):
            raise denied(
                f"{who.user} may not approve {case.id}: it may cost {where or 'everybody'} something, so it takes a "
                f"manager or admin of {where or 'the whole cluster'}"
            )
        if case.owner == who.user and not (who.holds(Grant("admin")) and self._alone(who, where, now)):
            raise denied(f"{case.id} is {who.user}'s own request: somebody else has to approve it")

    def _alone(self, who: Principal, where: str, now: Instant) -> bool:
        """Whether nobody else could decide."""
        others = [row for row in self._office.live.store.tokens() if row.user != who.user and row.revoked_at is None]
        valid = [row for row in others if row.expires_at is None or row.expires_at > now]
        return not any(Principal(row.user, row.grants).may("exception.approve", where) for row in valid)

    def _check_may_end(self, who: Principal, case: Case, state: State, wanted: str) -> None:
        own = case.owner if wanted == REVOKED else None
        if not (who.may("exception.approve", payers(case)) or who.may("exception.revoke", case.account, owner=own)):
            raise denied(f"{who.user} may not {'refuse' if wanted == REFUSED else 'revoke'} {case.id}: it is "
                         f"{case.owner}'s, for {case.account}")  # fmt: skip

    # --- warning ------------------------------------------------------------------------------------------------------
    def timer(self) -> Instant | None:
        """When the next end has to be told."""
        waiting = self._cases.where(lambda case: case.state == GRANTED and not case.warned)
        return min((case.warn_at for case in waiting), default=None)

    def hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """After a record: tell of ends that are near, once each."""
        for case in self._cases.where(
            lambda case: case.state == GRANTED and not case.warned and case.warn_at <= plan.at
        ):
            told = replace(case, warned=True, step=case.step + 1)
            self._cases.keep(told)
            why = f"{case.kind} of {case.account} ends in {span(max(0, case.end - plan.at) / 1_000)}: {case.reason}"
            log.warning("exception.ends_soon", id=case.id, kind=case.kind, account=case.account, owner=case.owner,
                        hint=why)  # fmt: skip
            self._office.live.store.write((line(told, "warn", plan.at, MIRAB, why=why),))


def payers(case: Case) -> str:
    """The smallest account that holds everybody whom it may cost something; "" = the whole cluster."""
    if case.kind != "extra-share" or not case.donor:
        return ""
    one, other = case.account.split("/")[:-1], case.donor.split("/")[:-1]
    shared = [mine for mine, theirs in zip(one, other, strict=False) if mine == theirs]
    return "/".join(shared) if shared == one[: len(shared)] == other[: len(shared)] else ""


def _case(case_id: str, who: Principal, wish: Wish, now: Instant) -> Case:
    return Case(
        case_id, wish.kind, wish.account, who.user, wish.reason, now if wish.begin is None else wish.begin, wish.end,
        now, cap=wish.cap, share=wish.share, donor=wish.donor, nodes=wish.nodes, gpus_per_node=wish.gpus_per_node,
        pool=wish.pool, node=wish.node,
    )  # fmt: skip


def _granted(case: Case, now: Instant) -> tuple[Event, ...]:
    if case.kind == ROLLOUT:
        return ()
    if case.kind == RESERVATION:
        return (ReservationApproved(now, case.reservation()),)
    return (ExemptionGranted(now, case.exemption()),)


def _revoked(case: Case, now: Instant) -> tuple[Event, ...]:
    if case.kind == ROLLOUT:
        return ()
    return (ReservationCancelled(now, case.id) if case.kind == RESERVATION else ExemptionRevoked(now, case.id),)


# --- what can be asked for --------------------------------------------------------------------------------------------
def _check_dates(case: Case, now: Instant, longest: Duration) -> None:
    if case.begin < now - LATE:
        raise invalid("it would begin in the past: leave the begin out for now")
    if case.end <= max(case.begin, now):
        raise invalid("it would end before it begins: every exception has an end, after its begin")
    if case.end - case.begin > longest:
        raise invalid(
            f"it would last {span((case.end - case.begin) / 1_000)}, and exceptions last at most "
            f"{span(longest / 1_000)}: what is to last longer is a matter of budgets or policy"
        )


def _check_account(account: str, state: State) -> None:
    if ledger_of(account):
        raise invalid(f"exceptions are of an account, whatever the pool: name {plain(account)}, not {account}")
    if account == ALL:
        raise invalid("an exception is for one account: name one; without Slurm, one for the rollout of any account is "
                      "ground enough to enforce upon *")  # fmt: skip
    budget = state.budgets.find(account) if account else None
    if budget is None:
        raise not_found(f"there is no account {account or 'named'}: `mirab share` shows those there are")
    if budget.closed:
        raise invalid(f"account {account} is closed since {budget.closed}")


def _check_kind(case: Case, state: State) -> None:
    if case.kind not in KINDS:
        raise invalid(f"there is no exception of kind {case.kind!r}: there are {', '.join(KINDS)}")


def _check_cap(case: Case, state: State) -> None:
    if case.cap <= state.policy.min_runtime_cap:
        raise invalid(
            f"everybody may have a minimum of {span(state.policy.min_runtime_cap / 1_000)}: name a longer cap"
        )


def _check_share(case: Case, state: State) -> None:
    if not 0 < case.share <= WHOLE:
        raise invalid("an extra share is more than 0% and at most 100% of the cluster")
    if not case.donor:
        left = max(WHOLE - sum(budget.share for budget in tree.roots) for tree in _trees(state))
        if case.share > left:
            raise invalid(f"{format_share(case.share)} is more than what is assigned to nobody, {format_share(left)}: "
                          "name a donor")  # fmt: skip
        return
    _check_account(case.donor, state)
    if covers(case.donor, case.account) or covers(case.account, case.donor):
        raise invalid(f"{case.donor} cannot give to {case.account}: one lies below the other")
    held = max(state.accounts[path].share for path in _in_ledgers(case.donor, state))
    if case.share > held:
        raise invalid(f"{case.donor} has {format_share(held)} of the cluster, less than {format_share(case.share)}")


def _trees(state: State) -> list[Budgets]:
    """The shares of each ledger: an extra share holds in every one, within what is there to give."""
    return [each.budgets for each in state.budgets.ledgers(state.cluster.pool_names)]


def _in_ledgers(account: str, state: State) -> list[AccountPath]:
    """The account in every ledger."""
    names = [each.name for each in state.budgets.ledgers(state.cluster.pool_names)]
    return [path for name in names if (path := ledger_path(name, account)) in state.accounts]


def _check_node(case: Case, state: State) -> None:
    if not case.node:
        raise invalid("say which node's drain is to be paused: --node NAME")
    if NodeName(case.node) not in state.places:
        raise not_found(f"there is no node {case.node[:40]}: `mirab node ls` shows those there are")


_CHECKS = {
    DRAIN_PAUSE: _check_node,
    "longer-minimum": _check_cap,
    "extra-share": _check_share,
    RESERVATION: check_size,
}
