"""From what was asked for, by flags and by lines of a script, to the request that the API takes. Pure.

A flag beats an environment variable, and that a line of the script; of two lines the later counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mirab.cli.batchscript import BatchScript
from mirab.cli.slurmforms import (
    Gpus,
    gpus,
    gres,
    memory_mib,
    node_count,
    signal_notice,
    slurm_time,
    span_text,
)
from mirab.model.units import plural

FROM_ENVIRONMENT = {
    "account": ("MIRAB_ACCOUNT", "SBATCH_ACCOUNT"),
    "time": ("SBATCH_TIMELIMIT",),
    "output": ("SBATCH_OUTPUT",),
    "error": ("SBATCH_ERROR",),
    "open_mode": ("SBATCH_OPEN_MODE",),
    "export": ("SBATCH_EXPORT",),
    "signal": ("SBATCH_SIGNAL",),
}
"""Fields that an environment variable can give, the first that is set."""
NEVER_EXPORTED = ("MIRAB_TOKEN",)
KEPT_WITHOUT_EXPORT = ("HOME", "USER", "LOGNAME", "SHELL", "LANG")
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


class WishError(ValueError):
    """One option cannot be understood; the message says where it stood, and what to write."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The value of one option, and where it came from: ``--time``, ``line 3: --time``, ``SBATCH_TIMELIMIT``."""

    value: str
    where: str


Wishes = Mapping[str, Wish]


def gathered(script: BatchScript | None, environment: Mapping[str, str], flags: Mapping[str, Wish]) -> dict[str, Wish]:
    """One value for each option that was given anywhere."""
    wishes: dict[str, Wish] = {}
    for asked in script.asked if script else ():
        name = asked.option.names[0]
        wishes[asked.option.field] = Wish(asked.value or asked.option.sets, f"line {asked.line}: {name}")
    for field, names in FROM_ENVIRONMENT.items():
        if name := next((name for name in names if environment.get(name)), ""):
            wishes[field] = Wish(environment[name], name)
    return _without_rivals(wishes, flags) | dict(flags)


RIVALS = (("gpus_per_node", "gpus", "gres", "gpus_per_task"), ("mem", "mem_per_cpu", "mem_per_gpu"))
"""Ways to say the same: a flag replaces a line that said it in another way."""


