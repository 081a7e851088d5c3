"""The settings of `mirab serve`: from flags, the environment, a YAML file, in this order of precedence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path

from mirab.logs.yamltree import read_yaml
from mirab.model.units import DAY, SECOND, Duration, format_duration, parse_duration
from mirab.service.desk.identity import unix_user
from mirab.service.logs import FORMS, LEVELS

SOCKET = "mirab.sock"
DATABASE = "mirab.db"
PORT = 7077
DEFAULT_LISTEN = f"127.0.0.1:{PORT}"
NONE = "none"
BACKENDS = ("local", "slurm", "null")
STORES = ("sqlite", "postgresql", "postgres")
LOCAL_USERS = ("researcher", NONE)
METRICS = ("open", "token")
LONGEST_WAIT = 3_650 * DAY // SECOND
SYSTEM_STATE = "/var/lib/mirab"


class ConfigError(ValueError):
    """A setting that cannot be used; the message says where it stands and what to write."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its flag is ``--name-with-dashes``, its key in the file the name.

    Attributes:
        form: what its value looks like, in help texts.
        default: as text, "" = see `means`.
    """

    name: str
    form: str
    env: str
    default: str
    means: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


SETTINGS: tuple[Setting, ...] = (
    Setting("state_dir", "DIR", "MIRAB_STATE_DIR_ROOT", "",
            f"Where everything is kept. Default: {SYSTEM_STATE} for root, ~/.local/state/mirab else."),
    Setting("cluster", "FILE", "MIRAB_CLUSTER", "",
            "Nodes, budgets and policy (YAML). Default: this machine, and one account for everybody."),
    Setting("pretend_gpus", "N", "MIRAB_PRETEND_GPUS", "", "Act as if each node had so many GPUs."),
    Setting("pretend_nodes", "N", "MIRAB_PRETEND_NODES", "1", "Act as if this machine were so many nodes."),
    Setting("db", "URL", "MIRAB_DB", "",
            "sqlite:////path/mirab.db or postgresql://user@host/name. Default: mirab.db in the state folder. "
            "Give passwords in the environment or the file, not as a flag."),
    Setting("listen", "HOST:PORT", "MIRAB_LISTEN", DEFAULT_LISTEN, "Where to listen for HTTP; none = nowhere."),
    Setting("socket", "PATH", "MIRAB_SOCKET", "",
            "The Unix socket for users of this machine; none = no socket. Default: mirab.sock in the state folder, or "
            "in $XDG_RUNTIME_DIR if the state folder is not named."),
    Setting("policy", "NAME|FILE", "MIRAB_POLICY", "",
            "How the cluster is shared. Default: what the cluster file says, else budget."),
    Setting("backend", "local|slurm|null", "MIRAB_BACKEND", "local",
            "What runs jobs: real processes on this machine, the Slurm cluster that it belongs to, or nothing at all "
            "(for load tests)."),
    Setting("observe", "yes|no", "MIRAB_OBSERVE", "no",
            "With --backend slurm: decide and record, and change nothing in Slurm."),
    Setting("slurm_config", "FILE", "MIRAB_SLURM_CONFIG", "",
            "With --backend slurm: governed accounts, contracts by partition, weights of GPUs (YAML)."),
    Setting("health_check", "COMMAND", "MIRAB_HEALTH_CHECK", "",
            "Is a node (MIRAB_NODE) well? Exit code 0 = yes; else it drains, and the first line is the cause."),
    Setting("health_every", "DURATION", "MIRAB_HEALTH_EVERY", "1m", "Between two health checks."),
    Setting("repair_command", "COMMAND", "MIRAB_REPAIR_COMMAND", "",
            "Makes a drained node (MIRAB_NODE) well; exit code 0 = it is. Default: a person does, and resumes it."),
    Setting("keep_runs", "DURATION", "MIRAB_KEEP_RUNS", "30d",
            "How long the folders of ended runs are kept on this machine (what they saved is never removed)."),
    Setting("coalesce", "DURATION", "MIRAB_COALESCE", "20ms",
            "Least time between two decisions: what arrives meanwhile is decided and written together."),
    Setting("exception_longest", "DURATION", "MIRAB_EXCEPTION_LONGEST", "14d",
            "The longest that an exception or a reservation may last."),
    Setting("notices", "FILE", "MIRAB_NOTICES", "",
            "Who is told of what by webhook, Slack or e-mail (YAML). Default: nobody is told anything."),
    Setting("run_as", "USER", "MIRAB_RUN_AS", "",
            "As which user of this machine a service of root runs the jobs of people who have no account here, as in a "
            "container. Default: such jobs are refused."),
    Setting("wait", "DURATION", "MIRAB_WAIT", "10s",
            "How long to wait for another service on the same store to end, before this one decides."),
    Setting("hosts", "NAME,...", "MIRAB_HOSTS", "",
            "Further names by which clients may call this service over HTTP, besides addresses and localhost."),
    Setting("local_users", "researcher|none", "MIRAB_LOCAL_USERS", "researcher",
            "What users of this machine may do over the socket of root's service where nothing was granted to them."),
    Setting("metrics", "open|token", "MIRAB_METRICS", "open", "Whether /metrics answers without a token."),
    Setting("log_format", "|".join(FORMS), "MIRAB_LOG_FORMAT", "auto",
            "Lines of JSON, or readable ones. auto: JSON unless standard error is a terminal."),
    Setting("log_level", "|".join(LEVELS), "MIRAB_LOG_LEVEL", "info", "The least important lines that are written."),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `mirab serve` was asked for; field by field `SETTINGS`.

    Attributes:
        pretend_gpus: None = detect them.
        host: None = no TCP at all; else an address or a name, with `port` (0 = any free one).
        socket: None = no Unix socket.
    """

    state_dir: Path
    cluster: Path | None = None
    pretend_gpus: int | None = None
    pretend_nodes: int = 1
    db: str = ""
    host: str | None = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None
    policy: str = ""
    backend: str = "local"
    observe: bool = False
    slurm_config: Path | None = None
    notices: Path | None = None
    run_as: str = ""
    health_check: str = ""
    health_every: float = 60.0
    repair_command: str = ""
    keep_runs: Duration = 30 * DAY
    coalesce: float = 0.02
    exception_longest: float = 14 * DAY / SECOND
    wait: float = 10.0
    hosts: tuple[str, ...] = ()
    local_users: str = "researcher"
    metrics: str = "open"
    log_format: str = "auto"
    log_level: str = "info"

    @property
    def beyond_loopback(self) -> bool:
        """Whether other machines could call."""
        if self.host is None or self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return True

    def described(self) -> dict[str, str]:
        """For the log: no passwords."""
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "db"}
        return {name: str(value) for name, value in shown.items() if value not in (None, "", ())}


