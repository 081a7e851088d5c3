"""The sentence for a library that is not there: a matter of the installation, not of mirab. Needs no library itself."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

PACKAGES = {
    "alembic": "alembic",
    "click": "click",
    "fastapi": "fastapi",
    "jinja2": "jinja2",
    "mypy_extensions": "mypy-extensions",
    "prometheus_client": "prometheus-client",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
    "rich": "rich",
    "ruamel.yaml": "ruamel.yaml",
    "sqlalchemy": "sqlalchemy",
    "structlog": "structlog",
    "uvicorn": "uvicorn",
}
"""Module and package of each library that mirab needs."""


def told(error: ImportError) -> str | None:
    """What is missing and the command that mends it; None = it is none of the libraries, and so a fault of mirab."""
    module = (error.name or "").partition(".")[0]
    if not module or (module == "mirab" and not isinstance(error, ModuleNotFoundError)):
        return None
    if module == "mirab":
        again = pip("--force-reinstall", "mirab")
        return f"the installation is incomplete: there is no {error.name}. Install mirab again: {again}"
    if module in sys.stdlib_module_names or module.removeprefix("_") in sys.stdlib_module_names:
        return (
            f"the Python at {sys.executable} lacks {module}, which is a part of Python: install the package of your "
            "system that has it, or use another Python"
        )
    needed = next((package for name, package in PACKAGES.items() if name.partition(".")[0] == module), module)
    if not isinstance(error, ModuleNotFoundError):
        return f"the library {needed} is not one that mirab can use ({error}). Renew it: {pip('--upgrade', needed)}"
    absent = _absent()
    absent = absent if needed in absent else [needed, *absent]
    what = "library" if len(absent) == 1 else "libraries"
    names = f"the {what} {', '.join(absent)}, which mirab needs, {'is' if len(absent) == 1 else 'are'} not installed"
    return f"{names} for the Python at {sys.executable}. Install with: {pip(*absent)}"


def _absent() -> list[str]:
    return [package for name, package in PACKAGES.items() if not _is_there(name)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # its parent is not there
        return False


def pip(*words: str) -> str:
    """The command that installs into the Python that runs this."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.join(words)}"
