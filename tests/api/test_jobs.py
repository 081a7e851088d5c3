"""Jobs over HTTP: submission with keys, lists, commands, awaiting."""

from __future__ import annotations

from tests.api.stage import Stage, job


def test_a_job_is_submitted_shown_and_cancelled(service: Stage) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", json=job(name="first"))
        assert answer.status_code == 201
        [made] = answer.json()["jobs"]
        assert answer.headers["location"] == f"/api/v1/jobs/{made['id']}"
        assert client.get(f"/api/v1/jobs/{made['id']}").json()["spec"]["argv"] == ["sleep", "1000"]
        assert client.post(f"/api/v1/jobs/{made['id']}/cancel", json={"why": "tired"}).status_code == 200
        ended = client.get(f"/api/v1/jobs/{made['id']}/await", params={"timeout": 30}).json()
        assert ended["state"] == "CANCELLED"
