"""The state as bytes and back: for snapshots, and for copies to try things on.

The objects of the state refer to each other in all directions, so plain pickling would descend as deep as there are
queues. Here those that others refer to (accounts, users, queues, shapes, runs, what waits) are numbered as they are
met, and each is written by itself with the numbers of the others. Only mirab's own model and core types are read back:
the bytes come from a database.
"""

from __future__ import annotations

import pickle
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BytesIO
from typing import Any

ADMITTED = ("mirab.model.", "mirab.core.", "mirab.control.")
PROTOCOL = 5


class SnapshotError(Exception):
    """The bytes are no snapshot of this version."""


def numbered(kind: type) -> bool:
    """Whether objects of this type are written by number: those of the core that are themselves, not their values."""
    known = _NUMBERED.get(kind)
    if known is None:
        own = kind.__module__.startswith(ADMITTED) and not issubclass(kind, Enum)
        hashed_by: object = kind.__hash__
        known = _NUMBERED[kind] = own and hashed_by is object.__hash__
    return known


_NUMBERED: dict[type, bool] = {}


def number(index: int) -> Any:
    """Stands in the bytes for the object of that number; reading replaces it."""
    raise SnapshotError(f"object {index} was read outside a snapshot")


class _Writer(pickle.Pickler):
    """Writes one object after the other; the numbered ones that it meets are put on the list."""

    def __init__(self, file: BytesIO, objects: list[Any]) -> None:
        super().__init__(file, PROTOCOL)
        self._objects = objects
        self._numbers: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if numbered(kind):
            index = self._numbers.get(id(value))
            if index is None:
                index = self._numbers[id(value)] = len(self._objects)
                self._objects.append(value)
            return number, (index,)
        if isinstance(value, Enum):
            return kind, (value.value,)
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Reads mirab's own types and builtin containers, and nothing else."""

    def __init__(self, file: BytesIO, objects: list[Any]) -> None:
        super().__init__(file)
        self._objects = objects

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == "number":
            return self._objects.__getitem__
        return admitted(module, name)


def admitted(module: str, name: str) -> type:
    """A type of mirab's own, by name.

    Raises:
        SnapshotError: anything else, a function above all.
    """
    if module.startswith(ADMITTED):
        try:
            found = getattr(import_module(module), name, None)
        except ImportError:
            found = None
        if isinstance(found, type) and found.__module__ == module:
            return found
    raise SnapshotError(f"a snapshot of this version holds no {module}.{name}")


def freeze(value: Any) -> bytes:
    """The bytes of a state, or of a tuple with one in it."""
    objects: list[Any] = [(value,)]
    body = BytesIO()
    writer = _Writer(body, objects)
    done = 0
    while done < len(objects):
        held = objects[done]
        writer.dump(held.__getstate__() if done else held)
        done += 1
    kinds = [(type(each).__module__, type(each).__qualname__) for each in objects[1:]]
    return pickle.dumps((kinds, body.getvalue()), PROTOCOL)


def thaw(data: bytes) -> Any:
    """What was frozen, new in every part.

    Raises:
        SnapshotError: these are not such bytes.
    """
    try:
        kinds, body = _Reader(BytesIO(data), []).load()
        objects: list[Any] = [None, *(_empty(module, name) for module, name in kinds)]
        reader = _Reader(BytesIO(body), objects)
        (value,) = reader.load()
        for each in objects[1:]:
            _fill(each, reader.load())
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"the snapshot cannot be read ({type(error).__name__}: {error})") from error
    return value


def _empty(module: str, name: str) -> Any:
    kind: Any = admitted(module, name)
    return kind.__new__(kind)


def _fill(target: Any, state: Any) -> None:
    for part in state if isinstance(state, tuple) else (state,):
        for name, held in (part or {}).items():
            object.__setattr__(target, name, held)


@cache
def fingerprint() -> str:
    """Hash of the source of everything that a snapshot holds: another version reads the journal instead."""
    digest = sha256(str(PROTOCOL).encode())
    for layer in ("model", "core", "control"):
        for path in _sources(files("mirab") / layer):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update((files("mirab") / "service" / "snapshot.py").read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable) -> list[Traversable]:
    return sorted((path for path in folder.iterdir() if path.name.endswith(".py")), key=lambda path: path.name)
