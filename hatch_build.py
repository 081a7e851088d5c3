"""The compiled wheel: the core and the measures as extension modules, made by mypyc from the files of the plain wheel.

Only on demand: ``HATCH_BUILD_HOOKS_ENABLE=1 pip wheel .`` (docs/howto/compiled.md). It works on a copy, so the checkout
stays plain Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LAYERS = ("model", "core", "control", "sim", "study")
COMPILED = (
    "core/*.py",
    "control/cycle.py",
    "sim/agenda.py",
    "sim/attempts.py",
    "sim/backend.py",
    "sim/engine.py",
    "sim/hardware.py",
    "study/contract_audit.py",
    "study/demand.py",
    "study/ledger.py",
    "study/measures.py",
    "study/owed.py",
    "study/pools.py",
    "study/pyramid.py",
    "study/repairs.py",
    "study/series.py",
    "study/starvation.py",
    "study/subjects.py",
    "study/waits.py",
    "study/whereabouts.py",
)
"""All that is called for every fact, decision or workload of a replay."""


class Compiled(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the extension modules to the wheel, which is then one for this platform and Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile.

        Raises:
            RuntimeError: mypyc or the C compiler failed; the message has what they said.
        """
        if version == "editable":
            return
        self._folder = Path(mkdtemp(prefix="mirab-compiled-"))
        made = compiled(Path(self.root) / "src" / "mirab", self._folder)
        build_data["force_include"] |= {str(path): str(path.relative_to(self._folder)) for path in made}
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: nothing of the copy stays."""
        if version != "editable":
            shutil.rmtree(self._folder)


def compiled(package: Path, folder: Path) -> list[Path]:
    """The extension modules, made in a copy of the package under `folder`."""
    copy = folder / package.name
    copy.mkdir()
    shutil.copy(package / "__init__.py", copy)
    for layer in LAYERS:
        shutil.copytree(package / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    sources = sorted(str(path.relative_to(folder)) for pattern in COMPILED for path in copy.glob(pattern))
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\nexplicit_package_bases = True\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *sources],
        cwd=folder,
        env=os.environ | {"MYPYC_OPT_LEVEL": "3", "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"mypyc could not compile these modules:\n{done.stdout}{done.stderr}")
    shutil.rmtree(folder / "build")
    return sorted(folder.rglob("*.so"))
