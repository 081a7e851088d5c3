"""What `cancel`, `hold`, `release` and `requeue` have in common: which jobs are meant, and one request for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from mirab.cli.client import Client, at
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.exits import ConflictError, DeniedError, Exit, InvalidError, NotFoundError
from mirab.cli.jobs import LIVE, Job, has_ended, jobs_of, of_account, pages, parse_ids, parse_states
from mirab.cli.output import emit, say, to_json
from mirab.study.formats import plural

F = TypeVar("F", bound=Callable[..., Any])

CODES: dict[type[Exception], Exit] = {
    NotFoundError: Exit.NOT_FOUND,
    DeniedError: Exit.DENIED,
    ConflictError: Exit.CONFLICT,
    InvalidError: Exit.USAGE,
}

FEW = 4
AT_A_TIME = 16
"""Requests that wait for one decision together; the service serves more than twice as many."""

OPTIONS = (
    click.argument("jobs", metavar="[JOB...]", nargs=-1),
    click.option("--me", is_flag=True, help="All of mine."),
    click.option("--user", "-u", metavar="NAME", help="All of this user."),
    click.option("--account", "-A", metavar="ACCOUNT", help="All of this account, and of those below it."),
    click.option("--state", "-t", "states", metavar="STATES", help="Only those in these states, such as PD."),
    click.option("--label", metavar="TEXT", help="All with this label."),
    click.option("--why", metavar="TEXT", default="", help="For the audit log, and for the owner to read."),
    click.option("--quiet", "-q", is_flag=True, help="Say nothing when all is well."),
    JSON_OPTION,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which jobs, as typed."""

    jobs: tuple[str, ...]
    me: bool
    user: str | None
    account: str | None
    states: str | None
    label: str | None

    @property
    def filtered(self) -> bool:
        return bool(self.me or self.user or self.account or self.states or self.label)


def choosing(command: F) -> F:
    """Ids and filters, handed on as `chosen`; and `--why`, `--quiet`, `--json`, `--server`."""

    @wraps(command)
    def gathering(**given: Any) -> Any:
        names = ("jobs", "me", "user", "account", "states", "label")
        return command(chosen=Chosen(**{name: given.pop(name) for name in names}), **given)

    wrapped: Any = connected(gathering)
    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def meant(client: Client, chosen: Chosen, default_states: tuple[str, ...] = LIVE) -> Iterator[str]:
    """The ids of the jobs that are meant.

    Raises:
        click.UsageError: neither a job nor a filter was named.
        NotFoundError: a job that was named is not there.
    """
    of_account(chosen.account)
    if chosen.jobs:
        wanted = _query(client, chosen, ())
        for job_id in parse_ids(chosen.jobs):
            yield from (job["id"] for job in jobs_of(client, job_id) if _fits(job, wanted))
        return
    if not chosen.filtered:
        raise click.UsageError("name a job, or choose with --me, --user, --account, --state or --label")
    query = _query(client, chosen, default_states)
    yield from [job["id"] for page in pages(client, query) for job in page]


def _fits(job: Job, wanted: Mapping[str, Any]) -> bool:
    """Does a job that was named pass the filters too?"""
    from mirab.model.accounts import covers

    return (
        (not wanted["state"] or job["state"] in wanted["state"])
        and covers(wanted["account"] or "", job["account"])
        and all(not wanted[key] or job[key] == wanted[key] for key in ("user", "label"))
    )


def _query(client: Client, chosen: Chosen, default_states: tuple[str, ...]) -> Mapping[str, Any]:
    return {
        "state": parse_states(chosen.states) if chosen.states else list(default_states),
        "user": client.get("/whoami")["user"] if chosen.me else chosen.user,
        "account": chosen.account,
        "label": chosen.label,
    }


@dataclass(frozen=True, slots=True)
class Deed:
    """What is done to a job: the last word of its path, and how it is told: ``Cancelled``, ``to cancel``."""

    path: str
    done: str
    infinitive: str


def do(client: Client, deed: Deed, ids: Iterable[str], why: str, *, quiet: bool, as_json: bool) -> Exit:
    """One request for each job; the others go on where one fails. The exit code is that of the first that failed."""
    wanted = list(ids)
    done: list[Job] = []
    failed: list[tuple[str, Exception]] = []
    for job_id, answer in zip(wanted, _answers(client, deed, wanted, why), strict=True):
        if isinstance(answer, Exception):
            failed.append((job_id, answer))
            named = str(answer).startswith(f"job {job_id} ")
            told = str(answer).removesuffix(".")
            say(f"mirab: {told}." if named else f"mirab: job {job_id}: {told}.")
        else:
            done.append(answer)
    if as_json:
        emit(to_json({"jobs": done, "failed": [{"id": each, "detail": str(error)} for each, error in failed]}))
    elif not quiet and (done or not failed):
        say(_told(deed, done))
    return CODES[type(failed[0][1])] if failed else Exit.OK


def _answers(client: Client, deed: Deed, ids: Sequence[str], why: str) -> Iterable[Job | Exception]:
    """The answers in order; many go out at a time, since what arrives together is decided and written together."""
    body = {"why": why} if why else {}
    if len(ids) < FEW:
        return [_asked(client, deed, job_id, body) for job_id in ids]
    from concurrent.futures import ThreadPoolExecutor
    from threading import local

    mine = local()

    def ask(job_id: str) -> Job | Exception:
        if not hasattr(mine, "client"):
            mine.client = Client(client.address, client.token)
        return _asked(mine.client, deed, job_id, body)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(ask, ids))


def _asked(client: Client, deed: Deed, job_id: str, body: dict[str, str]) -> Job | Exception:
    try:
        return client.post(at("jobs", job_id, deed.path), body)  # type: ignore[no-any-return]
    except tuple(CODES) as error:
        return error


def _told(deed: Deed, done: list[Job]) -> str:
    late = [job for job in done if has_ended(job) and job["state"] != "CANCELLED"]
    lines = [f"Job {job['id']} had ended already: {job['state']}." for job in late]
    told = [job for job in done if job not in late]
    if told:
        ids = " ".join(str(job["id"]) for job in told[:10])
        lines.append(f"{deed.done} {plural(len(told), 'job')}: {ids}{' ...' if len(told) > 10 else ''}")
    elif not late:
        lines.append(f"Nothing {deed.infinitive}.")
    return "\n".join(lines)
