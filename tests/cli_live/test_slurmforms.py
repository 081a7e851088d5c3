"""Times, memory, GPUs and signals as sbatch's users write them."""

from __future__ import annotations

import pytest

from mirab.cli.slurmforms import Gpus, gpus, gres, memory_mib, node_count, signal_notice, slurm_time, span_text
from mirab.model.units import DAY, HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("60", 60 * MINUTE),
        ("0", 0),
        ("5:30", 5 * MINUTE + 30 * SECOND),
        ("1:00:00", HOUR),
        ("100:00:00", 100 * HOUR),
        ("1-0", DAY),
        ("1-12", DAY + 12 * HOUR),
        ("1-12:30", DAY + 12 * HOUR + 30 * MINUTE),
        ("2-0:0:5", 2 * DAY + 5 * SECOND),
        ("90m", 90 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("unlimited", None),
        ("INFINITE", None),
    ],
)
def test_times(text: str, span: int | None) -> None:
    assert slurm_time(text) == span


@pytest.mark.parametrize("text", ["", "abc", "1:2:3:4", "-5", "1-", "1:", "5 minutes", "१"])
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write minutes"):
        slurm_time(text)


def test_spans_reach_the_api_exactly() -> None:
    assert (span_text(90 * MINUTE), span_text(1_500), span_text(0)) == ("5400s", "1500ms", "0s")


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("4000", 4000), ("64G", 65536), ("64GB", 65536), ("64GiB", 65536), ("2T", 2 << 20), ("1K", 1), ("1025k", 2)],
)
def test_memory(text: str, mebibytes: int) -> None:
    assert memory_mib(text) == mebibytes


def test_gpus_in_all_their_forms() -> None:
    assert gpus("4") == Gpus(4)
    assert gpus("H100:4") == Gpus(4, "h100")
    assert gpus("h100") == Gpus(1, "h100")
    assert gres("gpu:4") == (Gpus(4), [])
    assert gres("gpu") == (Gpus(1), [])
    assert gres("gpu:h100:4(S:0-1),craynetwork:1") == (Gpus(4, "h100"), ["craynetwork:1"])
    assert gres("gres:gpu:2,gres/gpu:1") == (Gpus(3), [])
    assert gres("none") == (Gpus(0), [])


@pytest.mark.parametrize("text", ["x:y", "-1", "4:h100", "1e3", "99999999"])
def test_what_is_no_number_of_gpus(text: str) -> None:
    with pytest.raises(ValueError, match="not a number of GPUs"):
        gpus(text)


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("USR1@120", ("USR1", 120)),
        ("B:USR1@120", ("USR1", 120)),
        ("R:10@30", ("USR1", 30)),
        ("SIGTERM", ("TERM", 60)),
        ("sigint@5", ("INT", 5)),
    ],
)
def test_signals(text: str, notice: tuple[str, int]) -> None:
    assert signal_notice(text) == notice


@pytest.mark.parametrize("text", ["BANG@5", "99", "USR1@", "@5", ""])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(ValueError, match="is not a signal"):
        signal_notice(text)


def test_of_a_range_of_nodes_the_fewest_count() -> None:
    assert (node_count("4"), node_count("2-8")) == (4, 2)
    with pytest.raises(ValueError, match="not a number of nodes"):
        node_count("0")
