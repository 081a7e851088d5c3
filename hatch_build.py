"""The compiled wheel: model, core and measures as extension modules, made by mypyc from the files of the plain wheel.

``MIRAB_COMPILED`` decides: ``auto`` (where there is a C compiler, the default), ``1`` (or fail) or ``0`` (plain). It
works on a copy, so the checkout stays plain Python, and so does an editable install (docs/howto/compiled.md).
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LAYERS = ("model", "core", "control", "sim", "study")
COMPILED = (
    "model/events.py",
    "model/plans.py",
    "model/policy.py",
    "model/reasons.py",
    "model/records.py",
    "model/resources.py",
    "model/workloads.py",
    "core/*.py",
    "control/cycle.py",
    "sim/agenda.py",
    "sim/attempts.py",
    "sim/backend.py",
    "sim/engine.py",
    "sim/hardware.py",
    "study/causes.py",
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

SETTING = "MIRAB_COMPILED"


class Compiled(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the extension modules to the wheel, which is then one for this platform and Python."""

    def dependencies(self) -> list[str]:
        """What is installed beside hatchling to build."""
        return ["mypy[mypyc]>=1.14"] if is_wanted(os.environ.get(SETTING, "auto")) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; where nobody insists, what cannot be compiled stays plain.

        Raises:
            RuntimeError: mypyc or the C compiler failed, and they were asked for; the message has what they said.
        """
        self._folder = Path(mkdtemp(prefix="mirab-compiled-"))
        setting = os.environ.get(SETTING, "auto")
        if version == "editable" or not is_wanted(setting):
            return
        try:
            made = compiled(Path(self.root) / "src" / "mirab", self._folder)
        except RuntimeError as error:
            if setting != "auto":
                shutil.rmtree(self._folder)
                raise
            self.app.display_warning(f"mirab is installed as plain Python, which is slower: {error}")
            return
        build_data["force_include"] |= {str(path): str(path.relative_to(self._folder)) for path in made}
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: nothing of the copy stays."""
        shutil.rmtree(self._folder, ignore_errors=True)


def is_wanted(setting: str) -> bool:
    """Whether to compile: by the setting, or because this machine can.

    Raises:
        ValueError: the setting is none of ``auto``, ``1`` and ``0``.
    """
    if setting not in ("auto", "0", "1"):
        raise ValueError(f"{SETTING} is {setting!r}: say auto, 1 (compile, or fail) or 0 (plain Python)")
    return setting == "1" or (setting == "auto" and can_compile())


def can_compile() -> bool:
    """Whether a C compiler (`CC`, else the one that built this Python) is here, and Python's headers are."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and (Path(sysconfig.get_path("include")) / "Python.h").exists()


def compiled(package: Path, folder: Path) -> list[Path]:
    """The extension modules, made in a copy of the package under `folder`."""
    copy = folder / package.name
    copy.mkdir()
    shutil.copy(package / "__init__.py", copy)
    for layer in LAYERS:
        shutil.copytree(package / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    sources = sorted(str(path.relative_to(folder)) for pattern in COMPILED for path in copy.glob(pattern))
    for path in [folder / each for each in sources]:
        path.write_text(with_native_values(path.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\nexplicit_package_bases = True\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *sources],
        cwd=folder,
        env=os.environ
        | {
            "CFLAGS": f"{os.environ.get('CFLAGS', '')} -Wno-all -w",  # looking for what to warn of takes half the time
            "MYPYC_OPT_LEVEL": "3",
            "MYPYC_DEBUG_LEVEL": "0",
            "MYPYPATH": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"mypyc could not compile these modules:\n{done.stdout}{done.stderr}")
    shutil.rmtree(folder / "build")
    return sorted(folder.rglob("*.so"))


VALUE = "dataclass(frozen=True, slots=True)"
"""How the source says that a class is a value: the classes that are written out."""

DESCRIBE = [
    "from dataclasses import fields as _fields, is_dataclass as _is_dataclass",
    "def _describe(kind: type, meaning: str, fields: str) -> None:",
    "    types = dict([line.split(': ', 1) for line in fields.splitlines()])",
    "    kind.__doc__ = meaning",
    "    kind.__annotations__ = types",
    "    for each in _fields(kind) if _is_dataclass(kind) else ():",
    "        each.type = types[each.name]",
]
"""mypyc drops what a class says of itself beside its values: its docstring and the types of its fields."""


def with_native_values(source: str) -> str:
    """The same module with frozen dataclasses written out.

    A frozen dataclass sets each field by a call of ``object.__setattr__``, and pickling sets them from outside, which
    compiled classes refuse. Written out, a value is made in a tenth of the time. That nobody sets a field later is what
    mypy sees to, in the source.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    for kind in reversed([each for each in tree.body if isinstance(each, ast.ClassDef)]):
        fields = {ast.unparse(each.target): each for each in kind.body if isinstance(each, ast.AnnAssign)}
        marks = [mark.lineno for mark in kind.decorator_list if ast.unparse(mark) == VALUE]
        if marks or "NamedTuple" in map(ast.unparse, kind.bases):
            lines[kind.end_lineno : kind.end_lineno] = [_described(kind, fields)]
        if marks:
            lines[kind.end_lineno : kind.end_lineno] = _written_out(kind, fields)
            lines[marks[0] - 1] = "@dataclass(init=False, eq=False)"
    if len(lines) != len(source.splitlines()):
        after = max(each.end_lineno or 0 for each in tree.body if isinstance(each, ast.ImportFrom))
        lines[after:after] = DESCRIBE
    return "\n".join(lines) + "\n"


def _described(kind: ast.ClassDef, fields: dict[str, ast.AnnAssign]) -> str:
    types = "\n".join(f"{name}: {ast.unparse(each.annotation)}" for name, each in fields.items())
    return f"_describe({kind.name}, {ast.get_docstring(kind, clean=False) or ''!r}, {types!r})"


def _written_out(value: ast.ClassDef, fields: dict[str, ast.AnnAssign]) -> list[str]:
    """The lines that end the class: its methods."""
    checked = any(isinstance(each, ast.FunctionDef) and each.name == "__post_init__" for each in value.body)
    held = "".join(f"self.{name}, " for name in fields)
    return [
        f"    def __init__({', '.join(['self', *map(ast.unparse, fields.values())])}) -> None:",
        *(f"        self.{name} = {name}" for name in fields),
        *(["        self.__post_init__()"] if checked else []),
        "    def __eq__(self, other: object) -> bool:",
        f"        if not isinstance(other, {value.name}):",
        "            return NotImplemented",
        f"        return {' and '.join(f'self.{name} == other.{name}' for name in fields)}",
        "    def __hash__(self) -> int:",
        f"        return hash(({held}))",
        "    def __reduce__(self) -> tuple[object, ...]:",
        f"        return {value.name}, ({held})",
    ]
