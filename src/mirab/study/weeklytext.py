"""The report of a week in words: sections with tables, as Markdown or as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, TypeAlias

from markupsafe import Markup

from mirab.study import formats
from mirab.study.catalogue import CAUSE_WORDS, CLASS_WORDS
from mirab.study.formats import ABSENT, hours, percent, plural, printable, span
from mirab.study.page import asset, environment, security_policy
from mirab.study.reportparts import ledger_notes

Json: TypeAlias = dict[str, Any]
ROWS_MOST = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A heading, what it says in a sentence, a table or none. `wordy`: so many columns from the left are text."""

    title: str
    told: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: int = 1
    note: str = ""


def title(found: Json, zone: tzinfo | None = None) -> str:
    """``Week 2026-W48, 23 to 29 November 2026``."""
    begin, end = (_local(found[key], zone) for key in ("begin_s", "end_s"))
    last = datetime.fromtimestamp(end.timestamp() - 1, end.tzinfo)
    first = f"{begin.day}" if begin.month == last.month else f"{begin.day} {begin:%B}"
    return f"Week {found['week']}, {first} to {last.day} {last:%B} {last.year}"


def _local(seconds: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(seconds, zone).astimezone(zone)


def _at(seconds: float | None, zone: tzinfo | None) -> str:
    if seconds is None:
        return ""
    when = _local(seconds, zone)
    return f"{when:%a} {when.day} {when:%b %H:%M}"


def lede(found: Json) -> str:
    """The week in a few sentences."""
    metrics = found["metrics"]
    owed = sum(each["owed"] or 0 for each in found["accounts"])
    delivered = sum(each["delivered"] or 0 for each in found["accounts"])
    told = [
        f"{percent(delivered / owed)} of the {hours(owed)} GPU-hours that were owed were delivered." if owed
        else "No account was owed anything.",
        f"{percent(metrics['occupancy'])} of what could take work was in use, with {percent(metrics['availability'])} "
        "of the cluster able to.",
    ]  # fmt: skip
    unallocated = metrics["unallocated_ratio_period"]
    if unallocated is not None:
        told.append(f"{percent(unallocated)} of the time in use was owed to nobody: bursts and uncharged work.")
    if found["counted_to_s"] < found["end_s"] or found["counted_from_s"] > found["begin_s"]:
        told.append("Only a part of the week is in the journal.")
    return " ".join(told)


def parts(found: Json, zone: tzinfo | None = None) -> list[Part]:
    """All of it, in the order in which a manager asks."""
    return [
        _accounts(found), _waits(found), _lost(found), _squatters(found), _drains(found, zone),
        _exceptions(found, zone), _changes(found, zone), _reviews(found),
    ]  # fmt: skip


def _accounts(found: Json) -> Part:
    rows = [
        [each["path"], each["owner"], percent(each["share"], 1), hours(each["owed"]), hours(each["delivered"]),
         percent(each["delivered_ratio_period"]), hours(each["charged"]), hours(each["uncharged"]), hours(each["lost"])]
        for each in found["accounts"]
    ]  # fmt: skip
    short = [each for each in found["accounts"] if each["owed"] and each["delivered"] < 0.95 * each["owed"]]
    told = f"{plural(len(short), 'account')} got less than 95 % of what was owed." if short else (
        "Every account got at least 95 % of what it was owed."
    )  # fmt: skip
    columns = ("account", "owner", "share", "owed h", "delivered h", "", "used h", "uncharged h", "lost h")
    note = "Owed is the smaller of an account's share and what it asked for. GPU-hours of weight 1."
    ledgers = dict.fromkeys(each.get("ledger", "") for each in found["accounts"])
    note = " ".join([note, *ledger_notes(ledgers)])
    return Part("Owed and delivered", told, columns, rows, 2, note)


def _waits(found: Json) -> Part:
    waits = found["metrics"]["waits"]
    rows = [
        [name, CLASS_WORDS.get(name, ""), formats.count(each["count"]), span(each["p50_s"]), span(each["p90_s"]),
         span(each["max_s"])]
        for name, each in waits.items() if each["count"]
    ]  # fmt: skip
    every = waits["all"]
    told = "Nobody waited for a first start." if not every["count"] else (
        f"Half of {plural(every['count'], 'job')} waited no longer than {span(every['p50_s'])}, nine of ten no longer "
        f"than {span(every['p90_s'])}."
    )  # fmt: skip
    note = "Those who gave up count with their wait until then, those who still wait with their wait so far."
    return Part("Waits", told, ("class", "", "jobs", "median", "p90", "longest"), rows, 2, note)


def _lost(found: Json) -> Part:
    metrics = found["metrics"]
    causes = metrics["preemptions_by_cause"]
    rows = [[CAUSE_WORDS.get(name, name), formats.count(number)] for name, number in causes.items()]
    told = (
        f"{plural(metrics['preemptions'], 'run')} made room for others; that cost {percent(metrics['lost_ratio'])} "
        "of the time in use."
    )
    return Part("Lost work", told, ("why", "runs"), rows)


def _squatters(found: Json) -> Part:
    every = found["squatters"]
    rows = [
        [each["run"], each["user"], each["account"], formats.count(each["gpus"]), span(each["declared_s"]),
         span(each["longest_s"]), hours(each["gpu_hours"])]
        for each in every[:ROWS_MOST]
    ]  # fmt: skip
    total = sum(each["gpu_hours"] for each in every)
    told = "No run was silent for longer than it declared." if not every else (
        f"{plural(len(every), 'run')} held {hours(total)} GPU-hours beyond the interval within which they had promised "
        "a sign of progress."
    )  # fmt: skip
    columns = ("run", "user", "account", "GPUs", "declared", "longest silence", "GPU-h beyond")
    return Part("Squatters", told, columns, rows, 3, _more(every))


def _drains(found: Json, zone: tzinfo | None) -> Part:
    metrics, every = found["metrics"], found["drains"]
    rows = [
        [each["node"], each["cause"] or each["kind"], _at(each["at_s"], zone), _took(each, "empty_s"),
         _took(each, "back_s"), formats.count(each["stopped"]), hours(each["lost_gpu_hours"]),
         each["person"] or "nobody"]
        for each in every[:ROWS_MOST]
    ]  # fmt: skip
    if every:
        called = plural(metrics["repairs_needing_human"], "repair")
        told = (
            f"{plural(len(every), 'node')} fell sick or had to be emptied; {called} needed a person to talk to the "
            "owner of a run."
        )
    else:
        told = "No node fell sick."
    return Part("Drains and repairs", told, ("node", "why", "when", "empty after", "back after", "runs stopped",
                "GPU-h lost", "a person was asked"), rows, 3, _more(every))  # fmt: skip


def _took(drain: Json, key: str) -> str:
    return ABSENT if drain[key] is None else span(drain[key] - drain["at_s"])


def _exceptions(found: Json, zone: tzinfo | None) -> Part:
    every = found["exceptions"]
    rows = [
        [each["id"], each["kind"], each["account"], each["standing"], _at(each["end_s"], zone), each["owner"],
         each["approver"], each["reason"]]
        for each in every[:ROWS_MOST]
    ]  # fmt: skip
    ending = sum(each["standing"] == "ends soon" for each in every)
    told = "There were none." if not every else (
        f"{plural(len(every), 'exception or reservation', 'exceptions and reservations')}; {ending} of them "
        f"{'ends' if ending == 1 else 'end'} within two weeks."
    )  # fmt: skip
    return Part("Exceptions", told, ("id", "kind", "account", "", "until", "owner", "approved by", "why"), rows, 8,
                _more(every))  # fmt: skip


def _changes(found: Json, zone: tzinfo | None) -> Part:
    every = found["budget_changes"]
    rows = [[_at(each["at_s"], zone), each["author"], each["reason"]] for each in every[:ROWS_MOST]]
    told = f"{plural(len(every), 'decision')} changed them." if every else "Nobody changed them."
    return Part("Budgets", told, ("when", "who", "why"), rows, 3, _more(every))


def _reviews(found: Json) -> Part:
    every = found["reviews"]
    rows = [[each["account"], each["review"], each["owner"], each["hypothesis"] or "no hypothesis was stated"]
            for each in every]  # fmt: skip
    told = f"{plural(len(every), 'budget')} {'is' if len(every) == 1 else 'are'} to be looked at again." if every else (
        "None is due within two weeks."
    )  # fmt: skip
    return Part("Reviews due", told, ("account", "review", "owner", "hypothesis"), rows, 4)


def _more(every: Sequence[Json]) -> str:
    return f"and {len(every) - ROWS_MOST:,} more" if len(every) > ROWS_MOST else ""


# --- Markdown and HTML ----------------------------------------------------------------------------------------------
def markdown(found: Json, zone: tzinfo | None = None) -> str:
    """For a mail, a wiki or a chat."""
    blocks = [f"# {_escaped(title(found, zone))}", _escaped(lede(found))]
    for part in parts(found, zone):
        blocks += [f"## {part.title}", _escaped(part.told)]
        if part.rows:
            blocks.append(_table(part))
        if part.note:
            blocks.append(f"*{_escaped(part.note)}*")
    return "\n\n".join(blocks) + "\n"


def _table(part: Part) -> str:
    rule = ["---" if place < part.words else "---:" for place in range(len(part.columns))]
    rows = [part.columns, rule, *([_escaped(cell) for cell in row] for row in part.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _escaped(text: str) -> str:
    """Nobody's name makes a table, a link or a heading."""
    flat = " ".join(printable(text).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#" else sign for sign in flat)


def weekly_page(found: Json, zone: tzinfo | None = None) -> str:
    """One HTML file, in the look of the page of a replay. The same report gives the same bytes."""
    style = asset("page.css") + asset("weekly.css")
    return environment().get_template("weekly.html.j2").render(
        title=title(found, zone), lede=lede(found), parts=parts(found, zone), version=found["mirab"],
        style=Markup(style), policy=security_policy(style, ""),
    )  # fmt: skip
