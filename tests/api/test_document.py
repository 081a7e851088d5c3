"""The OpenAPI document: complete, true of every answer, and a fuzzer finds no answer that it does not describe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi.routing import APIRoute
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mirab.service.api.needs import action_of
from mirab.service.api.page import api_page
from mirab.service.api.problems import MEDIA_TYPE
from mirab.service.auth.rules import RULES, Scope
from mirab.service.pages.site import ADDRESSES, ASSET
from tests.api.stage import Stage, stage

EXAMPLES = int(os.environ.get("MIRAB_TEST_FUZZ", "4"))
"""For each operation, of data that fits its description and as many of data that does not: ``MIRAB_TEST_FUZZ=50 pytest
tests/api/test_document.py`` looks further. With few, the forms that a fault was found with stand in tests of their own.
"""


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service whose streams end at once."""
    with stage(tmp_path_factory.mktemp("quiet")) as running:
        running.parts.bus.close()
        yield running


def operations(service: Stage) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in service.app.openapi()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_stands_in_the_document(service: Stage) -> None:
    there = {(method, path) for method, path, _ in operations(service)}
    wanted = {
        (method, route.path_format)
        for route in service.app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    pages = {("GET", address.replace(":path", "")) for address in (*ADDRESSES, ASSET)}
    assert wanted - there == {("GET", "/openapi.json")} | pages


def test_every_error_is_a_problem_and_every_operation_tells_who_may(service: Stage) -> None:
    for method, path, operation in operations(service):
        errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert set(errors) >= {"400", "403", "413", "422", "500"}, (method, path)
        for answer in errors.values():
            assert list(answer["content"]) == [MEDIA_TYPE], (method, path)
        assert "Right `" in operation["description"], (method, path)
        assert operation["summary"]
    names = [operation["operationId"] for _, _, operation in operations(service)]
    assert len(set(names)) == len(names)


def test_what_needs_a_token_says_so(service: Stage) -> None:
    for route in service.app.routes:
        assert isinstance(route, APIRoute)
        if route.include_in_schema:
            operation = service.app.openapi()["paths"][route.path_format][sorted(route.methods or ())[0].lower()]
            opened = RULES[action_of(route) or ""].scope is Scope.OPEN
            assert operation["security"] == ([] if opened else [{"token": []}])
            assert ("401" in operation["responses"]) is (not opened or route.path == "/metrics")


def test_the_document_is_served_without_a_token_and_names_nothing_outside(service: Stage) -> None:
    with service.client() as client:
        answer = client.get("/openapi.json")
    assert answer.json()["openapi"].startswith("3.")
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_every_field_of_a_request_that_is_text_has_a_longest_length(service: Stage) -> None:
    """Nobody can send more than somebody thought of."""
    schemas = service.app.openapi()["components"]["schemas"]
    unbounded = [
        f"{name}.{field}"
        for name in ("SubmitRequest", "Why", "NodeReport", "NewToken", "BudgetChange", "BudgetNode", "GrantModel")
        for field, schema in schemas[name]["properties"].items()
        for each in schema.get("anyOf", [schema])
        if not bounded(each)
    ]
    assert unbounded == []


def bounded(schema: dict[str, Any]) -> bool:
    match schema.get("type"):
        case "string":
            return "maxLength" in schema or "enum" in schema or schema.get("format") == "date-time"
        case "integer" | "number":
            return "maximum" in schema and "minimum" in schema
        case "array":
            return "maxItems" in schema
        case "object":
            return "maxProperties" in schema
    return True


def test_the_page_of_reference_is_what_the_code_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
    assert page.read_text(encoding="utf-8") == api_page(), "run `make docs`"


@pytest.mark.slow
def test_a_fuzzer_finds_no_answer_that_the_document_does_not_describe(quiet: Stage) -> None:
    """Every operation, as an admin, with data that fits the document and data that does not."""
    for _ in range(3):
        quiet.submit()
    schema = schemathesis.openapi.from_dict(quiet.app.openapi())
    schema.config.update(base_url=quiet.url)
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
        response_headers_conformance,
    ]
    tried = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            tried += fuzz(quiet, operation, mode, checks)
    assert tried > EXAMPLES * len(list(operations(quiet)))
    with quiet.client("adm") as client:
        assert client.get("/readyz").status_code == 200


THERE = {"job_id": "1", "name": "n0", "path": "vision"}


def point_at_what_is_there(case: Any) -> None:
    """Let a case go deeper: a job, a node and an account that exist."""
    for name in case.path_parameters or {}:
        case.path_parameters[name] = THERE.get(name, case.path_parameters[name])
    if isinstance(case.body, dict) and "account" in case.body:
        case.body["account"] = "vision/video"


def fuzz(service: Stage, operation: Any, mode: Any, checks: list[Any]) -> int:
    """How many requests were made for an operation."""
    tried = 0
    headers = {"Authorization": f"Bearer {service.tokens['adm']}"}

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def attack(case: Any) -> None:
        nonlocal tried
        tried += 1
        if tried % 2:
            point_at_what_is_there(case)
        case.call_and_validate(headers=headers, checks=checks)

    try:
        attack()
    except hypothesis.errors.Unsatisfiable:
        assert mode is schemathesis.GenerationMode.NEGATIVE, f"{operation.label}: nothing fits its description"
    return tried
