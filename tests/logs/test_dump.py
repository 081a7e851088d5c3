"""What is written reads back to the same values."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mirab.logs.clusterfile import read_cluster_file
from mirab.logs.detect import load
from mirab.logs.dump import write_cluster, write_native, write_node_events
from mirab.logs.nodeevents import read_node_events
from mirab.logs.options import LoadOptions
from mirab.model.accounts import Budget, Budgets
from mirab.model.nodelists import compress, expand
from mirab.model.resources import Cluster, Pool
from mirab.model.units import WHOLE, NodeName
from tests.logs.helpers import FIXTURES

CLUSTER = FIXTURES / "cluster.yaml"


def test_a_native_log_reads_back(tmp_path: Path) -> None:
    for name in ("native.csv", "sacct.txt", "pods.csv", "small.swf", "seren.csv"):
        first = load(FIXTURES / name, LoadOptions(overlay="2x1h"))
        for ending in ("log.csv", "log.csv.gz"):
            write_native(tmp_path / ending, first)
            write_cluster(tmp_path / "c.yaml", first.cluster, first.budgets)
            again = load(tmp_path / ending, LoadOptions(cluster=tmp_path / "c.yaml"))
            assert list(again.arrivals) == list(first.arrivals), name
            assert (again.cluster.pools, again.budgets) == (first.cluster.pools, first.budgets)
            assert again.cluster.unit == first.cluster.unit


def test_the_same_value_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = load(FIXTURES / "native.csv")
    write_native(tmp_path / "a.csv.gz", trace)
    write_native(tmp_path / "b.csv.gz", trace)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_a_cluster_file_reads_back(tmp_path: Path) -> None:
    file = read_cluster_file(CLUSTER)
    assert file.cluster is not None
    write_cluster(tmp_path / "c.yaml", file.cluster, file.budgets, "made by a test\nof two lines")
    again = read_cluster_file(tmp_path / "c.yaml")
    assert (again.cluster, again.budgets) == (file.cluster, file.budgets)


def test_node_events_read_back(tmp_path: Path) -> None:
    names = [f"n{number:03d}" for number in range(16)]
    troubles, _ = read_node_events(FIXTURES / "node_events.csv", names, None)
    write_node_events(tmp_path / "e.csv.gz", troubles)
    assert read_node_events(tmp_path / "e.csv.gz", names, None) == (troubles, [])


WORDS = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=12)
NAMES = WORDS.map(lambda text: text.replace("/", "-").replace(":", "-").strip()).filter(bool)


@given(NAMES, NAMES, WORDS, st.integers(0, WHOLE), st.booleans())
def test_any_name_reads_back(name: str, child: str, hypothesis: str, share: int, flag: bool) -> None:
    import tempfile

    leaf = Budget(child, WHOLE - share, save_for_gangs=flag, equal_users=not flag)
    whole = Budget(name, share, (leaf,), owner=child, hypothesis=hypothesis, pool_shares=((name, WHOLE - share),))
    budgets = Budgets((whole,))
    pool = Pool(name, (NodeName("a1"), NodeName("a2"), NodeName("b")), 8, gpu_type=child, weight=share % 999 + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.yaml"
        write_cluster(path, Cluster(name, (pool,)), budgets)
        file = read_cluster_file(path)
    assert (file.cluster, file.budgets) == (Cluster(name, (pool,)), budgets)


@given(st.lists(st.from_regex(r"[a-z]{1,2}-?[0-9]{0,3}", fullmatch=True), unique=True, max_size=30))
def test_node_lists_read_back(names: list[str]) -> None:
    assert expand(compress(names)) == names
    assert compress(expand("n[000-127]")) == "n[000-127]"
