"""Run AccaSim on a SWF log. Started with the Python of AccaSim's own environment; imports nothing of mirab.

    python accasim_run.py LOG.swf SYSTEM.json fifo|easy SECONDS OUTFOLDER

Prints one line of JSON: the jobs dispatched and the seconds of the simulation itself. After SECONDS it stops.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from accasim.base.allocator_class import FirstFit  # type: ignore[import-not-found,unused-ignore]
from accasim.base.scheduler_class import (  # type: ignore[import-not-found,unused-ignore]
    EASYBackfilling,
    FirstInFirstOut,
)
from accasim.base.simulator_class import Simulator  # type: ignore[import-not-found,unused-ignore]


def main() -> None:
    log, system, dispatcher, seconds, folder = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    kind = {"fifo": FirstInFirstOut, "easy": EASYBackfilling}[dispatcher]
    simulator = Simulator(
        log,
        system,
        kind(FirstFit()),
        scheduling_output=False,
        statistics_output=False,
        show_statistics=False,
        timeout=int(seconds),
        RESULTS_FOLDER_PATH=folder,
    )
    began = time.perf_counter()
    simulator.start_simulation()
    took = time.perf_counter() - began
    print(json.dumps({"dispatched": simulator.dispatched_jobs, "loaded": simulator.loaded_jobs, "seconds": took}))


if __name__ == "__main__":
    main()
