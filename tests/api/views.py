"""Views straight from the store and the state, as long as the tests need no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirab.model.records import JobRow
from mirab.service.api.ports import JobFilter
from mirab.service.api.told import iso
from mirab.service.schemas import (
    Job,
    JobDetail,
    Jobs,
    JobSpec,
    Node,
    Nodes,
    ShareAccount,
    Shares,
    Squatters,
)

if TYPE_CHECKING:
    from tests.api.stage import Stage


class StoreViews:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def job(self, job_id: str) -> Job | None:
        row = self.stage.store.job(job_id)
        return None if row is None else Job(**_fields(row))

    def detail(self, job_id: str) -> JobDetail | None:
        row = self.stage.store.job(job_id)
        if row is None:
            return None
        spec = self.stage.store.spec(job_id)
        assert spec is not None
        shown = JobSpec(argv=list(spec.argv), script=spec.script, environment=dict(spec.environment))
        return JobDetail(**_fields(row), runs=[], spec=shown)

    def jobs(self, wanted: JobFilter) -> Jobs:
        rows, following = self.stage.store.jobs(
            states=wanted.states,
            user=wanted.user,
            account=wanted.account,
            node=wanted.node,
            label=wanted.label,
            ids=wanted.ids,
            array_job=wanted.array_job,
            after=wanted.after,
            limit=wanted.limit,
        )
        return Jobs(jobs=[Job(**_fields(row)) for row in rows], next=following)

    def shares(self, path: str | None) -> Shares | None:
        with self.stage.live.reading() as state:
            found = [ShareAccount(path=str(each), share=0.0) for each in state.accounts if path in (None, each)]
        return Shares(accounts=found) if found else None

    def nodes(self) -> Nodes:
        pools = self.stage.live.cluster.pools
        return Nodes(
            nodes=[
                Node(name=name, pool=pool.name, state="idle", gpus=pool.gpus_per_node)
                for pool in pools
                for name in pool.nodes
            ]
        )

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes().nodes if node.name == name), None)

    def squatters(self) -> Squatters:
        return Squatters(runs=[])


def _fields(row: JobRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "account": row.account,
        "state": row.state.value,
        "nodes": row.nodes,
        "gpus_per_node": row.gpus_per_node,
        "gpus": row.nodes * row.gpus_per_node,
        "submitted_at": iso(row.submitted_at),
        "attempt": row.attempt,
    }
