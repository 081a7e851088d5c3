"""`mirab budget`: budgets as decisions, in a YAML file with its history beside it."""

from __future__ import annotations

import click

from mirab.cli.budgetchange import revert, review, set_
from mirab.cli.budgetlook import blame, diff, log, show
from mirab.cli.budgetpush import push


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Budgets as decisions: who holds which share, since when, by whose word, for what, until which review.

    Without FILE, or with --server, they are those of the live service. FILE is a YAML file with a section `budgets:`;
    its history is kept beside it, in FILE with the ending .history.jsonl; comments and everything else in the file stay
    as they are. `push` makes the budgets of a file those of the service.
    """


for each in (show, diff, set_, log, blame, review, revert, push):
    command.add_command(each)
