"""Slurm's tree of accounts and their shares, as ``sacctmgr`` prints it, as budgets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mirab.backends.slurm.commands import Command
from mirab.model.accounts import Budget, Budgets
from mirab.model.units import WHOLE, format_share

SHOW: Command = ("sacctmgr", "--noheader", "--parsable2", "show", "associations",
                 "format=Account,ParentName,User,Share")  # fmt: skip
ROOT = "root"
NOTE = "imported from Slurm's associations"


@dataclass(frozen=True, slots=True)
class Association:
    """One account (`user` "") or one user in it. `share`: Slurm's raw number, 1 where it says ``parent``."""

    account: str
    parent: str
    user: str
    share: int


def associations(listing: str) -> list[Association]:
    """The lines of `SHOW`; what has not four fields is no association."""
    found: dict[tuple[str, str], Association] = {}
    for line in listing.splitlines():
        fields = line.strip().split("|")
        if len(fields) == 4 and fields[0]:
            account, parent, user, share = fields
            found.setdefault((account, user), Association(account, parent, user, _share(share)))
    return list(found.values())


def _share(text: str) -> int:
    return max(0, int(text)) if text.lstrip("-").isdigit() else 1


def budgets_of(found: list[Association]) -> Budgets:
    """The tree below ``root``: each account's part of the shares of its siblings.

    Raises:
        ValueError: there is no account.
    """
    accounts = [each for each in found if not each.user and each.account != ROOT]
    roots = _below("", accounts, 0)
    if not roots:
        raise ValueError("sacctmgr shows no account below root: there is nothing to import")
    return Budgets(roots)


def _below(parent: str, accounts: list[Association], depth: int) -> tuple[Budget, ...]:
    names = {each.account for each in accounts}
    children = [
        each
        for each in accounts
        if (each.parent == parent if parent else each.parent == ROOT or each.parent not in names)
    ]
    if depth > len(accounts):
        return ()
    total = sum(each.share for each in children)
    parts = [WHOLE * each.share // total if total else WHOLE // len(children) for each in children]
    return tuple(
        Budget(each.account, part, _below(each.account, accounts, depth + 1), hypothesis=NOTE)
        for each, part in zip(children, parts, strict=True)
    )


def with_paths(log: str, paths: Mapping[str, str]) -> str:
    """A log of ``sacct --parsable2`` with paths of budgets where it names accounts."""
    head, *rows = log.splitlines()
    names = head.split("|")
    if "Account" not in names:
        return log
    column = names.index("Account")
    return "".join(f"{line}\n" for line in (head, *(_renamed(row, column, paths) for row in rows)))


def _renamed(row: str, column: int, paths: Mapping[str, str]) -> str:
    fields = row.split("|", column + 1)
    if len(fields) > column:
        fields[column] = paths.get(fields[column], fields[column])
    return "|".join(fields)


def as_yaml(budgets: Budgets) -> str:
    """A cluster file with these budgets. A share is cut to what can be written, so that siblings never pass 100%."""
    return "budgets:\n" + "".join(_lines(budgets.roots, "  "))


def _lines(siblings: tuple[Budget, ...], indent: str) -> Iterator[str]:
    for budget in siblings:
        share = format_share(budget.share - budget.share % (WHOLE // 1_000_000))
        yield f'{indent}"{budget.name}":\n{indent}  share: {share}\n'
        if budget.children:
            yield f"{indent}  children:\n"
            yield from _lines(budget.children, indent + "    ")
