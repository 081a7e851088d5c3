"""The exception of the readers of files."""

from __future__ import annotations

from mirab.logs.errors import LogError


def test_a_name_with_a_line_break_does_not_break_the_sentence() -> None:
    """A quoted key of a YAML file may hold any character."""
    error = LogError("ra\n4 is empty", "cluster.yaml", 11)
    assert error.what == "ra 4 is empty"
    assert str(error) == "cluster.yaml:11: ra 4 is empty"
