"""The engine that is this machine: real processes, each kept by a shim that outlives the service.

`LocalBackend` is what the loop drives, `detect` tells what the machine has. The names are loaded when they are asked
for: shims and client commands import single modules of this package, and must start in milliseconds.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mirab.backends.local.backend import LocalBackend as LocalBackend
    from mirab.backends.local.hardware import DetectionError as DetectionError
    from mirab.backends.local.hardware import detect as detect
    from mirab.backends.local.usage import UsageRecord as UsageRecord

__all__ = ["DetectionError", "LocalBackend", "UsageRecord", "detect"]

_HOME = {"LocalBackend": "backend", "UsageRecord": "usage", "detect": "hardware", "DetectionError": "hardware"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
