"""Routes of nodes, and of runs that hold GPUs without progress."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from mirab.service.api.needs import Service, needs
from mirab.service.api.parts import Parts
from mirab.service.api.problems import ProblemError, not_found
from mirab.service.auth.principal import Principal
from mirab.service.fields import NAME_PATTERN
from mirab.service.forms.base import Why
from mirab.service.forms.machines import Node, NodeReport, Nodes, Squatters

router = APIRouter(prefix="/api/v1", tags=["nodes"])

Name = Annotated[str, Path(min_length=1, max_length=255, pattern=NAME_PATTERN, examples=["gpu-01"])]


@router.get("/nodes", response_model=Nodes)
def list_nodes(who: Annotated[Principal, needs("node.see")], parts: Service) -> Nodes:
    """All nodes, and what runs on them."""
    return parts.views.nodes()


@router.get("/nodes/{name}", response_model=Node, responses={404: {}})
def show_node(who: Annotated[Principal, needs("node.see")], parts: Service, name: Name) -> Node:
    """A node, and what runs on it."""
    return _node(parts, name)


@router.post("/nodes/{name}/drain", response_model=Node, responses={404: {}, 409: {}})
def drain_node(
    who: Annotated[Principal, needs("node.drain")], parts: Service, name: Name, body: Why | None = None
) -> Node:
    """Nothing new starts there; what runs finishes its minimum, then goes back to the queue."""
    _node(parts, name)
    parts.desk.node_drain(who, name, body.why if body is not None else "")
    return _node(parts, name)


@router.post("/nodes/{name}/resume", response_model=Node, responses={404: {}, 409: {}})
def resume_node(
    who: Annotated[Principal, needs("node.resume")], parts: Service, name: Name, body: Why | None = None
) -> Node:
    """The node is healthy: it takes work again."""
    _node(parts, name)
    parts.desk.node_resume(who, name, body.why if body is not None else "")
    return _node(parts, name)


@router.post("/nodes/{name}/report", response_model=Node, responses={404: {}, 409: {}})
def report_node(who: Annotated[Principal, needs("node.report")], parts: Service, name: Name, body: NodeReport) -> Node:
    """What was seen on a node; the scheduler draws the consequence."""
    if body.xid is None and not body.text.strip():
        raise ProblemError(422, "say what was seen: an xid, or a text")
    _node(parts, name)
    parts.desk.node_report(who, name, body.xid, body.text)
    return _node(parts, name)


@router.get("/squatters", response_model=Squatters)
def list_squatters(who: Annotated[Principal, needs("squatter.see")], parts: Service) -> Squatters:
    """Runs without a sign of progress for longer than they declared."""
    return parts.views.squatters()


def _node(parts: Parts, name: str) -> Node:
    node = parts.views.node(name)
    if node is None:
        raise not_found(f"there is no node {name}: `mirab node ls` shows the nodes there are")
    return node
