"""What holds for every test: each state that a test makes is checked, all invariants, when the test is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from mirab.core.state import State
from tests.chromium import browser
from tests.examples import examples

__all__ = ["browser"]

settings.register_profile(
    "fast",
    max_examples=examples(25),
    derandomize=True,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough", settings.get_profile("fast"), max_examples=500, derandomize=False, phases=list(Phase)
)
settings.load_profile("fast")

CHECKED_PER_TEST = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden decision logs anew instead of comparing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What sleeps while a real Slurm works comes first: the others compute meanwhile."""
    items.sort(key=lambda item: item.path.parent.name != "slurm")


class SlurmApart(LoadScopeScheduling):  # type: ignore[misc]
    """With `--dist loadscope`: all tests on a real Slurm on one worker, each other one wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/slurm" if nodeid.startswith("tests/slurm/") else nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return SlurmApart(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def _states() -> Iterator[deque[State]]:
    """The states made lately. The constructor is wrapped once for the whole session."""
    made: deque[State] = deque(maxlen=CHECKED_PER_TEST)
    plain = State.__init__

    def remembered(self: State, *args: object, **named: object) -> None:
        plain(self, *args, **named)  # type: ignore[arg-type]
        made.append(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(State, "__init__", remembered)
    yield made
    patch.undo()


@pytest.fixture(autouse=True)
def every_state_is_sound(_states: deque[State]) -> Iterator[None]:
    """At the end of each test: `check()` on every state that it made (the last 50 of them)."""
    _states.clear()
    yield
    while _states:
        _states.pop().check()
