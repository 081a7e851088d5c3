"""From flags, environment and lines of a script to the request of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mirab.cli.batchscript import read_script
from mirab.cli.request import Surroundings, Wish, WishError, exported, gathered, job_request
from mirab.service.forms.jobs import SubmitRequest


def request(
    flags: Mapping[str, str], lines: str = "", environment: Mapping[str, str] | None = None, largest: int = 8
) -> dict[str, Any]:
    script = read_script(f"#!/bin/sh\n{lines}\n")
    around = Surroundings("/home/ann", environment or {}, lambda: largest, lambda text: f"iso {text}")
    wishes = gathered(script, environment or {}, {name: Wish(value, f"--{name}") for name, value in flags.items()})
    return job_request(wishes, around)


def size(flags: Mapping[str, str], lines: str = "", largest: int = 8) -> tuple[int, int, int, int]:
    body = request(flags, lines, largest=largest)
    return tuple(body.get(name, 0) for name in ("nodes", "gpus_per_node", "cpus_per_node", "memory_mib_per_node"))


def test_what_was_not_asked_for_is_left_to_the_service() -> None:
    assert request({}) == {"nodes": 1, "cwd": "/home/ann", "environment": {}}


def test_everything_reaches_the_service_in_its_own_words() -> None:
    flags = {
        "account": "red/a", "job_name": "x", "time": "2:00:00", "min_runtime": "15", "signal": "B:USR1@120",
        "checkpoint": "10m", "checkpoint_file": "ck", "verify_resume": "./check", "restart": "30s", "progress": "30m",
        "output": "o-%j", "error": "e-%j", "open_mode": "append", "chdir": "sub", "dependency": "afterok:3",
        "array": "0-3%2", "hold": "yes", "priority": "5", "label": "sweep", "resume": "no", "gpu_type": "H100,a100",
        "gpus_per_node": "4",
    }  # fmt: skip
    body = request(flags, environment={"A": "1"})
    assert body == {
        "account": "red/a", "name": "x", "time_limit": "7200s", "min_runtime": "900s", "signal": "USR1",
        "grace": "120s", "checkpoint": "600s", "checkpoint_file": "ck", "verify_resume": "./check", "restart": "30s",
        "progress": "1800s", "output": "o-%j", "error": "e-%j", "append": True, "cwd": "/home/ann/sub",
        "dependency": "afterok:3", "array": "0-3%2", "hold": True, "priority": 5, "label": "sweep", "resume": False,
        "gpu_types": ["h100", "a100"], "gpus_per_node": 4, "nodes": 1, "environment": {"A": "1"},
    }  # fmt: skip
    assert SubmitRequest.model_validate(body).nodes == 1


def test_flags_beat_environment_and_that_beats_lines() -> None:
    lines = "#SBATCH -A line\n#SBATCH -t 10"
    assert request({}, lines)["account"] == "line"
    assert request({}, lines, {"SBATCH_ACCOUNT": "env"})["account"] == "env"
    assert request({}, lines, {"SBATCH_ACCOUNT": "env", "MIRAB_ACCOUNT": "own"})["account"] == "own"
    assert request({"account": "flag"}, lines, {"SBATCH_ACCOUNT": "env"})["account"] == "flag"
    assert request({"account": "flag"}, lines)["time_limit"] == "600s"


def test_a_flag_replaces_a_line_that_asked_for_gpus_in_another_way() -> None:
    assert size({"gpus_per_node": "2"}, "#SBATCH --gres=gpu:8") == (1, 2, 0, 0)
    assert size({"gres": "gpu:h100:2"}, "#SBATCH -G 16") == (1, 2, 0, 0)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gpus": "4"}, (1, 4, 0, 0)),
        ({"gpus": "16"}, (2, 8, 0, 0)),
        ({"gpus": "16", "nodes": "4"}, (4, 4, 0, 0)),
        ({"gpus": "16", "gpus_per_node": "4"}, (4, 4, 0, 0)),
        ({"gpus_per_node": "8", "nodes": "3"}, (3, 8, 0, 0)),
        ({"ntasks": "8", "gpus_per_task": "1", "cpus_per_task": "4"}, (1, 8, 32, 0)),
        ({"ntasks": "16", "ntasks_per_node": "8", "gpus_per_task": "1"}, (2, 8, 8, 0)),
        ({"ntasks": "16", "nodes": "2", "gpus_per_task": "1"}, (2, 8, 8, 0)),
        ({"cpus_per_task": "6", "mem_per_cpu": "2G"}, (1, 0, 6, 12288)),
        ({"gpus_per_node": "4", "mem_per_gpu": "64G"}, (1, 4, 0, 262144)),
        ({"mem": "1T"}, (1, 0, 0, 1048576)),
    ],
)
def test_sizes(flags: dict[str, str], expected: tuple[int, int, int, int]) -> None:
    assert size(flags) == expected


def test_the_type_of_gpu_in_an_amount_counts_unless_types_are_named() -> None:
    assert request({"gres": "gpu:H100:2"})["gpu_types"] == ["h100"]
    assert request({"gres": "gpu:h100:2", "gpu_type": "a100,h100"})["gpu_types"] == ["a100", "h100"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"time": "soon"}, "--time: 'soon' is not a time"),
        ({"gpus": "13"}, "--gpus: 13 GPUs do not spread evenly over"),
        ({"gpus": "9", "nodes": "2"}, "--gpus: 9 GPUs do not spread evenly over 2 nodes"),
        ({"gpus": "9", "gpus_per_node": "4", "nodes": "2"}, "--gpus: 9 GPUs in all are not 2 x 4"),
        ({"min_runtime": "unlimited"}, "has no end"),
        ({"open_mode": "x"}, "write append or truncate"),
        ({"priority": "high"}, "not a whole number"),
    ],
)
def test_errors_say_where_it_stood(flags: dict[str, str], message: str) -> None:
    with pytest.raises(WishError) as caught:
        request(flags)
    assert message in str(caught.value)


def test_errors_of_lines_name_the_line() -> None:
    with pytest.raises(WishError, match="line 2: --time: 'soon' is not a time"):
        request({}, "#SBATCH --time=soon")


def test_grace_beats_the_seconds_of_the_signal() -> None:
    body = request({"signal": "USR1", "grace": "2m"})
    assert (body["signal"], body["grace"]) == ("USR1", "120s")


ENVIRONMENT = {"A": "1", "HOME": "/h", "PATH": "/x", "MIRAB_TOKEN": "secret", "BAD": "\udc80"}


class TestExport:
    def test_all(self) -> None:
        assert exported("ALL", ENVIRONMENT) == {"A": "1", "HOME": "/h", "PATH": "/x"}

    def test_none(self) -> None:
        assert exported("NONE", ENVIRONMENT) == {"HOME": "/h", "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def test_names_and_values(self) -> None:
        got = exported("A,B=2,C='x,y',MISSING", ENVIRONMENT)
        assert {name: got[name] for name in ("A", "B", "C")} == {"A": "1", "B": "2", "C": "x,y"}
        assert got["PATH"] != "/x"
        assert "MISSING" not in got

    def test_all_and_more(self) -> None:
        assert exported("ALL,A=9", ENVIRONMENT)["A"] == "9"
        assert exported("ALL,A=9", ENVIRONMENT)["PATH"] == "/x"

    def test_a_token_goes_along_only_where_it_is_named(self) -> None:
        assert "MIRAB_TOKEN" not in exported("ALL", ENVIRONMENT)
        assert exported("MIRAB_TOKEN", ENVIRONMENT)["MIRAB_TOKEN"] == "secret"
