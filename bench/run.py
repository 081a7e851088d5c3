"""All benches, one after the other: quality, speed, beside AccaSim, gaming.

    python -m bench.run [--shared DIR] [--only quality,speed,beside,gaming] [--json FILE] [--markdown FOLDER]

Numbers depend on the machine and are compared with targets in the tables, never asserted. Each bench is also a command
of its own: `python -m bench.speed --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import beside, gaming, quality, speed
from bench.adversaries import ADVERSARIES
from bench.effects import as_json
from bench.inputs import shared_data
from bench.tables import markdown
from mirab.core import decide

Result = tuple[str, dict[str, str], Any]
"""Text for people, Markdown tables by name, and a value for --json."""


def _quality(shared: Path) -> Result:
    reports = quality.measure(shared, (1, 2, 3), jobs=2)
    metrics = {f"{log}/{policy}": report["metrics"] for (log, policy), report in reports.items()}
    tables = {
        "quality": markdown(quality.quality_rows(reports)),
        "policies": markdown(quality.policy_rows(reports)),
    }
    return quality.text(reports), tables, metrics


def _speed(shared: Path) -> Result:
    rows = [row for bench in speed.BENCHES.values() for row in bench(3)]
    return speed.text(rows), {"speed": speed.markdown(rows)}, [asdict(row) for row in rows]


def _beside(shared: Path) -> Result:
    rows = beside.measure(10_000, 600)
    return beside.text(rows), {"beside": beside.markdown(rows)}, [asdict(row) for row in rows]


def _gaming(shared: Path) -> Result:
    reference = shared / "reference"
    spec = str(reference) if (reference / "workloads.csv.gz").exists() else "synth:seed=1"
    names = [each.name for each in ADVERSARIES]
    effects = gaming.measure(gaming.Setting(spec), gaming.ACCOUNTS, names)
    return gaming.text(effects, names), {"gaming": gaming.table(effects, names)}, as_json(effects)


BENCHES: dict[str, Callable[[Path], Result]] = {
    "quality": _quality,
    "speed": _speed,
    "beside": _beside,
    "gaming": _gaming,
}


def machine() -> str:
    core = "plain core" if str(decide.__file__).endswith(".py") else "compiled core"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, {python}, {core}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=shared_data(), help="folder with reference/ and philly/")
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="write each table there as NAME.md")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench {unknown[0]!r}: there are {', '.join(BENCHES)}")
    values: dict[str, Any] = {"machine": machine()}
    print(machine())
    for name in names:
        began = time.perf_counter()
        shown, tables, values[name] = BENCHES[name](options.shared.resolve())
        print(f"\n== {name} ({time.perf_counter() - began:.0f} s)\n\n{shown}", flush=True)
        for table, lines in tables.items():
            if options.markdown:
                options.markdown.mkdir(parents=True, exist_ok=True)
                (options.markdown / f"{table}.md").write_text(lines + "\n")
    if options.json:
        options.json.write_text(json.dumps(values, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