def _without_rivals(wishes: dict[str, Wish], flags: Mapping[str, Wish]) -> dict[str, Wish]:
    beaten = {name for group in RIVALS if any(name in flags for name in group) for name in group}
    return {field: wish for field, wish in wishes.items() if field not in beaten}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a request takes from the place where it is made.

    Attributes:
        largest_node: asked when GPUs are wanted in all, but no number of nodes: the GPUs of the largest node.
        deadline: an instant as people write it to ISO 8601 with its zone.
    """

    cwd: str
    environment: Mapping[str, str]
    largest_node: Callable[[], int]
    deadline: Callable[[str], str]


def job_request(wishes: Wishes, around: Surroundings) -> dict[str, Any]:
    """The body of POST /jobs, without program or script; what was not asked for is left out.

    Raises:
        WishError: a value makes no sense, or two contradict each other.
    """
    body = {target: value for target, value in _plain(wishes) if value is not None}
    body.update(_size(wishes, around))
    body.update(_notice(wishes))
    if "deadline" in wishes:
        body["deadline"] = _read(wishes, "deadline", around.deadline)
    body["cwd"] = _joined(around.cwd, wishes["chdir"].value) if "chdir" in wishes else around.cwd
    body["environment"] = exported(wishes["export"].value if "export" in wishes else "ALL", around.environment)
    return body


def _read(wishes: Wishes, field: str, reader: Callable[[str], Any], default: Any = None) -> Any:
    """The value of an option through its reader; errors say where it stood."""
    wish = wishes.get(field)
    if wish is None:
        return default
    try:
        return reader(wish.value)
    except ValueError as error:
        raise WishError(f"{wish.where}: {error}") from error


TEXTS = {
    "account": "account",
    "job_name": "name",
    "output": "output",
    "error": "error",
    "checkpoint_file": "checkpoint_file",
    "verify_resume": "verify_resume",
    "dependency": "dependency",
    "array": "array",
    "label": "label",
}
"""Fields that are handed on as they are, and their names in the API."""
SPANS = ("min_runtime", "checkpoint", "restart", "progress", "idle_timeout")


def _plain(wishes: Wishes) -> Iterable[tuple[str, Any]]:
    for field, target in TEXTS.items():
        yield target, wishes[field].value if field in wishes else None
    for field in SPANS:
        yield field, _read(wishes, field, _span)
    yield "time_limit", _read(wishes, "time", _limit)
    yield "priority", _read(wishes, "priority", _whole)
    yield "resume", _read(wishes, "resume", lambda text: text == "yes")
    yield "hold", _read(wishes, "hold", lambda text: text == "yes")
    yield "append", _read(wishes, "open_mode", _appends)
    yield "gpu_types", _read(wishes, "gpu_type", _types)


def _span(text: str) -> str:
    span = slurm_time(text)
    if span is None:
        raise ValueError(f"{text!r} has no end: write a time such as 30m")
    return span_text(span)


def _limit(text: str) -> str | None:
    span = slurm_time(text)
    return None if span is None or span == 0 else span_text(span)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _appends(text: str) -> bool:
    if text not in ("append", "a", "truncate", "t"):
        raise ValueError(f"{text!r} is not a way to open a file: write append or truncate")
    return text.startswith("a")


def _types(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split(",") if part.strip()]


def _notice(wishes: Wishes) -> dict[str, str]:
    """Signal and notice; `--grace` beats the seconds of `--signal`."""
    notice: dict[str, str] = {}
    if "signal" in wishes:
        name, seconds = _read(wishes, "signal", signal_notice)
        notice = {"signal": name, "grace": f"{seconds}s"}
    if "grace" in wishes:
        notice["grace"] = _read(wishes, "grace", _span)
    return notice


# --- nodes, GPUs, cores, memory ------------------------------------------------------------------------------------
def _size(wishes: Wishes, around: Surroundings) -> dict[str, Any]:
    tasks = _read(wishes, "ntasks", _whole)
    nodes = _read(wishes, "nodes", node_count, 0)
    per_node = _read(wishes, "ntasks_per_node", _whole, 0)
    if per_node and tasks and not nodes:
        nodes = -(-tasks // per_node)
    found, nodes = _gpus(wishes, nodes, per_node or _spread(tasks, nodes or 1), around.largest_node)
    per_node = per_node or _spread(tasks, nodes)
    cores = per_node * _read(wishes, "cpus_per_task", _whole, 1) if _names_cores(wishes) else 0
    size: dict[str, Any] = {"nodes": nodes, "gpus_per_node": found.number, "cpus_per_node": cores}
    size["memory_mib_per_node"] = _memory(wishes, cores or per_node, found.number)
    if found.type and "gpu_type" not in wishes:
        size["gpu_types"] = [found.type]
    return {name: value for name, value in size.items() if value}


def _names_cores(wishes: Wishes) -> bool:
    return any(name in wishes for name in ("cpus_per_task", "ntasks", "ntasks_per_node"))


def _spread(tasks: int | None, nodes: int) -> int:
    """Tasks on the fullest node."""
    return -(-(tasks or 1) // nodes)


def _gpus(wishes: Wishes, nodes: int, tasks: int, largest_node: Callable[[], int]) -> tuple[Gpus, int]:
    """GPUs of each node, and the number of nodes."""
    total: Gpus | None = _read(wishes, "gpus", gpus)
    found = _gpus_per_node(wishes, tasks)
    if total is None or not total.number:
        return found, nodes or 1
    if found.number:
        nodes = nodes or max(1, total.number // found.number)
        if found.number * nodes != total.number:
            sum_ = f"{plural(total.number, 'GPU')} in all {'is' if total.number == 1 else 'are'}"
            raise WishError(f"{wishes['gpus'].where}: {sum_} not {nodes} x {found.number}")
        return Gpus(found.number, found.type or total.type), nodes
    nodes = nodes or -(-total.number // max(1, largest_node() if total.number > 1 else 1))
    if total.number % nodes:
        raise WishError(
            f"{wishes['gpus'].where}: {plural(total.number, 'GPU')} do not spread evenly over {plural(nodes, 'node')}: "
            "say --nodes and --gpus-per-node"
        )
    return Gpus(total.number // nodes, total.type), nodes


def _gpus_per_node(wishes: Wishes, tasks: int) -> Gpus:
    if "gpus_per_node" in wishes:
        return _read(wishes, "gpus_per_node", gpus)  # type: ignore[no-any-return]
    if "gres" in wishes:
        return _read(wishes, "gres", gres)[0]  # type: ignore[no-any-return]
    each: Gpus = _read(wishes, "gpus_per_task", gpus, Gpus(0))
    return Gpus(each.number * tasks, each.type)


def _memory(wishes: Wishes, cores: int, gpu_count: int) -> int:
    if "mem" in wishes:
        return int(_read(wishes, "mem", memory_mib))
    if "mem_per_gpu" in wishes:
        return int(_read(wishes, "mem_per_gpu", memory_mib)) * gpu_count
    return int(_read(wishes, "mem_per_cpu", memory_mib, 0)) * max(cores, 1)


# --- environment ---------------------------------------------------------------------------------------------------
def exported(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the job, as ``--export`` says: ``ALL``, ``NONE``, or names and values, with ALL among them.

    Variables that are not UTF-8 stay behind, and a token of mirab, unless it is named. `NONE`, or a list without ALL,
    keeps the home folder, the user's name, the shell and a plain ``PATH``.
    """
    words = _export_words(text)
    everything = any(word.upper() == "ALL" for word in words) or not words
    chosen = _everything(environment) if everything else _least(environment)
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif word.upper() not in ("ALL", "NONE", "NIL") and name in environment:
            chosen[name] = environment[name]
    return {name: value for name, value in chosen.items() if name and _is_text(name + value)}


def _is_text(text: str) -> bool:
    """Bytes that are not UTF-8 came in as lone surrogates, and the service takes text only."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _everything(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in NEVER_EXPORTED}


def _least(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environment[name] for name in KEPT_WITHOUT_EXPORT if name in environment}
    return {**kept, "PATH": PLAIN_PATH}


def _export_words(text: str) -> list[str]:
    """The parts between commas; quotes keep a comma in a value."""
    words, word, quote = [], "", ""
    for char in text:
        if quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "'\"":
            quote = char
        elif char == ",":
            words.append(word)
            word = ""
        else:
            word += char
    return [part for part in (word.strip() for word in [*words, word]) if part]


def _joined(cwd: str, folder: str) -> str:
    return folder if folder.startswith("/") else f"{cwd.rstrip('/')}/{folder}"