def load_config(
    flags: Mapping[str, str | None], environment: Mapping[str, str], file: Path | None = None
) -> ServeConfig:
    """Put the settings together: a flag beats the environment, which beats the file.

    Raises:
        ConfigError: a value cannot be used, or the file has an unknown key.
    """
    stated = _from_file(file)
    for setting in SETTINGS:
        if environment.get(setting.env):
            stated[setting.name] = environment[setting.env], setting.env
        given = flags.get(setting.name)
        if given is not None:
            stated[setting.name] = given, setting.flag
    return _config({name: Stated(text, where) for name, (text, where) in stated.items()}, environment)


def _from_file(file: Path | None) -> dict[str, tuple[str, str]]:
    if file is None:
        return {}
    try:
        found = read_yaml(file).fields("the file", BY_NAME)
        return {name: (entry.text(name), f"{file}:{entry.line}: {name}") for name, entry in found.items()}
    except ValueError as error:
        raise ConfigError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Stated:
    """A value as text, and where it was stated."""

    text: str
    where: str

    def wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where} cannot be {self.text!r}: {what}")

    def count(self, least: int = 1, most: int = 100_000) -> int:
        whole = self.text.isdigit() and self.text.isascii() and len(self.text) < 10
        if not whole or not least <= int(self.text) <= most:
            raise self.wrong(f"write a whole number from {least:,} to {most:,}")
        return int(self.text)

    def url(self) -> str:
        """The address of a store, which is not looked at; "" = none is stated."""
        kind, colon, _ = self.text.partition("://")
        if self.text and not (colon and kind.partition("+")[0] in STORES):
            from mirab.store.database import FORMS_OF_URL  # not before it is needed: it loads the engines

            shown = f"{kind}://..." if colon else self.text
            raise ConfigError(f"{self.where} cannot be {shown!r}: write {FORMS_OF_URL}")
        return self.text

    def choice(self, known: tuple[str, ...]) -> str:
        if self.text not in known:
            raise self.wrong(f"choose one of {', '.join(known)}")
        return self.text

    def duration(self) -> Duration:
        try:
            return parse_duration(self.text)
        except ValueError as error:
            raise self.wrong(str(error)) from error

    def user(self) -> str:
        """A user of this machine whose jobs this process could run; "" = none is named."""
        if self.text:
            try:
                unix_user(self.text)
            except ValueError as error:
                raise self.wrong(str(error)) from error
        return self.text

    def seconds(self, most: int, because: str) -> float:
        try:
            span = parse_duration(self.text)
        except ValueError as error:
            raise self.wrong(str(error)) from error
        if span > most * SECOND:
            raise self.wrong(f"at most {format_duration(most * SECOND)}, {because}")
        return span / SECOND


