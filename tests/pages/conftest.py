"""A live service with jobs of two teams, a draining node, and two replays that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.stage import Stage, stage
from tests.study_page.made_up import report

JOBS = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("served")
    with stage(folder) as service:
        service.parts.reports = folder / "reports"
        service.parts.reports.mkdir()
        for name in ("budget", "priority"):
            (service.parts.reports / f"{name}.json").write_text(json.dumps(report(name)), "utf-8")
        fill(service)
        yield service


def fill(service: Stage) -> None:
    """More jobs than fit, of two teams, and a node that is drained."""
    with service.client("ada") as ada, service.client("eve") as eve:
        for number in range(JOBS):
            client, account = (ada, "vision/video") if number % 2 else (eve, "llm")
            size = {"gpus_per_node": 1 + number % 4, "nodes": 2 if number % 7 == 3 else 1}
            wanted = {"account": account, "argv": ["sleep", "1000"], "name": f"train-{number}", **size}
            assert client.post("/api/v1/jobs", json=wanted).status_code == 201
    with service.client("ops") as ops:
        assert ops.post("/api/v1/nodes/n3/drain", json={"why": "its fan is loud"}).status_code == 200


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("service")) as running:
        yield running
