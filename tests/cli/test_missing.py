"""A library that is not there is a matter of the installation: named, with the command that mends it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mirab
from mirab.cli.exits import report
from mirab.cli.missing import PACKAGES, told

SOURCE = Path(mirab.__file__).parents[1]


def without(tmp_path: Path, *words: str, libraries: bool) -> subprocess.CompletedProcess[str]:
    """`python -m mirab` by a Python that has no library but click, or none at all."""
    (tmp_path / "lib").mkdir()
    if libraries:
        (tmp_path / "lib" / "click").symlink_to(Path(click.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path / 'lib'}", "HOME": str(tmp_path)}
    command = [sys.executable, "-S", "-m", "mirab", *words]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)


def test_the_libraries_that_are_named_are_those_that_are_needed() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    listed = re.search(r"^dependencies = \[(.*?)^\]", project.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert set(re.findall(r'"([\w.-]+)', listed[1])) == set(PACKAGES.values())


def test_a_replay_without_its_libraries_names_them_and_the_command(tmp_path: Path, log: Path, cluster: Path) -> None:
    said = without(tmp_path, "sim", str(log), "--cluster", str(cluster), libraries=True)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("mirab: the libraries ")
    assert "ruamel.yaml" in said.stderr and "click" not in said.stderr
    assert f"{sys.executable} -m pip install " in said.stderr
    assert "fault" not in said.stderr and len(said.stderr.splitlines()) == 1


def test_without_any_library_it_is_a_sentence_too(tmp_path: Path) -> None:
    said = without(tmp_path, "--version", libraries=False)
    assert said.returncode == 1
    assert said.stderr.startswith("mirab: the libraries ") and " click " in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_the_doctor_tells_all_that_lacks(tmp_path: Path) -> None:
    said = without(tmp_path, "doctor", libraries=True)
    assert said.returncode == 1
    assert "LACK  ruamel.yaml     not installed: " in said.stdout
    assert "LACK  machine         not looked at, as " in said.stdout


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ModuleNotFoundError("no", name="psycopg"), "the library psycopg, which mirab needs, is not installed"),
        (ModuleNotFoundError("no", name="_sqlite3"), "lacks _sqlite3, which is a part of Python"),
        (ModuleNotFoundError("no", name="mirab.core.plan"), "there is no mirab.core.plan. Install mirab again: "),
        (ImportError("no name x", name="rich.table"), "the library rich is not one that mirab can use (no name x)"),
    ],
)
def test_what_is_missing(error: ImportError, sentence: str) -> None:
    assert sentence in str(told(error))


def test_a_name_that_mirab_lacks_in_itself_is_its_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ImportError("cannot import name 'x'", name="mirab.study.words")) == 1
    assert "a fault in mirab itself (ImportError: cannot import name 'x')" in capsys.readouterr().err
