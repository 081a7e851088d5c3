"""`mirab slurm`: the way onto a Slurm cluster and off it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mirab.cli.exits import Exit, UnusableError
from mirab.cli.output import emit, say, to_json
from mirab.model.units import plural

if TYPE_CHECKING:
    from mirab.backends.slurm.runner import Runner
    from mirab.service.slurm import SlurmSettings

_Found = TypeVar("_Found")
FORMAT = click.option("--json", "as_json", is_flag=True, help="As JSON.")
ROUNDS = 5
"""So often what is still held is given back: the service or the plugin may have held something meanwhile."""


def _places(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which settings, as `mirab serve --backend slurm` has them."""
    for option in (
        click.option("--slurm-config", metavar="FILE", help="The file that mirab serve is given (MIRAB_SLURM_CONFIG)."),
        click.option("--state-dir", metavar="DIR", help="Where the service keeps everything (MIRAB_STATE_DIR_ROOT)."),
    ):
        command = option(command)
    return command


def _settings(slurm_config: str | None, state_dir: str | None) -> SlurmSettings:
    from mirab.service.config import ConfigError, default_state_dir
    from mirab.service.slurm import read_slurm_settings

    file = slurm_config or os.environ.get("MIRAB_SLURM_CONFIG")
    folder = state_dir or os.environ.get("MIRAB_STATE_DIR_ROOT") or default_state_dir()
    try:
        return read_slurm_settings(Path(file) if file else None, Path(folder).expanduser().absolute())
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _read(runner: Runner, command: tuple[str, ...]) -> str:
    from mirab.backends.slurm.runner import SlurmCommandError

    try:
        return runner.read(command)
    except SlurmCommandError as error:
        raise _refused(error) from error


def _refused(error: Exception) -> UnusableError:
    return UnusableError(f"{str(error).removesuffix('.')}. Is the controller up (`scontrol ping`)?")


def _listed(look: Callable[[], list[_Found]]) -> list[_Found]:
    from mirab.backends.slurm.listings import ListingError
    from mirab.backends.slurm.runner import SlurmCommandError

    try:
        return look()
    except SlurmCommandError as error:
        raise _refused(error) from error
    except ListingError as error:
        raise UnusableError(str(error)) from error


@click.group()
def command() -> None:
    """Slurm executes, mirab decides: bring a cluster over account by account, and give it back with one command.

    These commands speak to Slurm itself and work whether or not the service runs.
    """


@command.command("import")
@click.option("--out", metavar="DIR", default="slurm-import", help="Where to write. Default: slurm-import.")
@click.option(
    "--since", metavar="WHEN", default="now-30days", help="Of sacct's log, in its words. Default: now-30days."
)
@FORMAT
@_places
def import_(out: str, since: str, as_json: bool, **place: str | None) -> None:
    """Read accounts, shares, nodes and the jobs of the last month from Slurm: budgets, and a log to replay."""
    from mirab.backends.slurm import associations
    from mirab.backends.slurm.lister import Lister
    from mirab.backends.slurm.places import cluster_of
    from mirab.backends.slurm.rules import paths_of
    from mirab.service.slurm import cluster_yaml, log_command, runner_of

    settings = _settings(**place)
    runner = runner_of(settings, observing=True)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        budgets = associations.budgets_of(associations.associations(_read(runner, associations.SHOW)))
    except ValueError as error:
        raise UnusableError(str(error)) from error
    cluster = cluster_of(_listed(Lister(runner).nodes), "slurm", settings.weights)
    tree = associations.as_yaml(budgets)
    (folder / "budgets.yaml").write_text(tree, encoding="utf-8")
    (folder / "cluster.yaml").write_text(cluster_yaml(cluster) + tree, encoding="utf-8")
    jobs = _read(runner_of(settings, observing=True, clock=""), log_command(since))
    jobs = associations.with_paths(jobs, paths_of(budgets)) if jobs else jobs
    (folder / "jobs.txt").write_text(jobs, encoding="utf-8")
    accounts, attempts = len(list(budgets.walk())), max(0, jobs.count("\n") - 1)
    if as_json:
        files = ["budgets.yaml", "cluster.yaml", "jobs.txt"]
        told = {"folder": str(folder), "files": files, "accounts": accounts, "slots": cluster.slots}
        emit(to_json({**told, "attempts": attempts, "since": since}))
        return
    say(f"{folder}/budgets.yaml: {plural(accounts, 'account')}, for `mirab serve --backend slurm --cluster`")
    say(f"{folder}/cluster.yaml: the same and {cluster.slots} GPUs and cores, for replays")
    say(f"{folder}/jobs.txt: {plural(attempts, 'attempt')} of jobs since {since}")
    say(f"Next: mirab compare {folder}/jobs.txt --cluster {folder}/cluster.yaml --policies fair-tree,budget")


