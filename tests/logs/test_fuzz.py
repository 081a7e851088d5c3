"""Whatever a file holds, reading it ends in a sentence or in counted rows: never in another exception or a hang.

Each run tries the same files, so that nobody's change fails for what it has not touched. To search for new ones:
`pytest tests/logs/test_fuzz.py --hypothesis-profile=thorough`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.logs.clusterfile import read_cluster_file, read_policy
from mirab.logs.contracts import read_contract
from mirab.logs.detect import FORMS, load
from mirab.logs.errors import LogError
from mirab.logs.nodeevents import read_node_events
from mirab.logs.options import LoadOptions
from mirab.model.trace import Trace
from tests.examples import examples
from tests.logs.helpers import FIXTURES, adds_up
from tests.logs.test_clusterfile import CONTRACT

SAMPLES = {
    "native.csv": "native", "sacct.txt": "sacct", "headerless.log": "sacct", "small.swf": "swf", "philly.csv": "philly",
    "philly.json": "philly-json", "helios.csv": "helios", "seren.csv": "acme", "kalos.csv": "acme",
    "pods.csv": "alibaba", "history.condor": "htcondor",
}  # fmt: skip
HOSTILE = [
    b"", b"-1", b"0", b"1e400", b"-1e400", b"NaN", b"inf", b"9" * 400, b"-" + b"9" * 30, b"0.0000001", b"1_000",
    b"900000", b"\x00", b"\xff\xfe", b'"', b"'", b"|", b",", b"\n", b"\r", b"[0-999999999]", b"[1-", b"None",
    b"Unknown", b"null", b"{}", b"[[[", b"9999-99-99T99:99:99", b"0001-01-01T00:00:00+14:00", b"2024-02-30",
    b"99999999-00:00:00", b"gres/gpu=1e9", "１２٣".encode(), "\u2028\u202e".encode(), b"a/b//c/", b"/",
    b"../..", b"*** ", b"; UnixStartTime: 1e400\n", b"/".join([b"x"] * 3000),
]  # fmt: skip
YAML_HOSTILE = [
    *HOSTILE, b"&a", b"*a", b"!!python/object:os.system", b"<<: *a", b": ", b"? ", b"- ", b"{", b"}", b"%YAML 9.9\n",
    b"---\n", b"...", b"\t", b"~", b"yes", b"1:00:00", b"101%", b"-5%", b"1e9%", b"8h", b"#", b"n[0-999999999]",
    b"n[1-3]",
]  # fmt: skip
FAST = settings(max_examples=examples(40))


@st.composite
def edits(draw: st.DrawFn, hostile: list[bytes]) -> Callable[[bytes], bytes]:
    """A few changes at places given as parts of the whole, so that they shrink well on any sample."""
    place = st.floats(0, 1, allow_nan=False)
    piece = st.one_of(st.sampled_from(hostile), st.binary(max_size=12))
    one = st.tuples(st.sampled_from(["cut", "insert", "replace", "field", "repeat", "drop"]), place, place, piece)
    steps = draw(st.lists(one, min_size=1, max_size=6))

    def edit(raw: bytes) -> bytes:
        for kind, where, other, new in steps:
            raw = _edited(raw, kind, where, other, new)
        return raw[:50_000]

    return edit


def _edited(raw: bytes, kind: str, where: float, other: float, new: bytes) -> bytes:
    low, high = sorted((int(where * len(raw)), int(other * len(raw))))
    if kind == "cut":
        return raw[:low]
    if kind == "insert":
        return raw[:low] + new + raw[low:]
    if kind == "replace":
        return raw[:low] + new + raw[low + len(new) :]
    if kind == "repeat":
        return raw[:high] + raw[low:]
    if kind == "drop":
        return raw[:low] + raw[high:]
    ends = [raw.find(mark, low) for mark in (b",", b"|", b"\n", b" ") if raw.find(mark, low) >= 0]
    begins = [raw.rfind(mark, 0, low) + 1 for mark in (b",", b"|", b"\n", b" ")]
    return raw[: max(begins)] + new + raw[min(ends, default=len(raw)) :]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "file"


def reads_soundly(path: Path, raw: bytes, options: LoadOptions) -> Trace | None:
    """The trace, after checking what must hold of any; None if the answer was a sentence."""
    path.write_bytes(raw)
    try:
        trace = load(path, options)
    except LogError as error:
        assert str(error)
        assert "\n" not in error.what.replace("\\n", "")
        return None
    assert trace.arrivals
    if options.overlay is None and options.scale == 1:
        assert adds_up(trace)
    keys = [(arrival.workload.submitted_at, arrival.workload.id) for arrival in trace.arrivals]
    assert keys == sorted(keys)
    assert len(set(keys)) == len({arrival.workload.id for arrival in trace.arrivals}) == len(keys)
    for arrival in trace.arrivals:
        shape = arrival.workload.shape
        assert arrival.run > 0 <= arrival.workload.submitted_at
        assert shape.nodes > 0 and (shape.gpus_per_node > 0 or shape.cpus_per_node > 0)
        assert min(shape.min_runtime, shape.grace, arrival.workload.checkpoint, arrival.workload.restart) >= 0
        assert arrival.workload.account and arrival.workload.user
    assert trace.starts_at < trace.ends_at
    assert sum(budget.share for budget in trace.budgets.roots) <= 10**9
    repr(trace).encode()
    return trace


CHOICES = st.sampled_from(
    [
        {}, {"unit": "gpu"}, {"unit": "cpu"}, {"unit": "node"}, {"overlay": "3x7h"}, {"scale": 2.5}, {"scale": 0.5},
        {"from_": "1m"}, {"to": "2017-10-09"}, {"account_by": "user"}, {"timezone": "Europe/Berlin"},
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
@FAST
@given(edit=edits(HOSTILE), choice=CHOICES, forced=st.booleans())
def test_damaged_logs(
    path: Path, name: str, edit: Callable[[bytes], bytes], choice: dict[str, str], forced: bool
) -> None:
    form = SAMPLES[name] if forced else None
    reads_soundly(path, edit((FIXTURES / name).read_bytes()), LoadOptions(form=form, **choice))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=1500)
@given(edit=edits(HOSTILE), choice=CHOICES, forced=st.booleans())
def test_damaged_logs_for_long(
    path: Path, name: str, edit: Callable[[bytes], bytes], choice: dict[str, str], forced: bool
) -> None:
    form = SAMPLES[name] if forced else None
    reads_soundly(path, edit((FIXTURES / name).read_bytes()), LoadOptions(form=form, **choice))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [None, *FORMS])
@FAST
@given(raw=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_garbage_in_any_form(path: Path, form: str | None, raw: bytes) -> None:
    reads_soundly(path, raw, LoadOptions(form=form))


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith((".csv", ".txt"))])
def test_each_field_hostile(path: Path, name: str, value: bytes) -> None:
    """Every field of the first row in turn."""
    lines = (FIXTURES / name).read_bytes().split(b"\n")
    separator = b"|" if name == "sacct.txt" else b","
    fields = lines[1].split(separator)
    for index in range(len(fields)):
        row = separator.join([*fields[:index], value, *fields[index + 1 :]])
        reads_soundly(path, b"\n".join([lines[0], row, *lines[2:]]), LoadOptions())


POLICY = b"policy:\n  name: mine\n  base: fifo\n  window: 7d\n  margin: 10%\n  half_life: none\n"
READERS: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "cluster": (read_cluster_file, (FIXTURES / "cluster.yaml").read_bytes()),
    "contract": (read_contract, CONTRACT.encode()),
    "policy": (read_policy, POLICY),
    "events": (lambda path: read_node_events(path, ["n001"], None), (FIXTURES / "node_events.csv").read_bytes()),
}


@pytest.mark.parametrize("kind", READERS)
@FAST
@given(edit=edits(YAML_HOSTILE))
def test_damaged_files_beside_the_log(path: Path, kind: str, edit: Callable[[bytes], bytes]) -> None:
    _reads_beside(path, kind, edit)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=800)
@given(edit=edits(YAML_HOSTILE))
def test_damaged_files_beside_the_log_for_long(path: Path, kind: str, edit: Callable[[bytes], bytes]) -> None:
    _reads_beside(path, kind, edit)


def _reads_beside(path: Path, kind: str, edit: Callable[[bytes], bytes]) -> None:
    reader, sample = READERS[kind]
    path.write_bytes(edit(sample))
    try:
        found = reader(path)
        if kind == "cluster":
            assert hasattr(found, "exemptions")
            found.reservations(1_700_000_000_000)  # type: ignore[attr-defined]
            found.exemptions(1_700_000_000_000)
            found.budget_changes(1_700_000_000_000)  # type: ignore[attr-defined]
    except LogError as error:
        assert "\n" not in error.what


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUGHS, id="laughs"),
        pytest.param("[" * 20_000, id="brackets", marks=pytest.mark.slow),
        pytest.param("{a: " * 5_000, id="braces"),
        pytest.param("cluster: {pools: {p: {nodes: 'n[0-199999]m[0-199999]'}}}\n", id="nodes"),
    ],
)
def test_a_small_file_cannot_become_a_large_one(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(LogError):
        read_cluster_file(path)
