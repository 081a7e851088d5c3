"""Slurm's accounting: the text that ``sacct --parsable2`` prints, with its header or with the columns named.

Times without a zone are in `LoadOptions.timezone`. Elapsed time decides how long a job ran: it leaves out suspensions,
and does not jump when the clocks are changed. TRES of AllocTRES are over all nodes; ``gres/gpu`` already counts
``gres/gpu:h100``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from sys import intern

from mirab.logs.errors import LogError
from mirab.logs.fields import Memo, milliseconds, slurm_span
from mirab.logs.intake import NEVER_RAN, Intake, Job, Remarks, account_path
from mirab.logs.moments import Calendar
from mirab.logs.options import LoadOptions
from mirab.logs.requeues import Attempts
from mirab.logs.source import Source
from mirab.logs.tables import REPEATED_HEADER, TOO_MANY, Table
from mirab.logs.tres import Tres, amount, parse_gres, parse_tres
from mirab.model.nodelists import expand, numbers_of
from mirab.model.units import Duration

COMMAND = (
    "TZ=UTC sacct --allusers --duplicates --allocations --parsable2 --starttime=now-30days --endtime=now"
    " --format=JobID,JobIDRaw,Cluster,Partition,QOS,Account,User,Submit,Eligible,Start,End,Elapsed,State,"
    "NNodes,NCPUS,ReqTRES,AllocTRES,Timelimit,NodeList,JobName > jobs.txt"
)
HELP = f"""To make a log of the last 30 days on a Slurm cluster, as a user who may see all jobs:

  {COMMAND}

TZ=UTC        times without the ambiguous hour of a clock change
--duplicates  every attempt of a requeued job
--allocations one row a job, no steps
Leave out columns that your site keeps to itself; JobID, Submit, Start, Elapsed, State, NNodes and AllocTRES are needed.
An output without header (--noheader) is read if its columns are named: mirab sim LOG --columns jobid,user,..."""

HEADERLESS = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit", "eligible",
    "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres",
    "timelimit", "nodelist", "jobname",
)  # fmt: skip
"""The columns that Open XDMoD asks sacct for, recognized without a header."""

STEP = "a job step (its job has a row of its own)"
PENDING = "still waiting when the log was made: run time unknown"
NO_SUBMIT = "submit time unknown"
NO_RUN = "run time unknown"
NO_SIZE = "number of nodes and processors unknown"
BAD_ID = "no usable job id"
MOST_TASKS = 10_000
SIZES = frozenset([
    "nnodes", "allocnodes", "ncpus", "alloccpus", "reqcpus", "nodelist", "alloctres", "reqtres", "allocgres", "reqgres",
])  # fmt: skip
"""Columns that say how large a job is; one of them is needed."""
ABSENT = frozenset({"", "unknown", "none", "n/a", "invalid", "null", "(null)"})
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "COMPLETING",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REQUEUED",
        "REVOKED",
        "SPECIAL_EXIT",
        "STOPPED",
        "TIMEOUT",
        "STAGE_OUT",
    ]
)
LIVE = frozenset(["RUNNING", "SUSPENDED", "RESIZING", "SIGNALING"])
WAITING = frozenset(["PENDING", "CONFIGURING", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REQUEUE_FED"])
_ARRAY = re.compile(r"(\w+)_\[([0-9,:\-]+)(?:%\d+)?\]", re.ASCII)


def looks_headerless(lines: list[str]) -> bool:
    """Whether the first lines are sacct output in the columns of `HEADERLESS`."""
    rows = [line.split("|") for line in lines[:20] if line.strip()]
    elapsed = HEADERLESS.index("elapsed")
    good = sum(1 for row in rows if len(row) >= len(HEADERLESS) and _is_span(row[elapsed]))
    return bool(rows) and good * 2 >= len(rows)


def _is_span(text: str) -> bool:
    try:
        slurm_span(text)
    except ValueError:
        return False
    return True


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read sacct output into `intake`."""
    table = _table(source, options, intake)
    rows = _Rows(table, options, intake)
    attempts = Attempts(intake)
    joined = "jobname" in table.names and table.separator != ","  # a comma is rather one of a TRES or a node list
    name_at = table.column("jobname") if joined else None
    for line, row in table.rows(intake, name_at):
        job = rows.job(line, row)
        if job is not None:
            for one in rows.tasks(job):
                attempts.add(one)
    _check_separator(table, intake)
    intake.notes += [*rows.remarks.notes(), *attempts.notes()]
    _settle_types(intake)