@command.command()
@FORMAT
@_places
def lua(as_json: bool, **place: str | None) -> None:
    """Print `job_submit.lua`, which holds the jobs of governed accounts when they are submitted."""
    from mirab.backends.slurm.plugin import plugin_text

    settings = _settings(**place)
    text = plugin_text(settings.governed)
    if as_json:
        emit(to_json({"name": "job_submit.lua", "text": text, "governed_file": str(settings.governed)}))
        return
    emit(text)
    say("Write it into the folder of slurm.conf as job_submit.lua, add JobSubmitPlugins=lua to slurm.conf, and say")
    say(f"`scontrol reconfigure`. It reads {settings.governed}, which the controller's user has to be able to read.")
    say("Without it mirab holds jobs itself, a few seconds after they came: Slurm may have started some by then.")


@command.command()
@click.argument("accounts", nargs=-1, required=True, metavar="ACCOUNT...")
@FORMAT
@_places
def govern(accounts: tuple[str, ...], as_json: bool, **place: str | None) -> None:
    """Let mirab decide about the jobs of these accounts (`*` = all). What runs already goes on."""
    from mirab.backends.slurm.governed import read_governed, write_governed

    path = _settings(**place).governed
    write_governed(path, dict.fromkeys((*read_governed(path), *accounts)))
    if as_json:
        emit(to_json({"governed": list(read_governed(path)), "governed_file": str(path)}))
        return
    say(f"Governed: {', '.join(read_governed(path))} (in {path})")


@command.command()
@click.argument("accounts", nargs=-1, required=True, metavar="ACCOUNT...")
@FORMAT
@_places
def ungovern(accounts: tuple[str, ...], as_json: bool, **place: str | None) -> int:
    """Leave the jobs of these accounts to Slurm again; those that mirab holds are given back at once."""
    from mirab.backends.slurm.governed import read_governed, write_governed
    from mirab.service.slurm import runner_of

    settings = _settings(**place)
    before = read_governed(settings.governed)
    unknown = [account for account in accounts if account not in before]
    if unknown:
        raise click.UsageError(f"not governed: {', '.join(unknown)}; governed are {', '.join(before) or 'none'}")
    write_governed(settings.governed, [account for account in before if account not in accounts])
    everything = "*" in accounts
    given, left = _give_back(runner_of(settings, observing=False), None if everything else frozenset(accounts))
    return _given(settings.governed, given, left, as_json, f"{plural(given, 'job')} given back to Slurm")


@command.command("release-all")
@FORMAT
@_places
def release_all(as_json: bool, **place: str | None) -> int:
    """Give everything back to Slurm at once: nothing is governed any more, and what mirab holds is released.

    Jobs that their users or operators hold stay held. Nodes that mirab drains stay drained: `scontrol update
    NodeName=... State=RESUME` when they are well.
    """
    from mirab.backends.slurm.governed import write_governed
    from mirab.service.slurm import runner_of

    settings = _settings(**place)
    write_governed(settings.governed, ())
    given, left = _give_back(runner_of(settings, observing=False), None)
    said = f"Nothing is governed any more; {plural(given, 'job')} given back to Slurm"
    return _given(settings.governed, given, left, as_json, said)


