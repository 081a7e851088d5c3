"""What a log says about the parameters, as text."""

from __future__ import annotations

from collections.abc import Iterator

from mirab.study.advise import Json
from mirab.study.catalogue import account_name
from mirab.study.formats import ABSENT, percent, span
from mirab.study.tables import Section, Table

_ROWS = 20


def advice_sections(found: Json) -> list[Section]:
    """The parts of the text, for `tables.plain` or `tables.draw`."""
    return [
        Section(f"What {found['log']} says, replayed under {found['policy']}",
                notes=["Suggestions with their evidence, from one replay. Nothing is applied."]),
        *_suggestions(found), _teams(found), _idle(found), _holders(found), *_recovery(found), *_checkpoints(found),
    ]  # fmt: skip


def _suggestions(found: Json) -> Iterator[Section]:
    rows = [(each["about"], each["present"], each["suggested"] if each["suggested"] != each["present"] else "stays")
            for each in found["suggestions"]]  # fmt: skip
    notes = [f"{each['about']}: {each['because']}." for each in found["suggestions"]]
    changed = [each for each in found["suggestions"] if each["setting"] and each["suggested"] != each["present"]]
    if changed:
        settings = " ".join(f"--set {each['setting']}={each['suggested']}" for each in changed)
        notes.append(f"Try it before you believe it: mirab whatif --log LOG {settings}")
    yield Section("Suggested", Table(("", "present", "suggested"), rows), notes)


def _teams(found: Json) -> Section:
    priced = found["price"] is not None
    columns = ["account", "share", "used", "of all", "lost", *(["cost", "of it lost"] if priced else [])]
    rows = []
    for each in sorted(found["teams"], key=lambda each: (-each["used_h"], each["account"]))[:_ROWS]:
        cost = [f"{each['cost']:,.0f}", f"{each['lost_cost']:,.0f}"] if priced else []
        rows.append([account_name(each["account"]), percent(each["share"]), f"{each['used_h']:,.0f}",
                     percent(each["part"]), f"{each['lost_h']:,.1f}", *cost])  # fmt: skip
    notes = ["Used and lost in GPU-h" + (f"; a GPU-hour at {found['price']:g}." if priced else ".")]
    if len(found["teams"]) > _ROWS:
        notes.append(f"{len(found['teams']) - _ROWS} more accounts are in the JSON.")
    return Section("What each team used" + (", and what it costs" if priced else ""), Table(columns, rows), notes)


def _idle(found: Json) -> Section:
    idle = found["idle"]
    rows = [
        ("idle", f"{idle['idle_gpu_h']:,.0f}", f"{idle['idle_gpus']:,.1f}"),
        ("  while somebody wanted them", f"{idle['idle_while_wanted_gpu_h']:,.0f}", ""),
        ("  kept empty for a gang", f"{idle['held_idle_gpu_h']:,.0f}", ""),
        ("held by sessions", f"{idle['session_gpu_h']:,.0f}", f"{idle['session_gpus']:,.1f}"),
    ]
    notes = ["Whether those who hold GPUs use them a log does not say: `mirab squatters` does, of a live service."]
    return Section("GPUs that do nothing, or may", Table(("", "GPU-h", "GPUs on average"), rows), notes)


def _holders(found: Json) -> Section:
    rows = [(each["class"], f"{each['workloads']:,}", f"{each['unfinished']:,}", f"{each['gpu_h']:,.0f}",
             f"{each['unfinished_gpu_h']:,.0f}") for each in found["holders"]]  # fmt: skip
    notes = ["Unfinished: it ran into its time limit, so that nobody knows whether it was done."]
    columns = ("class", "workloads", "unfinished", "GPU-h", "of unfinished")
    return Section("Which classes hold GPUs without finishing", Table(columns, rows), notes)


def _recovery(found: Json) -> Iterator[Section]:
    rows = [(account_name(each["account"]), f"{each['recovers_h']:,.0f}", f"{each['begins_anew_h']:,.0f}",
             f"{each['is_lost_h']:,.0f}", each["largest"][0]["id"] if each["largest"] else ABSENT)
            for each in found["recovery"][:_ROWS]]  # fmt: skip
    columns = ("account", "recovers", "begins anew", "is lost", "largest without")
    notes = ["GPU-h of work that, when stopped, goes on from a checkpoint; begins anew; does not come back at all."]
    yield Section("What a stop would cost", Table(columns, rows), notes)


def _checkpoints(found: Json) -> Iterator[Section]:
    if not found["checkpoints"]:
        return
    rows = [(each["class"], f"{each['preemptions'] + each['node_failures']:,}", span(each["between_stops_s"]),
             ABSENT if each["present_s"] is None else span(each["present_s"]), span(each["young_s"]),
             span(each["daly_s"])) for each in found["checkpoints"]]  # fmt: skip
    columns = ("class", "stops", "between", "present", "Young", "Daly")
    notes = [
        "Running time between two stops, and the interval between checkpoints: the median of those who have one, and "
        f"the best if a checkpoint costs {span(found['checkpoint_cost_s'])} (--checkpoint-cost)."
    ]
    yield Section("How often to checkpoint", Table(columns, rows), notes)
