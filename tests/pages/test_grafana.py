"""The dashboard and the alert rules: every metric and label that they name exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest
from ruamel.yaml import YAML

from mirab.service.metrics import Metrics, _state_families
from tests.api.stage import Stage

DATA = files("mirab") / "data"
NAME = re.compile(r"\bmirab_[a-z_]+\b")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
BY = re.compile(r"(?:by|on)\s*\(([^)]*)\)")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "grafana" / "mirab.json").read_text("utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    data = YAML(typ="safe").load((DATA / "alerts" / "mirab.yaml").read_text("utf-8"))
    return [rule for group in data["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [*panels, *(rule["expr"] for rule in rules())]


@pytest.fixture(scope="module")
def known(service: Stage) -> tuple[set[str], set[str]]:
    """Names of the series that a service shows, and of their labels as they are declared."""
    registry = Metrics(service.live).registry
    names, labels = set(), {"instance", "le"}
    for family in registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    for collector in registry._collector_to_names:
        labels |= set(getattr(collector, "_labelnames", ()))
    labels |= {label for family in _state_families() for label in family.labels}
    return names, labels


def test_every_metric_that_is_asked_for_exists(known: tuple[set[str], set[str]]) -> None:
    asked = {name for text in expressions() for name in NAME.findall(text)}
    assert asked - known[0] == set()
    assert len(asked) > 15


def test_every_label_that_is_asked_for_exists(known: tuple[set[str], set[str]]) -> None:
    asked = {label for text in expressions() for label in LABEL.findall(text)}
    asked |= {label.strip() for text in expressions() for group in BY.findall(text) for label in group.split(",")}
    assert asked - known[1] == set()


def test_panels_have_their_own_ids_and_do_not_lie_on_each_other() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    for number, one in enumerate(places):
        assert one["x"] + one["w"] <= 24
        for other in places[number + 1 :]:
            apart = (
                one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            )  # fmt: skip
            assert apart, (one, other)


def test_the_dashboard_names_no_source_of_its_own() -> None:
    text = json.dumps(dashboard())
    assert "http" not in text.replace("mirab_http_request_seconds", "")
    assert '"uid": "${datasource}"' in text


def test_every_alert_says_what_is_wrong_and_what_to_look_at() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    assert len({rule["alert"] for rule in rules()}) == len(rules())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_prometheus_takes_the_rules() -> None:
    path = str(DATA / "alerts" / "mirab.yaml")
    assert subprocess.run(["promtool", "check", "rules", path], check=False, capture_output=True).returncode == 0
