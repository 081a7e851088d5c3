"""Budgets are changed against the version that one saw."""

from __future__ import annotations

from typing import Any

from tests.api.stage import Stage


def get(service: Stage) -> tuple[dict[str, Any], str]:
    with service.client("adm") as client:
        answer = client.get("/api/v1/budgets")
    assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
    return answer.json()["budgets"], answer.headers["etag"]


def put(service: Stage, budgets: dict[str, Any], *, user: str = "adm", why: str = "a try", etag: str | None) -> Any:
    with service.client(user) as client:
        headers = {"If-Match": etag} if etag is not None else {}
        return client.put("/api/v1/budgets", json={"budgets": budgets, "why": why}, headers=headers)


def test_a_change_needs_the_version_it_was_made_of_and_a_reason(own_service: Stage) -> None:
    budgets, etag = get(own_service)
    budgets["llm"]["share"] = "40%"
    assert put(own_service, budgets, etag=None).status_code == 428
    assert put(own_service, budgets, etag='"other"').status_code == 412
    for odd in ("", "version", f"W/{etag}", f'{etag}, "x"', '"a'):
        assert put(own_service, budgets, etag=odd).status_code == 412, odd
    assert put(own_service, budgets, etag=etag, why="").status_code == 422
    done = put(own_service, budgets, etag=etag)
    assert done.status_code == 200
    assert done.json()["budgets"]["llm"]["share"] == "40%"
    assert done.headers["etag"] not in (etag, None)
    assert put(own_service, budgets, etag=etag).status_code == 412, "somebody was faster"
    assert get(own_service)[1] == done.headers["etag"]


def test_a_manager_divides_what_is_below_their_account_only(own_service: Stage) -> None:
    budgets, etag = get(own_service)
    budgets["vision"]["children"]["video"]["share"] = "10%"
    assert put(own_service, budgets, user="max", etag=etag).status_code == 403
    assert put(own_service, budgets, user="eve", etag=etag).status_code == 403
    done = put(own_service, budgets, user="mia", etag=etag)
    assert done.status_code == 200
    budgets["vision"]["share"] = "51%"
    denied = put(own_service, budgets, user="mia", etag=done.headers["etag"])
    assert denied.status_code in (403, 422)


def test_shares_of_more_than_the_whole_are_refused_by_name(own_service: Stage) -> None:
    budgets, etag = get(own_service)
    budgets["llm"]["share"] = "60%"
    answer = put(own_service, budgets, etag=etag)
    assert answer.status_code == 422
    assert "llm" in answer.json()["detail"]


def test_trees_that_are_none_are_refused(own_service: Stage) -> None:
    _, etag = get(own_service)
    deep: dict[str, Any] = {"share": "1%"}
    for _ in range(400):
        deep = {"share": "1%", "children": {"a": deep}}
    odd: list[Any] = [{}, {"a": {}}, {"a": {"share": 50}}, {"a": {"share": "50%", "x": 1}}, {"a/b": {"share": "1%"}},
                      {"": {"share": "1%"}}, {"a\n": {"share": "1%"}}, {"a": deep}]  # fmt: skip
    for budgets in odd:
        answer = put(own_service, budgets, etag=etag)
        assert answer.status_code in (400, 422), (budgets, answer.text)
    assert get(own_service)[1] == etag
