"""`mirab` whose service kills itself at the worst instants, for `bench.torture`.

    MIRAB_CRASH=0.05 python -m bench.crashing serve ...

With that probability it gets SIGKILL right after a record with actions was written and before any of them was applied,
and with half of it right before. The program itself has no such hook: this wraps the journal port from outside.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from random import Random

from mirab.cli.main import main
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.service import loop


def crash_around_records(probability: float) -> None:
    plain = loop.Ledger.append
    chance = Random(os.getpid())

    def append(self: loop.Ledger, facts: Sequence[Event], plan: Plan) -> None:
        if facts and chance.random() < probability / 2:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, facts, plan)
        if plan.actions and chance.random() < probability:
            os.kill(os.getpid(), signal.SIGKILL)

    loop.Ledger.append = append  # type: ignore[method-assign]


if __name__ == "__main__":
    crash_around_records(float(os.environ.get("MIRAB_CRASH", "0")))
    main()
