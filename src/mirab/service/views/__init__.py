"""What people read: shares, jobs and why they wait, nodes, squatters. Values and sentences, never decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirab.service.views.views import Views

__all__ = ["Views"]


def __getattr__(name: str) -> Any:
    """`Views` is loaded when it is asked for: the desk uses parts of this package alone."""
    if name == "Views":
        from mirab.service.views.views import Views

        return Views
    raise AttributeError(name)
