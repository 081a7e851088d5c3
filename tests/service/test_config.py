"""Settings: flags, environment, file, in this order; and a page that names them all."""

from __future__ import annotations

import os
import pwd
from dataclasses import fields
from pathlib import Path

import pytest

from mirab.service.config import SETTINGS, ConfigError, ServeConfig, load_config

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def loaded(file: Path | None = None, environment: dict[str, str] | None = None, **flags: str) -> ServeConfig:
    return load_config(flags, {"MIRAB_STATE_DIR_ROOT": "/tmp/mirab-state", **(environment or {})}, file)


def test_without_a_word_it_is_for_this_machine_only() -> None:
    config = loaded()
    assert (config.host, config.port) == ("127.0.0.1", 7077)
    assert not config.beyond_loopback
    assert config.db == "sqlite:////tmp/mirab-state/mirab.db"
    assert config.socket == Path("/tmp/mirab-state/mirab.sock")
    assert config.backend == "local"


def test_whoever_stands_in_for_others_is_a_user_here() -> None:
    able = pwd.getpwuid(os.geteuid() or pwd.getpwnam("nobody").pw_uid).pw_name
    assert loaded(run_as=able).run_as == able
    with pytest.raises(ConfigError, match="without the rights of root"):
        loaded(run_as="root")
    with pytest.raises(ConfigError, match="no user of this machine"):
        loaded(run_as="no such user")


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("listen: 127.0.0.1:1\nlog_level: debug\npretend_gpus: 2\n")
    environment = {"MIRAB_LISTEN": "127.0.0.1:2", "MIRAB_PRETEND_GPUS": "4"}
    config = loaded(file, environment, pretend_gpus="8")
    assert (config.port, config.pretend_gpus, config.log_level) == (2, 8, "debug")


@pytest.mark.parametrize(
    ("text", "host", "port", "open_"),
    [
        ("127.0.0.1:7077", "127.0.0.1", 7077, False),
        ("localhost:80", "localhost", 80, False),
        ("[::1]:80", "::1", 80, False),
        (":9000", "127.0.0.1", 9000, False),
        ("0.0.0.0:7077", "0.0.0.0", 7077, True),
        ("[::]:7077", "::", 7077, True),
        ("gpu.example.org:7077", "gpu.example.org", 7077, True),
        ("none", None, 0, False),
    ],
)
def test_where_to_listen(text: str, host: str | None, port: int, open_: bool) -> None:
    config = loaded(listen=text)
    assert (config.host, config.port, config.beyond_loopback) == (host, port, open_)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("listen", "7077:", "HOST:PORT"),
        ("listen", "host:99999", "HOST:PORT"),
        ("pretend_gpus", "many", "whole number"),
        ("pretend_nodes", "0", "1 to"),
        ("backend", "slurmd", "local, slurm, null"),
        ("log_format", "xml", "auto, json, console"),
        ("coalesce", "50", "duration"),
        ("coalesce", "10m", "at most 1m, else nobody"),
        ("wait", "1000000d", "ten years"),
        ("db", "mysql://mirab:secret@db/mirab", "mysql://...': write sqlite:////path/to/mirab.db, or postgresql"),
        ("db", "mirab.db", "'mirab.db': write sqlite"),
    ],
)
def test_a_wrong_value_is_a_sentence_that_names_where_it_stands(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_config({name: text}, {})
    assert "--" + name.replace("_", "-") in str(caught.value)


def test_an_unknown_key_names_the_nearest_and_the_line(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("backend: local\nlisen: 127.0.0.1:1\n")
    with pytest.raises(ConfigError, match=r"serve.yaml:2: .*did you mean listen"):
        loaded(file)


def test_the_socket_of_a_user_is_in_the_runtime_folder_unless_the_state_folder_is_named(tmp_path: Path) -> None:
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert load_config({}, runtime).socket == tmp_path / "mirab.sock"
    assert load_config({"state_dir": "/tmp/x"}, runtime).socket == Path("/tmp/x/mirab.sock")
    assert loaded(socket="none").socket is None


def test_what_is_logged_holds_no_password() -> None:
    config = loaded(db="postgresql://mirab:hunter2@db/mirab")
    assert "hunter2" not in str(config.described())


def test_each_setting_is_a_field_and_stands_on_the_page() -> None:
    known = {setting.name for setting in SETTINGS}
    assert known - {"listen"} <= {field.name for field in fields(ServeConfig)}
    page = PAGE.read_text(encoding="utf-8")
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `--")}
    assert documented == {setting.flag for setting in SETTINGS}
    for setting in SETTINGS:
        assert f"`{setting.env}`" in page
