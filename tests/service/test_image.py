"""The Dockerfile, without an engine: each instruction names what there is, and what can be tried of it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest

from mirab.service.config import SETTINGS, load_config

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROUTINE = ("python", "apt-get", "rm", "useradd", "/opt/mirab/bin/pip")
"""Commands of the base image, and those that an instruction before has made."""


def instructions() -> list[list[tuple[str, str]]]:
    """Keyword and text of each, by stage."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    stages: list[list[tuple[str, str]]] = []
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            stages.append([])
        if keyword:
            stages[-1].append((keyword, rest.strip()))
    return stages


BUILD, IMAGE = instructions()


def of(stage: list[tuple[str, str]], keyword: str) -> list[str]:
    return [text for word, text in stage if word == keyword]


def copied() -> list[str]:
    """What the first stage takes from the checkout."""
    return [name for text in of(BUILD, "COPY") for name in text.split()[:-1]]


def environment() -> dict[str, str]:
    (text,) = of(IMAGE, "ENV")
    return dict(pair.split("=", 1) for pair in text.split())


def served() -> list[str]:
    """The words behind `mirab serve`."""
    (entry,) = of(IMAGE, "ENTRYPOINT")
    words: list[str] = json.loads(entry)
    assert words[:4] == ["tini", "--", "mirab", "serve"], "behind a reaper"
    return words[4:]


def probe() -> list[str]:
    """What the health check executes."""
    (text,) = of(IMAGE, "HEALTHCHECK")
    words: list[str] = json.loads(text[text.index("CMD") + 3 :])
    return words


def test_it_takes_what_there_is_and_the_context_lets_it_through() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in let_in, "neither history nor environment is sent to the engine"
    for name in copied():
        assert (ROOT / name).exists(), name
        assert f"!{name}" in let_in, name


def test_its_python_is_one_that_we_name() -> None:
    bases = [of(stage, "FROM")[0].split()[0] for stage in (BUILD, IMAGE)]
    version = bases[0].removeprefix("python:")
    assert bases == [f"python:{version}", f"python:{version}-slim"], "the first has a C compiler, the second need not"
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert [int(part) for part in version.split(".")] >= [int(part) for part in least.split(".")]


def test_each_command_of_it_is_there() -> None:
    for stage in (BUILD, IMAGE):
        for text in of(stage, "RUN"):
            words = [shlex.split(part)[0] for part in text.split("&&")]
            assert set(words) <= set(ROUTINE), words
    (install,) = of(BUILD, "RUN")
    (extra,) = re.findall(r"\.\[(\w+)\]", install)
    assert extra in PROJECT["project"]["optional-dependencies"]
    (prepare,) = of(IMAGE, "RUN")
    assert json.loads(of(IMAGE, "ENTRYPOINT")[0])[0] in shlex.split(prepare), "tini is installed"
    assert "mirab" in PROJECT["project"]["scripts"]
    (folder,) = re.findall(r"python -m venv (\S+)", install)
    assert of(IMAGE, "COPY") == [f"--from=build {folder} {folder}"]
    assert environment()["PATH"].split(":")[0] == f"{folder}/bin"


def test_it_is_served_by_a_user_of_its_own_who_owns_where_everything_is_kept() -> None:
    (prepare,) = of(IMAGE, "RUN")
    words = shlex.split(prepare[prepare.index("useradd") :])
    (user,) = of(IMAGE, "USER")
    assert user == words[-1] and int(words[words.index("--uid") + 1]) > 0
    home = words[words.index("--home-dir") + 1]
    assert "--create-home" in words
    assert of(IMAGE, "VOLUME") == of(IMAGE, "WORKDIR") == [home] == [environment()["MIRAB_STATE_DIR_ROOT"]]
    order = [keyword for keyword, _ in IMAGE]
    assert order.index("RUN") < order.index("USER") < order.index("VOLUME")


def test_its_settings_are_settings_and_lead_to_the_port_that_it_shows() -> None:
    given = served()
    flags = {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(given[::2], given[1::2], strict=True)
    }
    ours = {name: value for name, value in environment().items() if name.startswith("MIRAB_")}
    assert set(ours) <= {setting.env for setting in SETTINGS}
    config = load_config(flags, ours)
    assert [str(config.port)] == of(IMAGE, "EXPOSE")
    assert str(config.state_dir) == ours["MIRAB_STATE_DIR_ROOT"]
    assert f"'127.0.0.1', {config.port}," in probe()[-1]
    for example in re.findall(
        r"^#   docker run .* mirab (--.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        assert {word for word in example.split() if word.startswith("--")} <= {setting.flag for setting in SETTINGS}


def test_it_is_stopped_as_the_service_expects() -> None:
    assert of(IMAGE, "STOPSIGNAL") == ["SIGTERM"], "tests/live/test_serve.py stops it so"


@contextmanager
def answering(status: int, text: str) -> Iterator[tuple[int, list[str]]]:
    """The port of a server that always says this, and the paths it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_whether_it_is_ready_and_keeps_what_it_says(status: int, code: int) -> None:
    python, *words = probe()
    assert python == "python"
    with answering(status, "how it is") as (port, asked):
        here = [word.replace("7077", str(port)) for word in words]
        done = subprocess.run([sys.executable, *here], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, asked) == (code, "how it is\n", ["/readyz"])


@pytest.mark.slow
def test_what_it_copies_is_enough_for_the_wheel(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, context)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    plain = os.environ | {"MIRAB_COMPILED": "0"}
    done = subprocess.run(
        [*command, "--wheel-dir", tmp_path, context], env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("mirab-*.whl")
    names = ZipFile(wheel).namelist()
    assert "mirab/cli/main.py" in names and "mirab/service/pages/assets/job.js" in names
