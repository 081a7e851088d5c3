"""Facts, plans and what they hold as plain JSON values, and back: ``decode(encode(value)) == value``.

The form is stable and self-describing:

* a dataclass is an object with its class name under ``type``;
* a named tuple (`Shape`, `Allocation`) is an object without ``type``: the field that holds it says what it is;
* a field at its default is left out, so a default may only change together with the version of what is written;
* an integer beyond 2**53, which other JSON readers would round, is a hexadecimal string (``"0x1f"``);
* a float that JSON cannot hold is the string ``"inf"``, ``"-inf"`` or ``"nan"``; an enum is its value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from mirab.model import accounts, changesets, events, plans, policy, reasons, records, resources, workloads

Json: TypeAlias = Any
"""None, bool, int, float, str, list or dict."""

TAG = "type"
_EXACT = 2**53
_PLAIN = frozenset({str, bool, type(None)})


def encode(value: object) -> Json:
    """The JSON value of a model value.

    Raises:
        TypeError: neither a JSON value, an enum, a tuple, a dataclass nor a named tuple.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, int):
        return value if -_EXACT < value < _EXACT else hex(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if kind is tuple or kind is list:
        return [encode(item) for item in value]  # type: ignore[attr-defined]
    if isinstance(value, Enum):
        return value.value
    return _encode_fields(value, kind)


def _encode_fields(value: object, kind: type) -> Json:
    encoded: dict[str, Json] = {TAG: kind.__name__} if is_dataclass(kind) else {}
    for name, default in _fields(kind):
        held = getattr(value, name)
        if held is default or held == default:
            continue
        encoded[name] = held if type(held) in _PLAIN else encode(held)
    return encoded


@cache
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    """Names and defaults; `MISSING` where there is none."""
    if is_dataclass(kind):
        return tuple((field.name, field.default) for field in fields(kind))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple((name, kind._field_defaults.get(name, MISSING)) for name in kind._fields)  # type: ignore[attr-defined]
    raise TypeError(f"{kind.__name__} has no JSON form")


def decode(data: Json, hint: Any = None) -> Any:
    """The model value of a JSON value; `hint` is its type where it is not a tagged dataclass.

    Raises:
        ValueError: an unknown type, a field that is missing or unknown, or a value of the wrong form.
    """
    return _decode_tagged(data) if hint is None else _reader(hint)(data)


def _decode_tagged(data: Json) -> Any:
    name = data.get(TAG) if isinstance(data, dict) else None
    kind = _kinds().get(str(name))
    if kind is None:
        raise ValueError(f"{name!r} is not a type that mirab records")
    return _decode_fields(data, kind)


def _decode_fields(data: Json, kind: type) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is not a {kind.__name__}: an object is expected")
    readers = _readers(kind)
    try:
        return kind(**{name: readers[name](held) for name, held in data.items() if name != TAG})
    except KeyError as error:
        raise ValueError(f"{kind.__name__} has no field {error.args[0]!r}") from None
    except TypeError as error:
        raise ValueError(f"{kind.__name__} cannot be read: {error}") from None


@cache
def _kinds() -> dict[str, type]:
    return {kind.__name__: kind for kind in recorded_types()}


def recorded_types() -> Iterator[type]:
    """Every dataclass that can stand in a record, in the order of the modules."""
    for module in (events, plans, reasons, workloads, accounts, changesets, policy, resources, records):
        for kind in vars(module).values():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__:
                yield kind


@cache
def _readers(kind: type) -> dict[str, Callable[[Json], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


@cache
def _reader(hint: Any) -> Callable[[Json], Any]:
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if origin is tuple:
        return _tuple_reader(get_args(hint))
    if origin in (Union, types.UnionType):
        return _union_reader([part for part in get_args(hint) if part is not type(None)])
    if is_dataclass(hint):
        return _decode_tagged
    return _plain_reader(hint)


def _tuple_reader(parts: tuple[Any, ...]) -> Callable[[Json], Any]:
    """Any number of one type, or one of each."""
    if parts[-1] is not Ellipsis:
        items = [_reader(part) for part in parts]
        return lambda data: tuple([read(held) for read, held in zip(items, data, strict=True)])
    item = _reader(parts[0])
    return lambda data: tuple([item(held) for held in data])


def _union_reader(parts: list[Any]) -> Callable[[Json], Any]:
    """Optional of one type, a text by any name, or one of several tagged dataclasses."""
    plain = len({getattr(part, "__supertype__", part) for part in parts}) == 1
    inner = _reader(parts[0]) if plain else _decode_tagged
    return lambda data: None if data is None else inner(data)


def _plain_reader(hint: type) -> Callable[[Json], Any]:
    if hint is int:
        return lambda data: int(data, 16) if isinstance(data, str) else data
    if hint is float:
        return lambda data: float(data) if isinstance(data, str) else data
    if issubclass(hint, Enum):
        return hint
    if issubclass(hint, tuple):
        return lambda data: _decode_fields(data, hint)
    return lambda data: data
