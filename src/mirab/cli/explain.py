"""`mirab explain`: the story of one workload in a recorded replay."""

from __future__ import annotations

import click

from mirab.cli.exits import NotFoundError, UnusableError
from mirab.cli.output import check_input, emit, to_json


@click.command()
@click.argument("journal", metavar="JOURNAL")
@click.argument("workload_id", metavar="ID")
@click.option(
    "--json", "as_json", is_flag=True, help="The story as data: waits, runs, typed reasons with their numbers."
)
def command(journal: str, workload_id: str, as_json: bool) -> None:
    """Tell why workload ID waited, started and was stopped, from the record of a replay.

    JOURNAL is a file that `mirab sim LOG --journal FILE` has written.
    """
    from mirab.study.story import story
    from mirab.study.storytext import tell

    path = check_input(journal)
    try:
        told = story(path, workload_id)
    except (LookupError, TypeError, AttributeError) as error:
        if type(error) is LookupError:
            raise NotFoundError(str(error.args[0])) from error
        raise UnusableError(f"{path} is a damaged record: what stands in it makes no story. Record it again with "
                            "--journal") from error  # fmt: skip
    except ValueError as error:
        hint = "" if "--journal" in str(error) else ". A record is what `mirab sim LOG --journal FILE` writes"
        raise UnusableError(f"{error}{hint}") from error
    emit(to_json(told) if as_json else tell(told))
