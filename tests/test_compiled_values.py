"""Values as the compiled wheel has them: written out, and otherwise what the dataclasses of the source are."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from dataclasses import fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.compiled import IS_COMPILED

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("events", "plans", "policy", "reasons", "records", "resources", "workloads")


def build_hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hook() -> Any:
    pytest.importorskip("hatchling")
    if IS_COMPILED:
        pytest.skip("compares with the dataclasses of the source")
    return build_hook()


@pytest.fixture
def written_out(hook: Any, request: pytest.FixtureRequest) -> Any:
    """The module of that name as it is compiled, under another name so that its values can be pickled."""
    name = request.param
    module = ModuleType(f"written_out_{name}")
    sys.modules[module.__name__] = module
    source = files("mirab.model").joinpath(f"{name}.py").read_text(encoding="utf-8")
    exec(compile(hook.with_native_values(source), f"{name}.py", "exec"), module.__dict__)
    yield importlib.import_module(f"mirab.model.{name}"), module
    del sys.modules[module.__name__]


def values_of(module: ModuleType) -> dict[str, type]:
    own = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in own.items() if kind.__module__ == module.__name__ and is_dataclass(kind)}


def described(kind: type) -> list[tuple[str, object, object]]:
    return [(each.name, each.default, each.type) for each in fields(kind)]


@pytest.mark.parametrize("written_out", MODULES, indirect=True)
def test_a_value_written_out_is_the_same_value(written_out: tuple[ModuleType, ModuleType]) -> None:
    source, compiled = written_out
    names = values_of(source)
    assert names and names.keys() == values_of(compiled).keys()
    for name, kind in names.items():
        other = getattr(compiled, name)
        assert [(f.name, f.default, f.type) for f in fields(kind)] == [
            (f.name, f.default, f.type) for f in fields(other)
        ]
        assert kind.__match_args__ == other.__match_args__  # type: ignore[attr-defined]
        if not str(kind.__doc__).startswith(f"{name}("):  # what dataclasses say of one without a docstring
            assert kind.__doc__ == other.__doc__
        held = list(range(len(fields(kind))))
        one, same = kind(*held), other(*held)
        assert (repr(one), hash(one)) == (repr(same), hash(same))
        assert same == other(*held) and same != one and same != held
        assert pickle.loads(pickle.dumps(same)) == same
        for field in fields(kind):
            assert replace(same, **{field.name: -1}) != same


@pytest.mark.parametrize("written_out", ["resources"], indirect=True)
def test_a_named_tuple_keeps_its_types(written_out: tuple[ModuleType, ModuleType]) -> None:
    source, compiled = written_out
    assert compiled.Shape.__annotations__["gpu_types"] == "tuple[str, ...]"
    assert compiled.Shape(1, 8).gpus == source.Shape(1, 8).gpus == 8


def test_whether_to_compile_is_a_setting(hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert hook.is_wanted("1") and not hook.is_wanted("0")
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler -O2"))
    assert not hook.is_wanted("auto")
    with pytest.raises(ValueError, match="MIRAB_COMPILED is 'yes': say auto, 1"):
        hook.is_wanted("yes")


class App:
    """What hatchling shows warnings with."""

    def __init__(self) -> None:
        self.warned: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warned.append(message)


def built(hook: Any, monkeypatch: pytest.MonkeyPatch, setting: str, version: str = "standard") -> tuple[Any, App]:
    """What the hook adds to a wheel where the C compiler fails, and what it warns of."""

    def fails(package: Path, folder: Path) -> list[Path]:
        raise RuntimeError("mypyc could not compile these modules")

    monkeypatch.setattr(hook, "compiled", fails)
    monkeypatch.setattr(hook, "can_compile", lambda: True)
    monkeypatch.setenv("MIRAB_COMPILED", setting)
    app = App()
    one = hook.Compiled(str(ROOT), {}, None, None, "", "wheel", app)
    build_data: dict[str, Any] = {"force_include": {}}
    try:
        one.initialize(version, build_data)
    finally:
        one.finalize(version, build_data, "")
    return build_data, app


def test_where_it_cannot_be_compiled_it_stays_plain(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build_data, app = built(hook, monkeypatch, "auto")
    assert build_data == {"force_include": {}}
    assert app.warned == ["mirab is installed as plain Python, which is slower: mypyc could not compile these modules"]


def test_who_insists_is_told(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="could not compile"):
        built(hook, monkeypatch, "1")


def test_an_editable_install_is_plain(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build_data, app = built(hook, monkeypatch, "1", version="editable")
    assert (build_data, app.warned) == ({"force_include": {}}, [])
