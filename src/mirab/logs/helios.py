"""SenseTime's Helios traces (Hu et al., SC'21; HeliosData): CSV, one job a row, local times, run in `duration`."""

from __future__ import annotations

from sys import intern

from mirab.logs.errors import LogError
from mirab.logs.fields import count, milliseconds
from mirab.logs.intake import DUPLICATE, NEVER_RAN, SAME_ID, Intake, Job, Remarks, account_path
from mirab.logs.moments import Calendar
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source
from mirab.logs.tables import Table

SHARED = (
    "job_id",
    "user",
    "node_num",
    "gpu_num",
    "cpu_num",
    "state",
    "submit_time",
    "start_time",
    "end_time",
    "duration",
)
COLUMNS = (*SHARED, "vc")
NO_SUBMIT = "submit time unknown"
NO_RUN = "run time unknown"
NO_SIZE = "a size is not a number, or all are 0"
UNENDED = frozenset({"RUNNING", "PENDING", "WAITING", "SUSPENDED"})
ABSENT = frozenset({"", "none", "nan", "nat", "null"})


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a Helios log into `intake`; the account is the virtual cluster."""
    read_table(source, options, intake, "vc", COLUMNS)


def read_table(
    source: Source, options: LoadOptions, intake: Intake, natural: str, columns: tuple[str, ...], label: str = ""
) -> None:
    """Read a table with the columns `SHARED`; `natural` is its account column, `label` that of the kind of job.

    Raises:
        LogError: a column is missing, or the wanted account column is none of the log's.
    """
    table = Table.open(source)
    table.require(*columns)
    by = options.account_by or natural
    if by not in {"user", natural}:
        known = " or ".join(sorted({"user", natural}))
        raise LogError(f"has no {by}", source.path, table.header_line, f"choose --account-by {known}")
    rows = _Rows(table, by, label, Calendar(options.timezone))
    seen: dict[str, tuple[int, int]] = {}
    for line, row in table.rows(intake):
        job = rows.job(line, row)
        if isinstance(job, str):
            intake.drop(line, job)
            continue
        before = seen.setdefault(job.id, (job.submitted, line))
        if before[1] == line:
            intake.jobs.append(job)
        else:
            intake.drop(line, DUPLICATE if before[0] == job.submitted else SAME_ID)
    intake.notes += rows.remarks.notes()


class _Rows:
    """Makes jobs of rows."""

    def __init__(self, table: Table, account: str, label: str, calendar: Calendar) -> None:
        self.at = [table.column(name) for name in SHARED]
        self.account, self.label = table.column(account), table.column(label)
        self.calendar = calendar
        self.remarks = Remarks()

    def job(self, line: int, row: list[str]) -> Job | str:
        """The job of a row, or why it is none."""
        job_id, user, nodes, gpus, cpus, state, submit, start, end, duration = (row[index] for index in self.at)
        submitted, started, ended = self._instant(submit), self._instant(start), self._instant(end)
        if submitted is None or not job_id:
            return NO_SUBMIT
        if started is None:
            return NEVER_RAN
        run = _run(duration, started, ended)
        if run is None:
            return NO_RUN
        try:
            sizes = (count(nodes or "0"), count(gpus or "0"), count(cpus or "0"))
        except ValueError:
            return NO_SIZE
        if not any(sizes):
            return NO_SIZE
        if state.upper() in UNENDED:
            self.remarks.add(line, "still running when the log was made: the time so far is taken as the run")
        if not run:
            self.remarks.add(line, "ran for less than a second: taken as one second")
        account = intern(account_path(row[self.account]))
        return Job(
            submitted, job_id, run or 1_000, account, intern(user) or account, line, *sizes, started=started,
            label=intern(row[self.label]),
        )  # fmt: skip

    def _instant(self, text: str) -> int | None:
        if text.strip().lower() in ABSENT:
            return None
        try:
            return self.calendar.unix_ms(text.strip())
        except ValueError:
            return None


def _run(duration: str, started: int, ended: int | None) -> int | None:
    """Milliseconds of running: the log's own duration, else end minus start."""
    try:
        run = milliseconds(duration) if duration else -1
    except ValueError:
        run = -1
    if run < 0 and ended is not None:
        run = ended - started
    return run if run >= 0 else None
