"""The options of a submission: sbatch's own, and those of mirab's contract. One table for flags and script lines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        field: its name in code; also what it is called in a `Wishes` mapping.
        names: as typed, the long form first.
        metavar: what stands for the value; "" = it takes none.
        help: for people.
        sets: the value that a flag without value stands for.
        value_joined: the value is optional, and only counts after ``=``.
    """

    field: str
    names: tuple[str, ...]
    metavar: str
    help: str
    sets: str = ""
    value_joined: bool = False

    @property
    def takes_value(self) -> bool:
        return bool(self.metavar)


def _valued(names: str, metavar: str, text: str, field: str = "") -> Option:
    parts = tuple(names.split())
    return Option(field or parts[0].removeprefix("--").replace("-", "_"), parts, metavar, text)


def _flag(names: str, text: str, field: str = "", sets: str = "yes") -> Option:
    parts = tuple(names.split())
    return Option(field or parts[0].removeprefix("--").replace("-", "_"), parts, "", text, sets)


OPTIONS: tuple[Option, ...] = (
    _valued("--account -A", "ACCOUNT", "The account that is charged, such as language/pretrain. "
            "Default: MIRAB_ACCOUNT, then SBATCH_ACCOUNT."),
    _valued("--job-name -J", "NAME", "Default: the name of the script or program."),
    _valued("--nodes -N", "N", "Nodes; all or none. Default: 1."),
    _valued("--gpus-per-node", "[TYPE:]N", "GPUs on each node, such as 8 or h100:8."),
    _valued("--gpus -G", "[TYPE:]N", "GPUs in all; without --nodes on as few nodes as can hold them."),
    _valued("--gres", "gpu[:TYPE]:N", "GPUs on each node, as Slurm writes them."),
    _valued("--gpu-type", "TYPE[,TYPE]", "Types of GPU that will do. Default: any."),
    _valued("--cpus-per-task -c", "N", "Cores for each task."),
    _valued("--ntasks -n", "N", "Tasks in all: with --cpus-per-task and --gpus-per-task the size of a node's part. "
            "The script runs once, as under sbatch."),
    _valued("--ntasks-per-node", "N", "Tasks on each node."),
    _valued("--gpus-per-task", "[TYPE:]N", "GPUs for each task."),
    _valued("--mem", "SIZE", "Memory on each node, such as 64G; without a unit mebibytes."),
    _valued("--mem-per-cpu", "SIZE", "Memory for each core."),
    _valued("--mem-per-gpu", "SIZE", "Memory for each GPU."),
    _valued("--time -t", "TIME", "Time limit: 90 (minutes), 1:30:00, 1-12 (days-hours), 90m."),
    _valued("--min-runtime", "TIME", "The contract: for so long nothing but its own end or broken hardware stops the "
            "run. 0 = not charged, and stopped whenever others need the GPUs."),
    _valued("--signal", "[B:]SIG[@S]", "Notice before a stop: this signal, S seconds ahead (60). Default: TERM@10."),
    _valued("--grace", "TIME", "How long the notice is, if not by --signal."),
    _valued("--checkpoint", "TIME", "How often the job saves its work."),
    _valued("--checkpoint-file", "FILE", "Touching it says that work is safe; or run `mirab checkpoint`."),
    _valued("--verify-resume", "CMD", "Proves, before a further attempt, that what was saved can be restored."),
    _valued("--restart", "TIME", "How long the job takes to restore its work after a stop."),
    _valued("--progress", "TIME", "Without a sign of progress for so long, the job is flagged as squatting."),
    _valued("--output -o", "FILE", "Default: mirab-%j.out. %j job, %A array job, %a index, %x name, %u user."),
    _valued("--error -e", "FILE", "Default: the same file as --output."),
    _valued("--open-mode", "append|truncate", "An output file that is there already; later attempts "
            "always append. Default: truncate."),
    _valued("--chdir -D", "DIR", "Where it runs. Default: here."),
    _valued("--export", "NAMES", "Environment: ALL (default), NONE, or NAME,NAME=VALUE,ALL."),
    _valued("--dependency -d", "KIND:ID,...", "Wait for others: afterok:12:13,afterany:9."),
    _valued("--array -a", "0-15[%4]", "One job for each index, at most 4 at a time."),
    _flag("--hold -H", "Keep it out of the queue until `mirab release`."),
    _valued("--deadline", "WHEN", "When it should have ended: 2026-05-01T12:00, 18:00, now+4hours."),
    _valued("--priority", "N", "Among your own jobs: higher goes first."),
    _valued("--label", "TEXT", "To find it again: `mirab ls --label TEXT`."),
    _flag("--resume", "After a preemption it goes back to the queue (default).", "resume"),
    _flag("--no-resume", "A preemption ends it.", "resume", "no"),
    _flag("--requeue", "sbatch's name for --resume.", "resume"),
    _flag("--no-requeue", "sbatch's name for --no-resume.", "resume", "no"),
)  # fmt: skip

IGNORED: dict[str, str] = {
    "--partition": "mirab chooses the nodes; ask for a type with --gpu-type",
    "--qos": "who goes first follows from the budgets",
    "--mail-type": "mirab sends no mail; `mirab await` tells when a job ends",
    "--mail-user": "mirab sends no mail; `mirab await` tells when a job ends",
    "--exclusive": "ask for a node's GPUs with --gpus-per-node",
    "--constraint": "ask for a type with --gpu-type",
    "--nodelist": "mirab chooses the nodes",
    "--exclude": "mirab chooses the nodes; tell the operator of a sick one",
    "--nice": "who goes first among your own jobs is said with --priority",
    "--begin": "there is no later beginning; submit with --hold and release it then",
    "--time-min": "a job has one time limit; what is guaranteed is said with --min-runtime",
    "--comment": "find a job again with --label",
}
"""Options of sbatch that are taken and change nothing, and the word that is said about each."""
IGNORED_SHORT = {"-p": "--partition", "-q": "--qos", "-C": "--constraint", "-w": "--nodelist", "-x": "--exclude",
                 "-b": "--begin"}  # fmt: skip
NO_VALUE = ("--exclusive", "--nice")
"""Of these, the ones whose value, if any, is joined by ``=``."""

_BY_NAME = {name: option for option in OPTIONS for name in option.names}


def find_option(name: str) -> Option | None:
    return _BY_NAME.get(name)


def known_names() -> list[str]:
    return list(_BY_NAME)


def ignored(name: str) -> str:
    """Why an option of sbatch is ignored; "" = it is not one of those."""
    return IGNORED.get(IGNORED_SHORT.get(name, name), "")
