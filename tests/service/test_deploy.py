"""The systemd unit starts what there is, and lets runs live."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from mirab.service.config import SETTINGS, load_config

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "mirab.service"


def unit(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def flags_of(words: list[str]) -> dict[str, str]:
    """Flag and value of the words behind ``serve``."""
    given = words[words.index("serve") + 1 :]
    assert len(given) % 2 == 0, given
    return dict(zip(given[::2], given[1::2], strict=True))


def test_the_unit_starts_the_service_with_settings_that_there_are() -> None:
    (command,) = unit("ExecStart")
    flags = flags_of(shlex.split(command))
    assert set(flags) <= {setting.flag for setting in SETTINGS}
    config = load_config({flag.removeprefix("--").replace("-", "_"): value for flag, value in flags.items()}, {})
    assert config.socket is not None
    assert str(config.socket.parent) == f"/run/{unit('RuntimeDirectory')[0]}"
    assert str(config.state_dir) == f"/var/lib/{unit('StateDirectory')[0]}"


def test_the_unit_lets_runs_live_and_does_not_shut_them_in() -> None:
    assert unit("KillMode") == ["process"]
    assert unit("OOMPolicy") == ["continue"]
    assert unit("Type") == ["notify"]
    for harmful in ("ProtectHome", "PrivateTmp", "PrivateDevices", "NoNewPrivileges", "MemoryMax", "OOMScoreAdjust"):
        assert not unit(harmful), f"{harmful} would hold for every job"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    copy = tmp_path / "mirab.service"
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/mirab/bin/mirab", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert "mirab.service" not in done.stderr, done.stderr
