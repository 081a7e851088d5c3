"""Changes a YAML file of budgets in place: comments, order, quotes and everything that is not about budgets stay.

What was written is read back before anything is kept: a file that cannot be edited faithfully is left as it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mirab.logs.budgetfile import budgets_from
from mirab.logs.errors import LogError
from mirab.logs.fields import count, span
from mirab.logs.yamltree import Entry, parse_yaml
from mirab.model.accounts import CAPS, TEXTS, Budget, Budgets, child_path
from mirab.model.units import exact_duration, exact_share, parse_share

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = 1 << 20


@dataclass(frozen=True, slots=True)
class PlannedTree:
    """A tree of budgets that will hold from an instant (Unix milliseconds) on."""

    at: int
    budgets: Budgets
    author: str = ""
    reason: str = ""


def edited(text: str, path: Path, budgets: Budgets, planned: Sequence[PlannedTree]) -> str:
    """The text of the file with other budgets, and with other changes of budgets to come.

    Args:
        path: of the file, for errors.

    Raises:
        LogError: the file is no such file, or cannot be edited without changing something else.
    """
    yaml = _round_trip(text)
    document, comment = (yaml.load(text) if text.strip() else None), ""
    if document is None:
        document, comment = _new_map(), text
    if "budgets" not in document:
        document["budgets"] = _new_map()
    _sync(document["budgets"], "", budgets.roots)
    _plan(document, planned)
    stream = io.StringIO()
    yaml.dump(document, stream)
    made = comment + stream.getvalue()
    _check(text, made, path, budgets)
    return made


def _round_trip(text: str) -> Any:
    """A reader and writer to which every plain scalar is text, so that ``no``, ``012`` and dates stay as written."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.Resolver = _text_resolver()
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    indent = _indent(text)
    yaml.indent(mapping=indent, sequence=indent + 2, offset=indent)
    return yaml