def _give_back(runner: Runner, accounts: frozenset[str] | None) -> tuple[int, int]:
    """Release what mirab holds of these accounts (None = all); how many were, and how many still are held."""
    from mirab.backends.slurm import commands
    from mirab.backends.slurm.lister import Lister

    lister = Lister(runner)
    given: dict[str, None] = {}
    held = []
    for _ in range(ROUNDS):
        listed = _listed(lister.jobs)
        held = [job for job in listed if job.held_by == "mirab" and (accounts is None or job.account in accounts)]
        if not held:
            break
        records = {str(job.job_id): job.placed for job in held}
        runner.write([word for job, placed in records.items() for word in commands.back_to_slurm(job, placed)])
        given |= dict.fromkeys(job.id for job in held)
    return len(given), len(held)


def _given(path: Path, given: int, left: int, as_json: bool, said: str) -> int:
    from mirab.backends.slurm.governed import read_governed

    if as_json:
        emit(to_json({"governed": list(read_governed(path)), "given_back": given, "still_held": left}))
    else:
        say(said)
    if left:
        say(f"{plural(left, 'job')} {'is' if left == 1 else 'are'} still held: say it again, or `scontrol release JOB`")
        return Exit.FAILED
    return Exit.OK


@command.command()
@FORMAT
@_places
def status(as_json: bool, **place: str | None) -> None:
    """What is governed, and how many jobs wait, run, and are held by whom."""
    from mirab.backends.slurm.governed import read_governed
    from mirab.backends.slurm.lister import Lister
    from mirab.service.slurm import runner_of

    settings = _settings(**place)
    listed = _listed(Lister(runner_of(settings, observing=True)).jobs)
    waiting = [job for job in listed if job.waits]
    found = {
        "governed": list(read_governed(settings.governed)),
        "running": sum(job.has_nodes for job in listed),
        "waiting": len(waiting),
        "held_by_mirab": sum(job.held_by == "mirab" for job in waiting),
        "held_by_users": sum(job.held_by == "user" for job in waiting),
        "held_by_administrators": sum(job.held_by == "admin" for job in waiting),
        "states_not_understood": sorted({job.state for job in listed if not job.known}),
    }
    if as_json:
        emit(to_json(found))
        return
    emit(f"Governed accounts: {', '.join(found['governed']) or 'none'} ({settings.governed})")  # type: ignore[arg-type]
    emit(f"{found['running']} jobs run, {found['waiting']} wait; of these {found['held_by_mirab']} are held by mirab, "
         f"{found['held_by_users']} by their users, {found['held_by_administrators']} by administrators")  # fmt: skip
    if found["states_not_understood"]:
        emit(f"States that this version does not understand: {', '.join(found['states_not_understood'])}")  # type: ignore[arg-type]


@command.command()
@click.option("--db", metavar="URL", help="The service's store (MIRAB_DB). Default: mirab.db in the state folder.")
@FORMAT
@_places
def advice(db: str | None, as_json: bool, **place: str | None) -> None:
    """What mirab would have started and stopped while it observed, beside what Slurm did."""
    from mirab.cli.slurmadvice import as_table, as_values
    from mirab.service.advice import compared
    from mirab.service.config import default_state_dir
    from mirab.store import StoreError, open_store

    folder = place["state_dir"] or os.environ.get("MIRAB_STATE_DIR_ROOT") or default_state_dir()
    url = db or os.environ.get("MIRAB_DB") or f"sqlite:///{Path(folder).expanduser().absolute() / 'mirab.db'}"
    try:
        store = open_store(url)
    except StoreError as error:
        raise UnusableError(str(error)) from error
    try:
        starts, stops = compared((facts, plan) for _, facts, plan in store.records())
    finally:
        store.dispose()
    emit(to_json(as_values(starts, stops)) if as_json else as_table(starts, stops))
