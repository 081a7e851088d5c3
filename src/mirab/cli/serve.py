"""`mirab serve`: the live service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from mirab.cli.exits import ConflictError, UnusableError
from mirab.cli.output import check_input, say
from mirab.service.config import SETTINGS, ConfigError, load_config


def _options(command: Any) -> Any:
    """An option for each setting."""
    for setting in reversed(SETTINGS):
        default = f" Default: {setting.default}." if setting.default else ""
        text = f"{setting.means}{default} Or {setting.env}."
        command = click.option(setting.flag, setting.name, metavar=setting.form, help=text)(command)
    return command


@click.command()
@click.option("--config", metavar="FILE", help="Settings in YAML, named as the flags with _ for -.")
@_options
def command(config: str | None, **flags: str | None) -> int:
    """Share out this machine: take jobs, decide, run them, and survive anything.

    A flag beats its variable in the environment, which beats the file. Without a cluster file it begins with this
    machine's GPUs (or --pretend-gpus N) and one account, `everyone`, for all.
    """
    file = check_input(config) if config is not None else None
    try:
        settings = load_config(flags, os.environ, file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    for name in (settings.cluster, Path(settings.policy) if settings.policy.endswith((".yaml", ".yml")) else None):
        if name is not None:
            check_input(os.fspath(name))
    if os.path.isfile(settings.state_dir):
        raise click.UsageError(f"--state-dir: {settings.state_dir} is a file: name a folder, or one to be made")
    return _serve(settings)


def _serve(settings: Any) -> int:
    from mirab.service.api.server import ListenError
    from mirab.service.doors import open_doors
    from mirab.service.logs import configure
    from mirab.service.recover import RecoverError
    from mirab.service.runtime import assemble
    from mirab.store import StoreBusyError, StoreError

    configure(settings.log_format, settings.log_level)
    try:
        service = assemble(settings)
        open_doors(service, say)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except (StoreBusyError, ListenError) as error:
        raise ConflictError(str(error)) from error
    except (StoreError, RecoverError) as error:
        raise UnusableError(str(error)) from error
    return service.exit_code
