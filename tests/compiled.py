"""The same tests on the compiled package: `.ci/wheel` puts it in front of the sources."""

from __future__ import annotations

import pytest

from mirab.core import decide

IS_COMPILED = not decide.__file__.endswith(".py")

replaces_a_function = pytest.mark.skipif(
    IS_COMPILED, reason="puts a function of its own into a module, and compiled code calls past it"
)