def _text_resolver() -> Any:
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver
    from ruamel.yaml.tag import Tag

    class TextResolver(VersionedResolver):
        """Every plain scalar is text."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0]:
                return Tag(suffix="tag:yaml.org,2002:str")
            return super().resolve(kind, value, implicit)

    return TextResolver


def _indent(text: str) -> int:
    """By how much the file indents, as its first indented key shows."""
    found = re.search(r"^( +)[^\s#-]", text, re.MULTILINE)
    return min(len(found[1]), 8) if found else 2


def _new_map() -> Any:
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap()


# --- budgets ----------------------------------------------------------------------------------------------------------
def _sync(entries: Any, parent: str, siblings: Sequence[Budget]) -> None:
    """Make the mapping of siblings say what they are."""
    names = [budget.name for budget in siblings]
    for place, budget in enumerate(siblings):
        if budget.name not in entries:
            _adopt(entries, parent, budget, names, place)
        entry = entries[budget.name]
        _sync_terms(entry, budget)
        if budget.children:
            if "children" not in entry:
                entry["children"] = _new_map()
            _sync(entry["children"], child_path(parent, budget.name), budget.children)
        elif "children" in entry:
            del entry["children"]
    for key in [key for key in entries if key not in names]:
        del entries[key]
    if list(entries) != names:
        for name in names:
            entries[name] = entries.pop(name)


def _adopt(entries: Any, parent: str, budget: Budget, names: Sequence[str], place: int) -> None:
    """A place for an account that the mapping does not have: that of its predecessor, with its comments, or a new."""
    old = [key for key in entries if key not in names and child_path(parent, key) in budget.formerly]
    if not old:
        entries.insert(min(place, len(entries)), budget.name, _new_entry(budget))
        return
    at = list(entries).index(old[0])
    comments = entries.ca.items.get(old[0])
    entry = entries.pop(old[0])
    entries.insert(at, budget.name, entry)
    if comments is not None:
        entries.ca.items[budget.name] = comments


def _new_entry(budget: Budget) -> Any:
    entry = _new_map()
    entry["share"] = exact_share(budget.share)
    if not budget.children:
        entry.fa.set_flow_style()
    return entry


def _sync_terms(entry: Any, budget: Budget) -> None:
    if _share(entry) != budget.share:
        entry["share"] = exact_share(budget.share)
    _sync_pools(entry, budget)
    for name in TEXTS:
        _set(entry, name, getattr(budget, name), str(entry.get(name, "")))
    for name, usual in (("save_for_gangs", False), ("equal_users", True)):
        value: bool = getattr(budget, name)
        written = str(entry.get(name, "yes" if usual else "no")).lower() in ("yes", "true", "on", "1")
        if value != written:
            entry[name] = "yes" if value else "no"
    caps = budget.caps()
    for name in CAPS:
        if name not in caps:
            entry.pop(name, None)
        elif str(caps[name]) != _cap(name, str(entry.get(name, ""))):
            entry[name] = str(caps[name])
    formerly = entry.get("formerly", [])
    given = tuple(map(str, formerly)) if isinstance(formerly, list) else (str(formerly),)
    if given != budget.formerly:
        entry["formerly"] = _paths(budget.formerly)


def _sync_pools(entry: Any, budget: Budget) -> None:
    """Make the shares of single pools what they are; those that stay the same are left as they are written."""
    if not budget.pool_shares:
        entry.pop("pool_shares", None)
        return
    if "pool_shares" not in entry:
        made = _new_map()
        made.fa.set_flow_style()
        entry.insert(list(entry).index("share") + 1, "pool_shares", made)
    pools, wanted = entry["pool_shares"], dict(budget.pool_shares)
    for pool in [pool for pool in pools if pool not in wanted]:
        del pools[pool]
    for pool, share in wanted.items():
        if pool not in pools or _parsed(pools[pool]) != share:
            pools[pool] = exact_share(share)


def _cap(name: str, written: str) -> str:
    """A cap as it stands in the file, in the words of `Budget.caps`; other words for the same are left as they are."""
    try:
        return exact_duration(span(written)) if name == "min_runtime_cap" else str(count(written))
    except ValueError:
        return ""


def _share(entry: Any) -> int | None:
    return _parsed(entry.get("share", ""))


def _parsed(share: Any) -> int | None:
    try:
        return parse_share(str(share))
    except ValueError:
        return None


def _set(entry: Any, name: str, value: str, written: str) -> None:
    if value == written:
        return
    if value:
        entry[name] = value
    else:
        del entry[name]


def _paths(paths: Sequence[str]) -> Any:
    from ruamel.yaml.comments import CommentedSeq

    made = CommentedSeq(paths)
    made.fa.set_flow_style()
    return made


# --- what is to come --------------------------------------------------------------------------------------------------
def _plan(document: Any, planned: Sequence[PlannedTree]) -> None:
    if not planned:
        document.pop("budget_changes", None)
        return
    document["budget_changes"] = [_planned(each) for each in planned]


def _planned(tree: PlannedTree) -> Any:
    entry = _new_map()
    entry["at"] = date_text(tree.at)
    for name in ("author", "reason"):
        if getattr(tree, name):
            entry[name] = getattr(tree, name)
    entry["budgets"] = _new_map()
    _sync(entry["budgets"], "", tree.budgets.roots)
    return entry


def date_text(unix_ms: int) -> str:
    """``2027-03-01`` for a midnight in UTC, else ``2027-03-01T09:30:00+00:00``."""
    moment = _EPOCH + timedelta(milliseconds=unix_ms)
    if moment.time() == datetime.min.time():
        return moment.strftime("%Y-%m-%d")
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


# --- is it what was meant? --------------------------------------------------------------------------------------------
def _check(before: str, after: str, path: Path, budgets: Budgets) -> None:
    old = parse_yaml(before.encode(), path).table("the file") if before.strip() else {}
    new = parse_yaml(after.encode(), path).table("the file")
    same = budgets_from(new["budgets"]) == budgets and all(
        _plain(old[key]) == _plain(new[key]) for key in old if key not in ("budgets", "budget_changes")
    )
    if not same or set(new) - set(old) - {"budgets", "budget_changes"}:
        raise LogError(
            "cannot be edited without changing what it says beside its budgets",
            path,
            remedy="move the budgets into a file of their own",
        )


def _plain(entry: Entry) -> object:
    """What an entry says, without where it stands."""
    if isinstance(entry.value, dict):
        return {key: _plain(value) for key, value in entry.value.items()}
    if isinstance(entry.value, list):
        return [_plain(value) for value in entry.value]
    return entry.value


def planned_trees(changes: Sequence[PlannedTree]) -> tuple[PlannedTree, ...]:
    """The same without authors and reasons: what is compared."""
    return tuple(replace(each, author="", reason="") for each in changes)
