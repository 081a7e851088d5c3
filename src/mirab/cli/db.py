"""`mirab db`: the store of the service: make or move its tables, keep and put back a backup, prove what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirab.cli.exits import ConflictError, Exit, InvalidError, UnreachableError, UnusableError
from mirab.cli.output import check_outputs, emit, say, to_json
from mirab.model.units import plural

if TYPE_CHECKING:
    from mirab.store.database import Database

FORMAT = click.option("--json", "as_json", is_flag=True, help="As JSON.")
SERVES_ON = ", or wait for it with --wait"
"""What only `mirab serve` can do about a store that is served already."""
FILE = click.argument("file", type=click.Path(path_type=Path))


def places(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which store, as `mirab serve` has them."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path), help="The YAML file that mirab serve is given."),
        click.option("--state-dir", metavar="DIR", help="Where the service keeps everything (MIRAB_STATE_DIR_ROOT)."),
        click.option("--db", metavar="URL", help="sqlite:////path/mirab.db or postgresql://user@host/name (MIRAB_DB)."),
    ):
        command = option(command)
    return command


@click.group()
def command() -> None:
    """The store of the service: its tables, backups, and proof of what is stored.

    The store is found as mirab serve finds it: --db, MIRAB_DB, or mirab.db in the state folder.
    """


@command.command()
@places
@FORMAT
def migrate(as_json: bool, **place: Any) -> None:
    """Make the tables, or move them up to this version's form. The service must not run meanwhile."""
    with store_at(place, make=True) as database:
        from mirab.store.forms import migrate_alone

        before, after = migrate_alone(database)
        if as_json:
            emit(to_json({"store": database.name, "before": before, "after": after}))
        elif before == after:
            say(f"{database.name} has form {after} already.")
        else:
            say(f"{database.name}: {'made' if before is None else f'moved from form {before} to'} form {after}.")


@command.command()
@FILE
@places
@FORMAT
def backup(file: Path, as_json: bool, **place: Any) -> None:
    """Keep everything in a new FILE, while the service goes on."""
    check_outputs([str(file)], [])  # a folder that is not there may be a disk that is not mounted
    with store_at(place) as database:
        from mirab.store.backup import backup as make

        contents = make(database, file)
        _tell_contents(contents, as_json, f"{file}: {{}} of {database.name}, as of {contents.made_at}.")


@command.command()
@FILE
@places
@FORMAT
def restore(file: Path, as_json: bool, **place: Any) -> None:
    """Put a backup into an empty store, of the same engine or the other."""
    with store_at(place, make=True) as database:
        from mirab.store.backup import restore as put_back

        contents = put_back(database, file)
        _tell_contents(
            contents, as_json, f"{database.name}: {{}}, as of {contents.made_at}. 'mirab db check' proves it."
        )


@command.command()
@click.option("--repair", is_flag=True, help="Make what people read anew from the journal. The service must not run.")
@places
@FORMAT
@click.pass_context
def check(ctx: click.Context, /, repair: bool, as_json: bool, **place: Any) -> None:
    """Prove that the journal is whole and that what people read is what follows from it. Exit 1 if not."""
    with store_at(place) as database:
        from mirab.store.audits import check as look
        from mirab.store.audits import rebuild_alone

        if repair:
            rebuild_alone(database)
        found = look(database)
        if as_json:
            emit(to_json({"ok": not found.wrong, "records": found.records, "jobs": found.jobs, "runs": found.runs,
                          "wrong": found.wrong}))  # fmt: skip
        else:
            for line in found.wrong:
                emit(f"WRONG  {line}")
            verdict = "not ok" if found.wrong else "ok"
            counts = plural(found.records, "record"), plural(found.jobs, "job"), plural(found.runs, "run")
            emit(f"{verdict}: {', '.join(counts)}")
        if found.wrong:
            if not repair:
                say("If the journal is whole, 'mirab db check --repair' makes the rest anew; else restore a backup.")
            ctx.exit(Exit.FAILED)


def _tell_contents(contents: Any, as_json: bool, sentence: str) -> None:
    rows = contents.rows
    if as_json:
        emit(to_json({"form": contents.form, "made_at": contents.made_at, "from": contents.made_from, "rows": rows}))
    else:
        say(sentence.format(f"{plural(rows.get('journal', 0), 'record')}, {plural(rows.get('jobs', 0), 'job')}"))


@contextmanager
def store_at(place: dict[str, Any], make: bool = False) -> Iterator[Database]:
    """The store that the options name; its errors come out with their exit code.

    `make`: a file that is not there is made.
    """
    import os

    from mirab.service.config import ConfigError, load_config
    from mirab.store.backup import NotEmptyError
    from mirab.store.database import open_database
    from mirab.store.errors import StoreBusyError, StoreError, UnreachableStoreError

    try:
        config = load_config({name: place[name] for name in ("db", "state_dir")}, os.environ, place["config"])
        database = open_database(config.db, make)
        try:
            yield database
        finally:
            database.close()
    except StoreBusyError as error:
        raise ConflictError(f"{str(error).removesuffix(SERVES_ON)}.") from error
    except NotEmptyError as error:
        raise ConflictError(f"{error}.") from error
    except UnreachableStoreError as error:
        raise UnreachableError(f"{error}.") from error
    except ConfigError as error:
        raise InvalidError(f"{error}.") from error
    except StoreError as error:
        raise UnusableError(f"{error}.") from error
