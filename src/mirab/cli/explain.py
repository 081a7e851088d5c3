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
        text = to_json(told) if as_json else tell(told)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if type(error) is LookupError:
            raise NotFoundError(str(error.args[0])) from error
        from mirab.study.recordform import wrong_in_record

        wrong = wrong_in_record(path)
        if wrong is None:
            raise  # the record is whole: the fault is in mirab
        hint = "" if "--journal" in wrong else ". A record is what `mirab sim LOG --journal FILE` writes"
        raise UnusableError(f"{wrong}{hint}") from error
    emit(text)
