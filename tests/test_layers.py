"""The folder list is the architecture: who may import whom, and what the pure layers never do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "mirab"

PURE = ("model", "core", "control")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "model": (),
    "core": ("model",),
    "control": ("model", "core"),
    "sim": ("model", "core", "control"),
    "logs": ("model", "core", "control"),
    "study": ("model", "core", "control", "sim", "logs"),
    "store": ("model", "control"),
    "backends": ("model", "control"),
    "service": ("model", "core", "control", "sim", "logs", "study", "store", "backends", "data"),
    "cli": ("model", "core", "control", "sim", "logs", "study", "store", "backends", "service", "data"),
}
NEVER_IN_PURE = frozenset(
    "time datetime random uuid os io socket subprocess threading asyncio logging sqlite3 pathlib secrets".split()  # noqa: SIM905
)
NEVER_CALLED_IN_PURE = ("open", "print", "input", "exec", "eval", "hash", "id")
LONGEST_FILE = 450


def sources(*layers: str) -> list[Path]:
    return sorted(path for layer in layers for path in (SOURCE / layer).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that is imported, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write the full name"
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{line}"


def test_every_folder_is_a_known_layer() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    assert folders <= set(MAY_IMPORT), f"not in the table of layers: {sorted(folders - set(MAY_IMPORT))}"


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_what_the_table_allows(layer: str) -> None:
    allowed = {layer, *MAY_IMPORT[layer]}
    wrong = [
        f"{where(path, line)} imports {name}"
        for path in sources(layer)
        for line, name in imported(parsed(path))
        if name.startswith("mirab.") and name != "mirab.__version__" and name.split(".")[1] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", PURE)
def test_the_pure_layers_know_no_clock_no_chance_and_no_outside(layer: str) -> None:
    wrong = []
    for path in sources(layer):
        tree = parsed(path)
        wrong += [
            f"{where(path, line)} imports {name}"
            for line, name in imported(tree)
            if name.split(".")[0] in NEVER_IN_PURE or name == "mirab.__version__"
        ]
        wrong += [
            f"{where(path, node.lineno)} calls {node.func.id}()"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NEVER_CALLED_IN_PURE
        ]
    assert not wrong, "\n".join(wrong)


def test_decide_has_one_caller_the_cycle() -> None:
    """What makes a replay evidence about production: both go through `control.cycle`."""
    callers = [
        str(path.relative_to(SOURCE))
        for path in sources(*MAY_IMPORT)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and called(node) == "decide"
    ]
    assert callers == ["control/cycle.py"]


def test_cycle_is_what_the_simulator_drives() -> None:
    importers = [
        str(path.relative_to(SOURCE))
        for path in sources("sim")
        for _, name in imported(parsed(path))
        if name == "mirab.control.cycle.cycle"
    ]
    assert importers, "the simulator does not drive control.cycle"


def called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


# --- no iteration over sets: their order is that of hashes -----------------------------------------------------------

ORDER_FREE = ("sorted", "len", "sum", "any", "all", "set", "frozenset", "min", "max", "bool")
"""Callers for which the order of a set does not matter (min and max: unless they have a key)."""
ORDERED = ("list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "dict", "join", "fromkeys", "pop")


def set_iterations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines where the order of a set could leak: loops, comprehensions and ordered callers over a known set."""
    known = set_names(tree)
    order_free = {
        id(comprehension)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in ORDER_FREE and not node.keywords
        for comprehension in node.args
        if isinstance(comprehension, ast.GeneratorExp | ast.ListComp)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and is_set(node.iter, known):
            yield node.lineno, ast.unparse(node.iter)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in order_free:
            yield from ((node.lineno, ast.unparse(part.iter)) for part in node.generators if is_set(part.iter, known))
        elif isinstance(node, ast.Call):
            ordered = called(node) in ORDERED or (called(node) in ("min", "max") and node.keywords)
            over = [
                *node.args,
                *([node.func.value] if called(node) == "pop" and isinstance(node.func, ast.Attribute) else []),
            ]
            yield from ((node.lineno, ast.unparse(part)) for part in over if ordered and is_set(part, known))
        elif isinstance(node, ast.Starred) and is_set(node.value, known):
            yield node.lineno, ast.unparse(node.value)


def is_set(node: ast.expr, known: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return called(node) in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return is_set(node.left, known) or is_set(node.right, known)
    return ast.unparse(node) in known


def set_names(tree: ast.AST) -> set[str]:
    """Names and attributes that are annotated as sets or given one anywhere in the file."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("set[", "frozenset[")):
            found.add(ast.unparse(node.target))
            found.add(f"self.{ast.unparse(node.target)}")
        elif isinstance(node, ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).startswith(("set[", "frozenset[")):
                found.add(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            found.update(ast.unparse(target) for target in node.targets)
    return found


@pytest.mark.parametrize("layer", ["model", "core", "control", "sim", "study"])
def test_no_set_is_iterated(layer: str) -> None:
    """Same input, same bytes out under every hash seed."""
    wrong = [
        f"{where(path, line)} takes the order of a set: {text}"
        for path in sources(layer)
        for line, text in set_iterations(parsed(path))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("for x in {1, 2}: pass", True),
        ("a = set(b)\nc = list(a)", True),
        ("a: set[int] = f()\n[x for x in a]", True),
        ("def f(a: frozenset[str]):\n    return ', '.join(a)", True),
        ("a = set()\na.pop()", True),
        ("a = {1}\nmax(a, key=f)", True),
        ("a = set(b)\nfor x in sorted(a): pass", False),
        ("a = {1}\nany(x > 1 for x in a)", False),
        ("a = {1: 2}\nfor x in a: pass", False),
    ],
)
def test_the_search_for_iterated_sets_finds_them(text: str, caught: bool) -> None:
    assert bool(list(set_iterations(ast.parse(text)))) is caught


# --- numbers, size, edges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", PURE)
def test_the_pure_layers_write_no_fractions(layer: str) -> None:
    """Amounts and times are integers; a float is only the result of a division, compared with 0, 1 or infinity."""
    wrong = [
        f"{where(path, node.lineno)} writes {node.value}"
        for path in sources(layer)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in (0.0, 1.0)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(SOURCE)): lines
        for path in sources(*MAY_IMPORT)
        if (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE
    }
    assert not long, f"over {LONGEST_FILE} lines: {long}"


@pytest.mark.parametrize("layer", ["logs", "cli"])
def test_the_edges_answer_wrong_input_with_sentences_not_assertions(layer: str) -> None:
    """`assert x is not None` and `assert isinstance(...)` may tell the type checker what the code has made sure of."""
    wrong = [
        f"{where(path, node.lineno)} asserts {ast.unparse(node.test)}"
        for path in sources(layer)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assert) and not narrows(node.test)
    ]
    assert not wrong, "\n".join(wrong)


def narrows(test: ast.expr) -> bool:
    if isinstance(test, ast.Call):
        return called(test) == "isinstance"
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
