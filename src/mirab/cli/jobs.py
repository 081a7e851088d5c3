"""Jobs as the API gives them: which are meant, whether they have ended, and the exit code they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirab.cli.client import Client, at
from mirab.cli.exits import InvalidError, NotFoundError
from mirab.model.accounts import ledger_of, plain

Job = dict[str, Any]

LIVE = ("PENDING", "RUNNING", "COMPLETING")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "REJECTED")
STATES = LIVE + ENDED
SHORT = {
    "PENDING": "PD", "RUNNING": "R", "COMPLETING": "CG", "COMPLETED": "CD", "FAILED": "F", "CANCELLED": "CA",
    "TIMEOUT": "TO", "PREEMPTED": "PR", "NODE_FAIL": "NF", "REJECTED": "RJ",
}  # fmt: skip
"""squeue's codes; RJ, which it does not have, is a job that can never run as asked."""
PAGE = 500
_TASKS = re.compile(r"(\d{1,18})_\[([\d,-]+)\]", re.ASCII)
_ID = re.compile(r"\d{1,18}(_\d{1,9})?(r\d{1,9})?", re.ASCII)
MOST_TASKS = 100_000


def of_account(name: str | None) -> None:
    """Jobs are of an account, whatever the pool.

    Raises:
        InvalidError: an account in a pool (``h100:vision``) is named.
    """
    if name and ledger_of(name):
        raise InvalidError(f"{name} is what {plain(name)} has of pool {ledger_of(name)}, and jobs are of an account, "
                           f"whatever the pool: name {plain(name)}.")  # fmt: skip


def parse_states(text: str) -> list[str]:
    """States named by Slurm's words or codes, with commas; ``all`` = every one.

    Raises:
        InvalidError: one is not a state.
    """
    codes = {code: name for name, code in SHORT.items()}
    found = []
    for word in filter(None, (part.strip().upper() for part in text.split(","))):
        if word == "ALL":
            return list(STATES)
        state = codes.get(word, word)
        if state not in STATES:
            known = ", ".join(f"{name} ({code})" for name, code in SHORT.items())
            raise InvalidError(f"{word} is not a state: the states are {known}, and all.")
        found.append(state)
    return found


def parse_ids(words: Sequence[str]) -> list[str]:
    """Ids as typed: ``7``, ``7,8``, ``12_3``, ``12_[0-3,7]``; ``12`` may also be an array.

    Raises:
        InvalidError: one is not an id.
    """
    ids: list[str] = []
    for word in words:
        for part in re.split(r",(?![^\[]*\])", word.strip()):
            ids += _one_id(part)
    return list(dict.fromkeys(ids))


def parse_id(word: str) -> str:
    """The id of one job, ``7``, or of one task, ``12_3``.

    Raises:
        InvalidError: it is neither.
    """
    if _ID.fullmatch(word) is None:
        raise InvalidError(f"{word!r} is not one job: write a number such as 7, or a task 12_3.")
    return word


def _one_id(part: str) -> list[str]:
    if _ID.fullmatch(part):
        return [part]
    if match := _TASKS.fullmatch(part):
        from mirab.model.nodelists import numbers_of

        try:
            return [f"{match[1]}_{int(number)}" for number in numbers_of(match[2], MOST_TASKS)]
        except ValueError as error:
            raise InvalidError(f"{part}: {error}") from error
    raise InvalidError(f"{part!r} is not a job: write a number such as 7, a task 12_3, or tasks 12_[0-3].")


def pages(client: Client, query: Mapping[str, object]) -> Iterator[list[Job]]:
    """The jobs that a query finds, page by page."""
    cursor = None
    while True:
        page = client.get("/jobs", {"limit": PAGE, **query, "cursor": cursor})
        yield page["jobs"]
        cursor = page["next"]
        if cursor is None:
            return


def jobs_of(client: Client, job_id: str) -> list[Job]:
    """The job of that id; of an array's id, its tasks.

    Raises:
        NotFoundError: there is neither.
    """
    if "_" in job_id:
        return [client.get(at("jobs", job_id))]
    try:
        return [client.get(at("jobs", job_id))]
    except NotFoundError:
        tasks = [job for page in pages(client, {"array_job": job_id}) for job in page]
        if not tasks:
            raise
        return tasks


def has_ended(job: Job) -> bool:
    return job["state"] in ENDED


def exit_code(job: Job) -> int:
    """What a shell should get for an ended job: its own code; 1 where it did not end by itself or has none."""
    if job["state"] == "COMPLETED":
        return int(job["exit_code"] or 0)
    return int(job["exit_code"] or 1)
