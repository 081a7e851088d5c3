"""The answer to a what-if as text, and the sentences that its page shares with it."""

from __future__ import annotations

from mirab.study import formats
from mirab.study.budgetedits import term_word
from mirab.study.catalogue import account_name
from mirab.study.formats import ABSENT, plural, slot_word, span
from mirab.study.reportparts import scene
from mirab.study.resampling import FEWEST_DAYS
from mirab.study.tables import Section, Table
from mirab.study.whatif import ALL, ASPECTS, Aspect, Json

_ROWS = 24
_FEW = 4
WORDS = {
    "gains": "gains", "loses": "loses", "both": "gains and loses", "noise": "noise", "same": "no change",
    "unknown": "cannot tell",
}  # fmt: skip
"""Verdicts of accounts as people read them."""
BY_KEY = {aspect.key: aspect for aspect in ASPECTS}


def whatif_sections(found: Json) -> list[Section]:
    """The parts of the text, for `tables.plain` or `tables.draw`."""
    return [
        Section(title(found), notes=[*lede(found), *scene(found["reports"]["present"]), *found["notes"]]),
        *_changes(found),
        *_exceptions(found),
        _owed_section(found),
        _used_section(found),
        _waits_section(found),
        Section("How far to trust it", notes=[method(found)]),
    ]


def title(found: Json) -> str:
    what = "these exceptions" if found["exceptions"] else "the proposal"
    return f"What if: {what} on {found['log']}"


# --- the result in sentences ------------------------------------------------------------------------------------------
def lede(found: Json) -> list[str]:
    """Who gains, who loses, and what it does to the whole."""
    if not found["method"]["enough"]:
        days = plural(found["method"]["days"], "day")
        return [
            f"The log has {days}: too few to tell a difference from luck, which takes {FEWEST_DAYS}. The numbers stand "
            "below without a verdict."
        ]
    told = [_named(found, word) for word in ("gains", "loses", "both")]
    quiet = sum(row["verdict"] in ("noise", "same") for row in rows(found))
    sentences = [sentence for sentence in told if sentence] or ["Nobody gains or loses more than luck explains."]
    if quiet and any(told):
        sentences.append(f"For {plural(quiet, 'account')} all differences are within noise.")
    return [" ".join([*sentences, _whole(found)])]


def _named(found: Json, verdict: str) -> str:
    named = [row for row in rows(found) if row["verdict"] == verdict]
    if not named:
        return ""
    shown = [f"{account_name(row['account'])} ({_reason(row, found)})" for row in named[:_FEW]]
    more = f" and {len(named) - _FEW} more" if len(named) > _FEW else ""
    verb = {"gains": "gain", "loses": "lose", "both": "gain and lose"}[verdict]
    verb = verb if len(named) > 1 else {"gains": "gains", "loses": "loses", "both": "gains and loses"}[verdict]
    return f"{plural(len(named), 'account')} {verb}: {', '.join(shown)}{more}."


def _reason(row: Json, found: Json) -> str:
    """The numbers of a row that are beyond noise."""
    moved = [aspect for aspect in ASPECTS if row[aspect.key]["verdict"] in ("better", "worse")]
    return ", ".join(f"{aspect.name} {difference(aspect, row, found['unit'])}" for aspect in moved[:2])


def _whole(found: Json) -> str:
    row = found["all"]
    moved = [aspect for aspect in ASPECTS if row[aspect.key]["verdict"] in ("better", "worse")]
    if not moved:
        return "For the cluster as a whole nothing changes beyond noise."
    return f"For the cluster as a whole: {_reason(row, found)}."


def method(found: Json) -> str:
    told = found["method"]
    if not told["enough"]:
        return f"Nothing was resampled: that takes {FEWEST_DAYS} days of log."
    return (
        f"The spread (±) is how far a difference may come from luck. The {plural(told['days'], 'day')} of the log were "
        f"drawn again {told['draws']} times, in blocks of {plural(told['block_days'], 'day')}, the same days for both; "
        "a difference within its spread is called noise. Of what is called a gain or a loss, one in "
        f"{round(1 / told['luck'])} is expected to be luck, at most. What lies "
        "beyond this log, such as teams who ask for more because they get more, no replay can know."
    )


# --- rows and cells ---------------------------------------------------------------------------------------------------
def rows(found: Json) -> list[Json]:
    """The accounts that had work or a share, those that are owed most first."""
    busy = [row for row in found["accounts"] if _busy(row)]
    return sorted(busy, key=lambda row: (-max(row["owed"].values()), row["account"]))


def _busy(row: Json) -> bool:
    real = not row["account"].endswith("/*") and max(row["share"].values()) > 0
    return bool(real or max(row["workloads"].values()) or max(row["owed"].values()))


def written(aspect: Aspect, value: float | None) -> str:
    if aspect.kind == "span":
        return span(value)
    return formats.percent(value) if aspect.kind == "ratio" else formats.hours(value)


def difference(aspect: Aspect, row: Json, unit: str = "gpu") -> str:
    """A difference with its spread: ``+1,200 ±300 GPU-h``; ``=`` where there is none."""
    told = row[aspect.key]
    if told["difference"] is None:
        return ABSENT
    if told["verdict"] == "same":
        return "="
    if aspect.kind == "span":
        text, spread = formats.signed_span(told["difference"]), span(told["spread"])
    elif aspect.kind == "ratio":
        text = formats.points(told["difference"])
        spread = ABSENT if told["spread"] is None else f"{told['spread'] * 100:.1f} pt"
    else:
        text, spread = formats.signed_count(told["difference"]), formats.count(told["spread"])
    hours = f" {slot_word(unit, 1)}-h" if aspect.kind == "hours" and unit else ""
    return f"{text}{hours}" if told["spread"] is None else f"{text} ±{spread}{hours}"


def arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def share_cell(row: Json) -> str:
    before, after = (f"{value * 100:.3g}" for value in row["share"].values())
    return f"{arrow(before, after)} %"


def word(row: Json) -> str:
    return WORDS[row["verdict"]]


# --- sections ---------------------------------------------------------------------------------------------------------
def _changes(found: Json) -> list[Section]:
    lines = [
        (each["account"], term_word(each["term"]), _value(each["before"]), _value(each["after"]))
        for each in found["changes"]
    ]
    lines += [("policy", each["setting"], _value(each["before"]), _value(each["after"])) for each in found["policy"]]
    if not lines:
        return []
    return [Section("What differs", Table(("account", "term", "present", "proposed"), lines))]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ABSENT if value in (None, "") else str(value)


def _exceptions(found: Json) -> list[Section]:
    return [_exception_section(each, found) for each in found["exceptions"]]


def _exception_section(tried: Json, found: Json) -> Section:
    lines = [(account_name(each["account"]), *cost_cells(each), WORDS[each["verdict"]]) for each in tried["cost"]]
    notes = [exception_told(tried, found), cost_told(tried, found)]
    return Section(f"{tried['id']}: {tried['kind']} for {tried['account']}", Table(cost_heads(found), lines), notes)


def cost_heads(found: Json) -> tuple[str, ...]:
    unit = slot_word(found["unit"], 1)
    return ("who pays", f"used while it lasts, {unit}-h", "used, whole log", "delivered", "")


def cost_cells(each: Json) -> tuple[str, ...]:
    """Differences of one who pays."""
    return tuple(formats.signed_count(each[key]) for key in ("during", "used", "delivered"))


def exception_told(tried: Json, found: Json) -> str:
    """Who asks for it, who approves, and what it sets aside."""
    sets, donor = tried["unit_hours"], tried.get("donor")
    source = "" if tried["kind"] != "extra-share" else f", taken from {donor or 'what is promised to nobody'}"
    unit = slot_word(found["unit"], 1)
    aside = "" if sets is None else f"; it sets aside {formats.hours(sets)} {unit}-h in this log{source}"
    where = f" Tried on this log {tried['placed']}." if tried["placed"] else ""
    others = len(found["exceptions"]) - 1
    together = "" if not others else f" Tried together with {plural(others, 'other')}: what it costs is what all cost."
    return (
        f"Asked by {tried['owner']}, to be approved by {tried['approver']}: {tried['reason']}{aside}.{where}{together}"
    )


def cost_told(tried: Json, found: Json) -> str:
    unit = slot_word(found["unit"], 1)
    sure = [each for each in tried["cost"] if each["verdict"] in ("loses", "both")]
    if not found["method"]["enough"]:
        return "What of this is luck cannot be told from so short a log."
    if not sure:
        return "What others lose is within noise."
    total = sum(min(each["used"], each["delivered"]) for each in sure)
    names = ", ".join(account_name(each["account"]) for each in sure)
    return f"Beyond noise it costs {formats.count(-total)} {unit}-h, from {names}."


def _owed_section(found: Json) -> Section:
    unit = slot_word(found["unit"], 1)
    table = [
        (_name(row), share_cell(row), arrow(*(formats.hours(value) for value in row["owed"].values())),
         *_moved("delivered", row))
        for row in _shown(found)
    ]  # fmt: skip
    notes = [
        f"{unit}-h of the whole log, present → proposed. Owed: what the share promises and the account asks for. "
        "Delivered: what it got of that, judged at each midnight over the window. Differences within noise are in "
        "brackets."
    ]
    columns = ("account", "share", "owed", "delivered", "difference")
    return Section("Owed and delivered, by account", Table(columns, table), [*notes, *_left_out(found)])


def _used_section(found: Json) -> Section:
    unit = slot_word(found["unit"], 1)
    table = [(_name(row), *_moved("used", row), *_moved("lost", row)) for row in _shown(found)]
    notes = [f"{unit}-h. Used: all that ran, charged or not. Lost: computed again after preemption, with restarts."]
    columns = ("account", "used", "difference", "lost", "difference")
    return Section("Used and lost, by account", Table(columns, table), notes)


def _waits_section(found: Json) -> Section:
    median = BY_KEY["wait_p50_s"]
    table = [
        (_name(row), arrow(*(written(median, row["wait_p50_s"][when]) for when in ("before", "after"))),
         *_moved("wait_p90_s", row), word(row))
        for row in _shown(found)
    ]  # fmt: skip
    columns = ("account", "median wait", "p90 wait", "difference", "all in all")
    return Section("Waits to the first start, by account", Table(columns, table))


def _moved(key: str, row: Json) -> tuple[str, str]:
    """A number before and after, and the difference."""
    aspect = BY_KEY[key]
    return arrow(written(aspect, row[key]["before"]), written(aspect, row[key]["after"])), _marked(aspect, row)


def _marked(aspect: Aspect, row: Json) -> str:
    text = difference(aspect, row, "")
    return f"({text})" if row[aspect.key]["verdict"] == "noise" else text


def _shown(found: Json) -> list[Json]:
    """All accounts together, then those that are owed most and those for whom something changes."""
    busy = rows(found)
    kept = [row for place, row in enumerate(busy) if place < _ROWS or row["verdict"] in ("gains", "loses", "both")]
    return [found["all"], *kept]


def _left_out(found: Json) -> list[str]:
    left = len(rows(found)) - len(_shown(found)) + 1
    return (
        [f"{plural(left, 'account')} that are owed less, without a change beyond noise, are in the JSON."]
        if left
        else []
    )


def _name(row: Json) -> str:
    return "all accounts" if row["account"] == ALL else account_name(row["account"])
