"""HTCondor's history: ClassAds in the old syntax, ``Attribute = value`` a line, one ad a job.

One file (ads end with a line of ``***`` or an empty line), a folder, or a tar archive of files. An attribute may stand
several times in an ad: the last one wins. Times are Unix seconds; the run is `RemoteWallClockTime`, over all attempts,
without suspensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from sys import intern

from mirab.logs.errors import LogError
from mirab.logs.fields import count, milliseconds
from mirab.logs.intake import DUPLICATE, NEVER_RAN, SAME_ID, Intake, Job, Remarks, account_path
from mirab.logs.moments import UNIX_FROM
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source

WANTED = frozenset(
    [
        "clusterid",
        "procid",
        "globaljobid",
        "qdate",
        "jobstartdate",
        "jobcurrentstartdate",
        "completiondate",
        "remotewallclocktime",
        "cumulativesuspensiontime",
        "jobstatus",
        "owner",
        "user",
        "accountinggroup",
        "acctgroup",
        "acctgroupuser",
        "requestcpus",
        "cpusprovisioned",
        "requestgpus",
        "gpusprovisioned",
        "requestmemory",
        "memoryprovisioned",
        "maxhosts",
        "minhosts",
        "jobuniverse",
        "lastremotehost",
        "niceuser",
        "numjobstarts",
    ]
)
SIGNS = frozenset({"clusterid", "procid", "qdate", "owner", "mytype", "globaljobid", "jobstatus"})
GANG_UNIVERSES = frozenset({"8", "11"})
RUNNING = "2"
NO_AD = "no job in it (ClusterId and QDate are missing)"
NO_RUN = "run time unknown"
_ATTRIBUTE = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*(.*?)\s*", re.ASCII)

Ad = dict[str, str]


def looks_like(lines: list[str]) -> bool:
    """Whether the first lines are attributes of a job's ad."""
    found = [match[1].lower() for line in lines[:60] if (match := _ATTRIBUTE.fullmatch(line))]
    return len(found) >= 3 and not SIGNS.isdisjoint(found)


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a history into `intake`. In an archive or folder, a row's line is the number of its file."""
    if options.account_by not in (None, "account", "user"):
        raise LogError(f"HTCondor has no {options.account_by}", source.path, remedy="choose account or user")
    remarks = Remarks()
    seen: dict[str, int] = {}
    for line, ad in _ads(source):
        intake.rows += 1
        job = _job(line, ad, options.account_by or "account", remarks)
        if isinstance(job, str):
            intake.drop(line, job)
        elif job.id in seen:
            intake.drop(line, DUPLICATE if seen[job.id] == job.submitted else SAME_ID)
        else:
            seen[job.id] = job.submitted
            intake.jobs.append(job)
            _remember_host(ad, job, intake)
    intake.notes += remarks.notes()


def _ads(source: Source) -> Iterator[tuple[int, Ad]]:
    """Line (or number of the file) and wanted attributes of each ad."""
    for number, (name, lines) in enumerate(source.members(), 1):
        single = name == source.path.name and not source.path.is_dir()
        ads = 0
        for line, ad in _split(lines):
            ads += 1
            yield (line if single else number), ad
        if not ads:
            yield number, {}


def _split(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Ad]]:
    ad: Ad = {}
    begin = 0
    for line, text in lines:
        if text.startswith("***") or not text.strip():
            if begin:
                yield begin, ad
            ad, begin = {}, 0
            continue
        begin = begin or line
        match = _ATTRIBUTE.fullmatch(text)
        if match and match[1].lower() in WANTED:
            ad[match[1].lower()] = match[2]
    if begin:
        yield begin, ad


def _job(line: int, ad: Ad, by: str, remarks: Remarks) -> Job | str:
    submitted = _seconds(ad, "qdate")
    cluster = ad.get("clusterid", "")
    if submitted is None or submitted < UNIX_FROM // 2 or not cluster:
        return NO_AD
    started = _seconds(ad, "jobstartdate") or _seconds(ad, "jobcurrentstartdate") or None
    run = _run(ad, started)
    if not started and not run:
        return NEVER_RAN
    if run is None:
        return NO_RUN
    if ad.get("jobstatus") == RUNNING:
        remarks.add(line, "still running when the log was made: the time so far is taken as the run")
    if not run:
        remarks.add(line, "ran for less than a second: taken as one second")
    user = intern(_text(ad, "acctgroupuser") or _text(ad, "owner") or _text(ad, "user").partition("@")[0] or "unknown")
    account = intern(account_path(user if by == "user" else _account(ad) or user))
    nodes = _hosts(ad)
    return Job(
        submitted=submitted,
        id=f"{cluster}.{ad.get('procid', '0')}",
        run=run or 1_000,
        account=account,
        user=user,
        line=line,
        nodes=nodes,
        gpus=nodes * _amount(ad, "gpusprovisioned", "requestgpus"),
        cpus=nodes * max(1, _amount(ad, "cpusprovisioned", "requestcpus")),
        memory_mib=nodes * _amount(ad, "memoryprovisioned", "requestmemory"),
        started=started,
        preemptible=ad.get("niceuser", "").lower() == "true",
    )


def _run(ad: Ad, started: int | None) -> int | None:
    wall = _seconds(ad, "remotewallclocktime")
    if wall is not None and wall > 0:
        return max(0, wall - max(0, _seconds(ad, "cumulativesuspensiontime") or 0))
    completed = _seconds(ad, "completiondate")
    if completed and started and completed >= started:
        return completed - started
    return wall if wall is not None and wall >= 0 and not started else None


def _account(ad: Ad) -> str:
    """The accounting group as a path: HTCondor nests groups by dots."""
    group = _text(ad, "acctgroup")
    if not group:
        group, user = _text(ad, "accountinggroup"), _text(ad, "acctgroupuser") or _text(ad, "owner")
        group = group.removesuffix(f".{user}") if user else group
    return account_path(group.replace(".", "/")) if group else ""


def _hosts(ad: Ad) -> int:
    """Nodes at once: more than one only in the parallel universes."""
    if ad.get("jobuniverse") not in GANG_UNIVERSES:
        return 1
    return max(1, _amount(ad, "maxhosts", "minhosts"))


def _seconds(ad: Ad, name: str) -> int | None:
    try:
        return milliseconds(ad[name])
    except (KeyError, ValueError):
        return None


def _amount(ad: Ad, *names: str) -> int:
    """The first of the attributes that is a plain count; expressions are not evaluated."""
    for name in names:
        try:
            return count(ad[name], 10_000_000)
        except (KeyError, ValueError):
            continue
    return 0


def _text(ad: Ad, name: str) -> str:
    value = ad.get(name, "")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"').strip()
    return ""


def _remember_host(ad: Ad, job: Job, intake: Intake) -> None:
    host = _text(ad, "lastremotehost").rpartition("@")[2]
    if host:
        intake.hosts.setdefault("cpu", {})[host] = None
        if job.gpus:
            intake.hosts.setdefault("", {})[host] = None
