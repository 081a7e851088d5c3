"""Days and reports made up, so that a comparison can be tested without a replay."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from typing import Any

from mirab.study.days import AccountDays, Days
from mirab.study.whatif import Side
from tests.study_page.made_up import report

ACCOUNTS = ("lab/red", "lab/blue", "lab/green", "lab/grey", "lab/pink", "lab/gold")
WINDOW = 7


def account_days(count: int, seed: int, *, more: float = 0.0, slower: float = 1.0, lost: float = 3.0) -> AccountDays:
    """Days of about 100 GPU-h owed and 95 got; `more` GPU-h got each day, waits `slower` times as long."""
    rng = random.Random(seed)
    owed = [100 + rng.gauss(0, 4) + more for _ in range(count)]
    charged = [95 + rng.gauss(0, 4) + more for _ in range(count)]
    used = [each + 10 + rng.gauss(0, 3) for each in charged]
    waits = [array("q", [round(1000 * slower * rng.expovariate(1 / 900)) for _ in range(30)]) for _ in range(count)]
    return AccountDays(owed, charged, used, [lost + rng.random() for _ in range(count)], waits).judge(WINDOW)


def side(count: int = 30, seed: int = 1, accounts: Sequence[str] = ACCOUNTS, **changed: dict[str, float]) -> Side:
    """A replay with days of that seed; `changed`: the last name of an account -> what is other with it."""
    days = Days(count, WINDOW)
    for number, path in enumerate(accounts):
        days.accounts[path] = account_days(count, seed * 100 + number, **changed.get(path.rpartition("/")[2], {}))
    told: dict[str, Any] = report("budget", accounts)
    return Side(told, days)