def _table(source: Source, options: LoadOptions, intake: Intake) -> Table:
    if options.columns:
        names = tuple(re.sub(r"%-?\d+$", "", name.strip().lower()) for name in re.split(r"[,|]", options.columns))
        table = Table(source, _with_last(source, names), "|", "", 0)
    else:
        table = Table.open(source)
        if "jobid" not in table.names and "jobidraw" not in table.names:
            if not looks_headerless([table.header]):
                raise LogError("has no header", source.path, 1, "name its columns: --columns jobid,user,submit,...")
            table = Table(source, _with_last(source, HEADERLESS), "|", "", 0)
            intake.notes.append("no header: read as the columns that Open XDMoD asks for (--columns to name others)")
    if options.columns:
        _check_columns(table.names)
    if "jobid" not in table.names:
        table.require("jobidraw")
    table.require("submit", "start")
    if "elapsed" not in table.names and "elapsedraw" not in table.names:
        table.require("end")
    if not SIZES.intersection(table.names):
        table.require("alloctres", "nnodes")
    return table


def _with_last(source: Source, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, and an empty one for the separator that ``--parsable`` puts at the end of each row."""
    first = [text for _, text in islice(source.lines(), 20) if text.strip()]
    ends = bool(first) and all(text.endswith("|") and text.count("|") >= len(names) for text in first)
    return (*names, "") if ends else names


def _check_columns(names: tuple[str, ...]) -> None:
    """Raises LogError if the columns that a person named cannot make a job."""
    missing = [name for name in ("jobid", "submit", "start") if name not in names and f"{name}raw" not in names]
    if not {"elapsed", "elapsedraw", "end"}.intersection(names):
        missing.append("elapsed")
    if not SIZES.intersection(names):
        missing.append("alloctres")
    if missing:
        raise LogError(
            f"--columns names no {' and no '.join(missing)}", remedy="write the names of sacct's --format, in its order"
        )


def _check_separator(table: Table, intake: Intake) -> None:
    """Raises LogError if commas part the fields, and most rows have some in their fields: TRES and node lists do."""
    too_many = intake.dropped.get(TOO_MANY, (0, ()))[0]
    if table.separator == "," and too_many * 2 > intake.rows:
        what = "has commas between its fields and in them, and cannot be read"
        raise LogError(what, table.source.path, table.header_line, f"print it with --parsable2: {COMMAND}")


class _Rows:
    """Makes jobs of rows and counts the rows that are none."""

    def __init__(self, table: Table, options: LoadOptions, intake: Intake) -> None:
        self.intake = intake
        self.remarks = Remarks()
        self.calendar = Calendar(options.timezone)
        at = table.column
        self.id = itemgetter(at("jobid", "jobidraw"))
        self.submit, self.start, self.end = at("submit"), at("start"), at("end")
        self.elapsed, self.elapsed_raw, self.state = at("elapsed"), at("elapsedraw"), at("state")
        self.limit, self.limit_raw = at("timelimit"), at("timelimitraw")
        self.nodes, self.cpus, self.hosts = (
            at("nnodes", "allocnodes"),
            at("ncpus", "alloccpus", "reqcpus"),
            at("nodelist"),
        )
        self.alloc, self.req = at("alloctres"), at("reqtres")
        self.gres = at("allocgres", "reqgres")
        self.user, self.partition, self.name = at("user", "uid"), at("partition"), at("jobname")
        self.named = options.contract.by_name
        self.account = at(_account_column(table, options, intake))
        self.accounts: Memo[str, str] = Memo(lambda name: intern(account_path(name)))
        self.limits: Memo[tuple[str, str], Duration | None] = Memo(lambda key: _limit(*key))

    def job(self, line: int, row: list[str]) -> Job | None:
        """The job of a row, or None, counted."""
        job_id = self.id(row).strip()
        if "." in job_id or not job_id or job_id.lower() == "jobid":
            known = {"": BAD_ID, "jobid": REPEATED_HEADER}
            self.intake.drop(line, known.get(job_id.lower(), STEP))
            return None
        submitted = self._instant(row[self.submit])
        if submitted is None:
            self.intake.drop(line, NO_SUBMIT)
            return None
        started = self._instant(row[self.start])
        run = self._run(line, row, started)
        if run is None:
            return None
        size = self._size(row)
        if size is None:
            self.intake.drop(line, NO_SIZE)
            return None
        asked = parse_tres(row[self.req])
        account = self.accounts[row[self.account]]
        return Job(
            submitted, job_id, run, account, intern(row[self.user]) or account, line, size.nodes, size.gpus, size.cpus,
            size.memory_mib, started, (asked.gpu_type,) if asked.gpu_type and size.gpus else (),
            size.gpu_type if size.gpus else "", intern(row[self.partition]),
            self.limits[row[self.limit], row[self.limit_raw]], name=row[self.name] if self.named else "",
        )  # fmt: skip

    def tasks(self, job: Job) -> list[Job]:
        """The tasks of an array that share one row (``7_[1-3]``), else the job itself."""
        if "[" not in job.id:
            return [job]
        match = _ARRAY.fullmatch(job.id)
        try:
            numbers = numbers_of(match[2], MOST_TASKS) if match else []
        except ValueError:
            numbers = []
        if not match or not numbers:
            self.intake.drop(job.line, BAD_ID)
            return []
        if len(numbers) > 1:
            self.intake.rows += len(numbers) - 1
            self.remarks.add(job.line, "several tasks of a job array in one row, each counted as a row of its own")
        return [job._replace(id=f"{match[1]}_{int(number)}") for number in numbers]

    def _instant(self, text: str) -> int | None:
        if text.lower() in ABSENT:
            return None
        try:
            return self.calendar.unix_ms(text)
        except ValueError:
            return None

    def _run(self, line: int, row: list[str], started: int | None) -> Duration | None:
        """How long the job ran, or None, counted."""
        state = _state(row[self.state])
        elapsed = _elapsed(row[self.elapsed], row[self.elapsed_raw])
        if elapsed is None and started is not None:
            ended = self._instant(row[self.end])
            elapsed = ended - started if ended is not None and ended >= started else None
        if state in WAITING and not elapsed:
            self.intake.drop(line, PENDING)
        elif started is None or (not elapsed and state == "CANCELLED"):
            self.intake.drop(line, NEVER_RAN)
        elif elapsed is None or (not elapsed and state in LIVE):
            self.intake.drop(line, NO_RUN)
        else:
            if state in LIVE:
                self.remarks.add(line, "still running when the log was made: the time so far is taken as the run")
            elif state not in ENDED and state:
                self.remarks.add(line, f"state {state[:20]} is not one of Slurm's: judged by its times")
            if not elapsed:
                self.remarks.add(line, "ran for less than a second: taken as one second")
            return elapsed or 1_000
        return None

    def _size(self, row: list[str]) -> Tres | None:
        """Nodes, cores, GPUs and memory in all, or None if nothing is known."""
        told = parse_tres(row[self.alloc])
        if not told.gpus and not told.cpus:
            asked = parse_tres(row[self.req])
            told = asked if not told.gpus else told
        hosts = _hosts(row[self.hosts])
        nodes = amount(row[self.nodes]) or told.nodes or len(hosts)
        gres = parse_gres(row[self.gres], nodes) if row[self.gres] and not told.gpus else told
        cpus = told.cpus or amount(row[self.cpus])
        if not (nodes or cpus or gres.gpus):
            return None
        size = Tres(nodes, cpus, gres.gpus, gres.gpu_type, told.memory_mib)
        self._remember(hosts, size)
        return size

    def _remember(self, hosts: tuple[str, ...], size: Tres) -> None:
        if hosts:
            known = dict.fromkeys(hosts)
            self.intake.hosts.setdefault("cpu", {}).update(known)
            if size.gpus:
                self.intake.hosts.setdefault(size.gpu_type, {}).update(known)


@lru_cache(maxsize=4096)
def _state(text: str) -> str:
    """The state without the name of who cancelled; where sacct cut it short (``OUT_OF_ME+``), the whole word."""
    word = text.partition(" ")[0].upper()
    known = (state for state in (*sorted(ENDED), *sorted(LIVE), *sorted(WAITING)) if state.startswith(word[:-1]))
    return next(known, word[:-1]) if word.endswith("+") else word


@lru_cache(maxsize=4096)
def _hosts(text: str) -> tuple[str, ...]:
    if text.lower() in ABSENT or text.lower() == "none assigned":
        return ()
    try:
        return tuple(expand(text))
    except ValueError:
        return ()


def _elapsed(text: str, raw: str) -> Duration | None:
    try:
        return slurm_span(text) if text else max(0, milliseconds(raw)) if raw else None
    except ValueError:
        return None


def _limit(text: str, raw: str) -> Duration | None:
    """The time limit; words such as UNLIMITED and Partition_Limit, and 0, are none."""
    try:
        if raw.isdigit():
            return milliseconds(raw) * 60 or None
        return slurm_span(text) or None
    except ValueError:
        return None


def _account_column(table: Table, options: LoadOptions, intake: Intake) -> str:
    wanted = options.account_by
    if wanted is not None:
        if wanted not in table.names or wanted == "vc":
            raise LogError(f"has no column {wanted}", table.source.path, remedy="choose another --account-by")
        return wanted
    natural = next((name for name in ("account", "user", "partition", "qos") if name in table.names), "account")
    if natural != "account":
        intake.notes.append(f"no column Account: accounts are by {natural}")
    return natural


def _settle_types(intake: Intake) -> None:
    """Where one node stands under two GPU types (typed and untyped accounting), types say nothing about nodes."""
    kinds = [hosts for kind, hosts in intake.hosts.items() if kind != "cpu"]
    total = sum(len(hosts) for hosts in kinds)
    together = {name: None for hosts in kinds for name in hosts}
    if len(together) == total:
        return
    intake.hosts = {"cpu": intake.hosts["cpu"], "": together}
    intake.jobs = [job._replace(gpu_types=(), ran_on="") if job.gpus else job for job in intake.jobs]
    intake.notes.append("the same nodes stand under several GPU types: types were left out")
