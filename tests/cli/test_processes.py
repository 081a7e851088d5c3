"""The command as a process: interrupted, its reader gone, its standard output data only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.signals import HEARING

MIRAB = [sys.executable, "-m", "mirab"]
SMALL_DISK = ["env", "PYTHONDONTWRITEBYTECODE=1", "prlimit"]
"""With a --fsize, files can only be so large; Python's own, which it would cut short and keep, are not written."""


def test_version_imports_nothing_heavy() -> None:
    """What a person types most should answer at once."""
    heavy = ("rich", "ruamel", "jinja2", "mirab.core", "mirab.sim", "mirab.study", "mirab.logs", "mirab.model")
    code = f"""
import sys
from mirab.cli.main import run
assert run(["--version"]) == 0
assert run([]) == 0
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr.strip() == "[]"


def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen([*MIRAB, "policies", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
        code = process.wait(timeout=180)
    assert told == b""
    assert code == 141


def test_standard_output_is_the_json_alone(log: Path, cluster: Path) -> None:
    words = ["sim", str(log), "--cluster", str(cluster), "--json", "-"]
    said = subprocess.run([*MIRAB, *words], capture_output=True, text=True, check=True)
    report = json.loads(said.stdout)
    assert report["input"]["used"] == 5
    assert report["metrics"]["contract_violations"] == 0
    assert said.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["policies"], ["--help"], ["policies", "--json"]])
def test_a_full_disk_under_standard_output_is_named(words: list[str], unbuffered: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb") as full:
        said = subprocess.run(
            [*MIRAB, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert said.returncode == 1
    assert said.stderr.startswith("mirab: standard output could not be written, the disk is full")
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_disk_takes_only_a_part_of_is_not_called_done(tmp_path: Path, unbuffered: str) -> None:
    words = [*SMALL_DISK, "--fsize=1000", *MIRAB, "policies", "--json"]
    with (tmp_path / "out").open("wb") as out:
        said = subprocess.run(
            words, stdout=out, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert said.returncode == 1
    assert said.stderr.startswith("mirab: standard output could not be written, it is as large as files may be here:")
    assert (tmp_path / "out").stat().st_size == 1_000


def test_a_budget_that_a_full_disk_has_no_room_for_is_named(tmp_path: Path) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text("budgets: {a: {share: 10%}}\n", encoding="utf-8")
    words = [*SMALL_DISK, "--fsize=100", *MIRAB, "budget", "set", str(path), "a=20%", "--reason", "x"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.startswith(f"mirab: {tmp_path / 'budgets.history.jsonl'} could not be written")
    assert path.read_text(encoding="utf-8") == "budgets: {a: {share: 10%}}\n"
    again = subprocess.run([*MIRAB, "budget", "set", str(path), "a=20%", "--reason", "x"], check=False)
    assert again.returncode == 0, "what was cut short is passed over"


def test_a_compiled_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([*MIRAB, "policies"], env=environment, capture_output=True, check=True)
    (compiled,) = (each for each in cache.rglob("policies.*.pyc") if each.parent.name == "cli")
    compiled.write_bytes(compiled.read_bytes()[:100])
    said = subprocess.run([*MIRAB, "policies"], env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    told = said.stderr.strip()
    assert told.startswith("mirab: a file ended too soon (marshal data too short). If the disk was full")
    assert "\n" not in told


def test_closed_streams_are_no_fault(log: Path) -> None:
    closed = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *MIRAB, "sim", str(log)], check=False)
    assert closed.returncode == 0


def test_a_locale_without_unicode_gets_the_same_bytes(log: Path) -> None:
    old = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [*MIRAB, "policies", "--json"], [*MIRAB, "sim", str(log)]
    for each in words:
        said = subprocess.run(each, env=old, capture_output=True, check=False)
        assert (said.returncode, said.stderr) == (0, b"")
        said.stdout.decode("utf-8")


def test_a_log_whose_name_is_no_text(log: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/j\xff.csv"
    os.rename(log, odd)
    said = subprocess.run(
        [*map(os.fsencode, MIRAB), b"sim", odd, b"--json", odd + b".json"], capture_output=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert b"Replay of j?" in said.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_go_it_leaves_quietly_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    subprocess.run([*MIRAB, "synth", "--nodes", "64", "--days", "60", "--out", "in"], cwd=tmp_path, check=True)
    (tmp_path / "out").mkdir()
    words = ["sim", "in/workloads.csv.gz", "--cluster", "in/cluster.yaml", "--journal", "out/record.jsonl"]
    with subprocess.Popen(
        [*HEARING, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 180
        while not list((tmp_path / "out").iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err.strip()) == (128 + number, "", "")
    assert list((tmp_path / "out").iterdir()) == []