def _config(stated: dict[str, Stated], environment: Mapping[str, str]) -> ServeConfig:
    def get(name: str) -> Stated:
        return stated.get(name) or Stated(BY_NAME[name].default, BY_NAME[name].flag)

    state_dir = Path(get("state_dir").text or default_state_dir()).expanduser().absolute()
    host, port = parse_listen(get("listen"))
    cluster = get("cluster").text
    return ServeConfig(
        state_dir=state_dir,
        cluster=Path(cluster) if cluster else None,
        pretend_gpus=get("pretend_gpus").count(0, 1_024) if "pretend_gpus" in stated else None,
        pretend_nodes=get("pretend_nodes").count(1, 10_000),
        db=get("db").url() or f"sqlite:///{state_dir / DATABASE}",
        host=host,
        port=port,
        socket=_socket(get("socket").text, state_dir, "state_dir" in stated, environment),
        policy=get("policy").text,
        backend=get("backend").choice(BACKENDS),
        observe=get("observe").choice(("yes", "no")) == "yes",
        health_check=get("health_check").text,
        health_every=get("health_every").seconds(86_400, "or a sick node goes unseen for a day"),
        repair_command=get("repair_command").text,
        keep_runs=get("keep_runs").duration(),
        slurm_config=Path(get("slurm_config").text).absolute() if get("slurm_config").text else None,
        notices=Path(get("notices").text).absolute() if get("notices").text else None,
        coalesce=get("coalesce").seconds(60, "else nobody gets an answer"),
        exception_longest=get("exception_longest").seconds(LONGEST_WAIT, "which is ten years"),
        run_as=get("run_as").user(),
        wait=get("wait").seconds(LONGEST_WAIT, "which is ten years"),
        hosts=tuple(name.strip() for name in get("hosts").text.split(",") if name.strip()),
        local_users=get("local_users").choice(LOCAL_USERS),
        metrics=get("metrics").choice(METRICS),
        log_format=get("log_format").choice(FORMS),
        log_level=get("log_level").choice(LEVELS),
    )


def default_state_dir() -> str:
    return SYSTEM_STATE if os.geteuid() == 0 else os.path.expanduser("~/.local/state/mirab")


def _socket(text: str, state_dir: Path, named: bool, environment: Mapping[str, str]) -> Path | None:
    if text == NONE:
        return None
    if text:
        return Path(text).expanduser().absolute()
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and not named and os.path.isdir(runtime):
        return Path(runtime) / SOCKET
    return state_dir / SOCKET


def parse_listen(stated: Stated) -> tuple[str | None, int]:
    """``127.0.0.1:7077``, ``[::1]:7077``, ``7077`` (loopback), ``none``."""
    text = stated.text.strip()
    if text == NONE:
        return None, 0
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isdigit() and port.isascii() and len(port) < 6 and int(port) < 65_536):
        raise stated.wrong(f"write HOST:PORT such as {DEFAULT_LISTEN}, or none")
    return host, int(port)
