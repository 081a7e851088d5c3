"""A story (see `mirab.study.story`) as text: who asked for what, each wait with its blockers, each run with its end."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any, TypeAlias

from mirab.model.units import HOUR, SECOND
from mirab.study.formats import Names, plural, printable, ratio, slot_word, span, times_word

Json: TypeAlias = dict[str, Any]
_WIDTH = 100
_SPELLS_IN_ORDER = 6
"""A wait with more spells than this is told by kind of blocker, longest first."""
_KINDS, _ACCOUNTS, _ROOM, _NODES = 6, 4, 6, 12
"""Kinds of blockers, accounts, runs and stretches of nodes that are told one by one."""

_AFTER = {
    "submitted": "submitted",
    "PREEMPTED": "back in the queue, with its seniority, after it was stopped",
    "NODE_FAIL": "back in the queue after its node failed",
    "LAUNCH_FAILED": "back in the queue after its launch failed",
    "REQUEUED": "back in the queue, as its user asked",
    "REFUSED": "back in the queue after the engine refused to start it",
}
_ENDS = {
    "COMPLETED": "finished",
    "FAILED": "failed",
    "PREEMPTED": "stopped",
    "NODE_FAIL": "lost its node",
    "CANCELLED": "cancelled while running",
    "TIMEOUT": "ended at its time limit",
    "LAUNCH_FAILED": "failed to launch",
    "REQUEUED": "stopped, as its user asked",
    "REFUSED": "was not started after all",
}
_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
"""Ends after which nothing is done again."""
_SHELL = {126: "the command could not be executed", 127: "no such command"}
"""Exit codes by which shells, and mirab as they do, say that nothing was executed."""


_LEAST_TOLD = 0.05
"""Slot-hours below which nothing is said of work that was lost."""


def tell(story: Json, zone: tzinfo | None = None) -> str:
    """The story as lines of at most 100 columns, on the reader's clock (None = this machine's)."""
    names = _names(story, zone)
    lines = [*_heading(story, names), ""]
    advised: set[str] = set()
    waits = [_wait_lines(wait, names, advised) for wait in story["waits"]]
    turns = [(wait["from_s"], 2 * turn, waits[turn]) for turn, wait in enumerate(story["waits"])]
    turns += [
        (run["decided_s"], 2 * turn + 1, _run_lines(run, story["unit"], names))
        for turn, run in enumerate(story["runs"])
    ]
    for _, _, told in sorted(turns, key=lambda turn: turn[:2]):
        lines += told
    return printable("\n".join([*lines, "", *_wrap(_conclusion(story, names), "")]) + "\n")


def _names(story: Json, zone: tzinfo | None) -> Names:
    origin = story["origin_unix_s"]
    return Names(None if origin is None else round(origin * SECOND), story["unit"], zone)


def _at(seconds: float, names: Names) -> str:
    return names.at(round(seconds * SECOND), seconds=True)


def _heading(story: Json, names: Names) -> Iterator[str]:
    workload, unit = story["workload"], story["unit"]
    minimum = workload["min_runtime_s"]
    asked = [_request(workload, unit), f"a minimum of {span(minimum)}" if minimum else "no minimum (uncharged)"]
    if workload["time_limit_s"] is not None:
        asked.append(f"a limit of {span(workload['time_limit_s'])}")
    every = workload["checkpoint_s"]
    asked.append(f"a checkpoint every {span(every)}" if every else "no checkpoints")
    label = f" ({workload['label']})" if workload["label"] else ""
    yield from _wrap(f"{workload['id']}{label} of {workload['user']} for {workload['account']}", "")
    yield from _wrap(f"asked for {', '.join(asked)}", "")
    zone = names.zone_note(round(workload["submitted_s"] * SECOND))
    where = "" if story.get("live") else f"replay of {story['trace']} "
    yield from _wrap(f"{where}under policy {story['policy']}{zone and ', times in ' + zone.strip(' ()')}", "")


def _request(workload: Json, unit: str) -> str:
    each = workload["gpus_per_node"] or workload["cpus_per_node"]
    kind = unit if workload["gpus_per_node"] else "cpu"
    word = slot_word(kind, each)
    if workload["nodes"] == 1:
        return f"{each:,} {word}"
    return f"{workload['nodes']:,} nodes with {each:,} {word} each"


# --- a wait --------------------------------------------------------------------------------------------------------
def _wait_lines(wait: Json, names: Names, advised: set[str]) -> list[str]:
    """`advised`: kinds of blockers whose remedy has been told in this story; once is enough."""
    lines = [f"{_at(wait['from_s'], names)}  {_AFTER.get(wait['after'], wait['after'])}"]
    if not wait["wait_s"]:
        return lines if wait["end"] == "started" else [*lines, *_reasons(wait, advised)]
    lines += _wrap(f"waited {span(wait['wait_s'])}, {_wait_end(wait['end'])}:", "  ")
    lines += _reasons(wait, advised)
    lines += _started_meanwhile(wait, names)
    return lines


def _wait_end(end: str) -> str:
    return {
        "started": "then started",
        "gave up": "then its user gave up",
        "rejected": "and was rejected",
        "the record ends": "and still waits where the record ends",
        "now": "and still waits",
    }.get(end, f"then {end}")


def _reasons(wait: Json, advised: set[str]) -> list[str]:
    spells = wait["blockers"]
    if not spells:
        return ["    no reason was recorded"] if wait["wait_s"] else []
    lines: list[str] = []
    if len(spells) <= _SPELLS_IN_ORDER:
        for spell in spells:
            lines += _blocker(spell["held_s"], "", spell, advised)
        return lines
    kinds = _by_kind(spells)
    for held, count, longest in kinds[:_KINDS]:
        times = f"in {plural(count, 'spell')}; in the longest: " if count > 1 else ""
        lines += _blocker(held, times, longest, advised)
    if len(kinds) > _KINDS:
        lines.append(f"    {plural(len(kinds) - _KINDS, 'other kind')} of blocker held it for less")
    return lines


def _by_kind(spells: Sequence[Json]) -> list[tuple[float, int, Json]]:
    """(time held, spells, longest spell) of each kind of blocker, longest first."""
    kinds: dict[str, list[Json]] = {}
    for spell in spells:
        kinds.setdefault(spell["reason"]["type"], []).append(spell)
    found = [
        (sum(spell["held_s"] for spell in same), len(same), max(same, key=lambda spell: spell["held_s"]))
        for same in kinds.values()
    ]
    return sorted(found, key=lambda kind: -kind[0])


def _blocker(held: float, note: str, spell: Json, advised: set[str]) -> list[str]:
    """One blocker: how long, what it was, who of its own queue stood before it, and what would remove it."""
    text = f"{note}{spell['fact']}"
    if spell["ahead"] or spell["ahead_at_first"]:
        text = f"{_own_queue(spell)}; the first of them: {text}"
    kind = spell["reason"]["type"]
    if spell["advice"] and kind not in advised:
        text += f". {spell['advice']}"
        advised.add(kind)
    return _wrap(text, f"    {span(held):>7}  ")


def _own_queue(spell: Json) -> str:
    first, last = spell["ahead_at_first"], spell["ahead"]
    if not last:
        return f"{plural(first, 'workload')} of the same user and shape stood before it at first, then it was next"
    before = f"{first:,}, later {last:,}" if first != last else f"{last:,}"
    return f"{before} of the same user and shape stood before it ({spell['head']} next)"


def _started_meanwhile(wait: Json, names: Names) -> list[str]:
    started = wait["started_meanwhile"]
    if not started:
        return []
    told = [_starter(entry, names) for entry in started[:_ACCOUNTS]]
    others = started[_ACCOUNTS:]
    if others:
        runs, slots = sum(entry["started"] for entry in others), sum(entry["slots"] for entry in others)
        told.append(f"{plural(runs, 'run')} of {plural(len(others), 'other account')} ({names.slots(slots)})")
    return _wrap(f"meanwhile started: {'; '.join(told)}", "    ")


def _starter(entry: Json, names: Names) -> str:
    text = f"{plural(entry['started'], 'run')} of {entry['account'] or 'an account not in the record'}"
    text += f" ({names.slots(entry['slots'])}"
    low, high = entry["lowest_ratio"], entry["highest_ratio"]
    if low is not None:
        text += f", ratio {ratio(low)}" + (f" to {ratio(high)}" if ratio(low) != ratio(high) else "")
    return text + ")"


# --- a run ---------------------------------------------------------------------------------------------------------
def _run_lines(run: Json, unit: str, names: Names) -> list[str]:
    own = run.get("unit", unit)
    where = f"{replace(names, unit=own).slots(run['slots'])} on {_where(run['nodes'])}"
    verb = "resumed" if run["resumed"] else "started"
    lines = _wrap(f"{verb} as {run['run_id']} with {where}", f"{_at(run['decided_s'], names)}  ")
    lines += _wrap(f"why: {run['fact']}", "  ")
    lines += _made_room(run["made_room"], names)
    if run["started_s"] is not None and run["started_s"] > run["decided_s"]:
        lines.append(f"  ran from {_at(run['started_s'], names)}, {span(run['started_s'] - run['decided_s'])} later")
    for refusal in run["refusals"]:
        what = f"the engine would not {refusal['action']} it ({refusal['why'] or 'no reason given'})"
        lines += _wrap(what, f"{_at(refusal['at_s'], names)}  ")
    return lines + _stop_lines(run, names) + _end_lines(run, own, names)


def _where(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_NODES])
    return shown if len(nodes) <= _NODES else f"{shown} and further nodes"


def _made_room(made: Sequence[Json], names: Names) -> list[str]:
    """Who was stopped for it, by which rule, and at what cost; the runs themselves as far as they fit."""
    if not made:
        return []
    uncharged = sum(bool(each["reason"].get("uncharged")) for each in made)
    lost = sum(each["reason"]["lost"] for each in made) / HOUR
    past = len(made) - uncharged
    rules = f"{uncharged:,} had no minimum, {past:,} {'was past its own' if past == 1 else 'were past theirs'}"
    shown = ", ".join(f"{each['run_id']} of {each['account']}" for each in made[:_ROOM])
    more = f" and {len(made) - _ROOM:,} more" if len(made) > _ROOM else ""
    text = f"made room: {plural(len(made), 'run')} ({rules}; {lost:,.1f} {names.slot}-hours at stake): {shown}{more}"
    return _wrap(text, "  ")


def _stop_lines(run: Json, names: Names) -> list[str]:
    stop = run["stop"]
    if stop is None:
        return []
    protected = run.get("protected_until_s")
    minimum = f" (minimum over since {_at(protected, names)})" if protected is not None and run["min_runtime_s"] else ""
    lines = _wrap(f"told to stop within {span(stop['grace_s'])}{minimum}", f"{_at(stop['at_s'], names)}  ")
    lines += _wrap(f"why: {stop['fact']}", "  ")
    if "beneficiary_started_s" in stop:
        begun = stop["beneficiary_started_s"]
        done = f"started at {_at(begun, names)}" if begun is not None else "had not started by the end of this story"
        lines += _wrap(f"{stop['reason']['beneficiary']}, for whom it was stopped, {done}", "  ")
    return lines


def _end_lines(run: Json, unit: str, names: Names) -> list[str]:
    if run["ended_s"] is None:
        return []
    code = exit_words(run.get("exit_code")) if run["outcome"] == "FAILED" else ""
    text = f"{_ENDS.get(run['outcome'], run['outcome'])}{code} after {span(run.get('ran_s', 0.0))}"
    if run.get("lost_s"):
        hours = f" ({run['lost_slot_h']:,.1f} {slot_word(unit, 1)}-hours)" if _told(run["lost_slot_h"]) else ""
        again = "" if run["outcome"] in _OVER else " and is to be repeated"
        text += f"; {span(run['lost_s'])} of it had not been saved{again}{hours}"
    return _wrap(text, f"{_at(run['ended_s'], names)}  ")


def _told(lost: float) -> bool:
    return lost >= _LEAST_TOLD


def exit_words(code: int | None) -> str:
    """What an exit code says: `` with exit code 137 (ended by SIGKILL)``; nothing where it is not known, or 0."""
    if not code:
        return ""
    return f" with exit code {code}{_meaning(code)}"


def _meaning(code: int) -> str:
    if code in _SHELL:
        return f" ({_SHELL[code]})"
    try:
        return f" (ended by {signal.Signals(code - 128).name})"
    except ValueError:
        return ""


# --- the end -------------------------------------------------------------------------------------------------------
def _conclusion(story: Json, names: Names) -> str:
    totals, state = story["totals"], story["state"]
    where = "" if story.get("live") else " where the record ends"
    ends = {"waiting": f"still waiting{where}", "running": f"still running{where}"}
    last = story["runs"][-1] if story["runs"] else {}
    code = exit_words(last.get("exit_code")) if state == "FAILED" else ""
    text = f"{ends.get(state, _ENDS.get(state, state))}{code}: waited {span(totals['wait_s'])} in all"
    text += f", ran {span(totals['ran_s'])} in {plural(totals['attempts'], 'attempt')}"
    if totals["preemptions"]:
        text += f", was preempted {times_word(totals['preemptions'])}"
    if _told(totals["lost_slot_h"]):
        text += f" and lost {totals['lost_slot_h']:,.1f} {names.slot}-hours of work"
    return f"In short: {text}."


def _wrap(text: str, lead: str) -> list[str]:
    """Lines of at most `_WIDTH` columns; the further ones are indented to where the first began."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    ) or [lead.rstrip()]
