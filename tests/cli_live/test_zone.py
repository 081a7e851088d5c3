"""The service writes times in sentences where the reader is."""

from __future__ import annotations

import pytest

from mirab.cli import zone


@pytest.mark.parametrize(
    ("named", "name"),
    [("Europe/Berlin", "Europe/Berlin"), (":Asia/Tokyo", "Asia/Tokyo"), ("UTC", "UTC"), ("a\nHost: evil", "")],
)
def test_the_environment_names_the_zone(monkeypatch: pytest.MonkeyPatch, named: str, name: str) -> None:
    monkeypatch.setenv("TZ", named)
    assert zone.zone_name() == name


def test_else_the_machine_does(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("TZ", raising=False)
    link = tmp_path_factory.mktemp("etc") / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Paris")
    monkeypatch.setattr(zone, "LOCALTIME", str(link))
    assert zone.zone_name() == "Europe/Paris"
    monkeypatch.setattr(zone, "LOCALTIME", str(link) + "-not-there")
    assert zone.zone_name() == ""
