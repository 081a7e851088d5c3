"""The record of a replay: written the same each time, read back as it was, and read as far as it goes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mirab.model.policy import Policy
from mirab.study.journalfile import cycles, read_header, records
from tests.study_page.records import BUDGETS, CLUSTER, small_record

CYCLES = 10


@pytest.mark.parametrize("name", ["record.jsonl", "record.jsonl.gz"])
def test_read_back_as_written(tmp_path: Path, name: str) -> None:
    small_record(tmp_path / name)
    header = read_header(tmp_path / name)
    assert (header.trace, header.policy, header.cluster, header.budgets) == ("a small log", Policy(), CLUSTER, BUDGETS)
    read = list(records(tmp_path / name))
    assert len(read) == CYCLES
    assert [plan.based_on for _, plan in read] == [1, 2, 5, 7, 8, 8, 10, 11, 12, 14]
    assert [fact.at for facts, _ in read for fact in facts] == sorted(fact.at for facts, _ in read for fact in facts)


def test_zipped_and_plain_hold_the_same(tmp_path: Path) -> None:
    small_record(tmp_path / "a.jsonl")
    small_record(tmp_path / "a.jsonl.gz")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "a.jsonl").read_bytes()


def test_same_replay_same_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        small_record(tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("name", ["record.jsonl", "record.jsonl.gz"])
def test_a_record_cut_off_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    small_record(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-40])
    assert len(list(cycles(tmp_path / name))) < CYCLES


def test_lines_that_mention_a_name(tmp_path: Path) -> None:
    small_record(tmp_path / "r.jsonl")
    assert 0 < len(list(cycles(tmp_path / "r.jsonl", mentioning="quitter"))) < CYCLES
    assert not list(cycles(tmp_path / "r.jsonl", mentioning="nobody"))


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "its first line is no header"),
        (b"job,start,end\n", "line 1: not JSON"),
        (b'{"a": 1}\n', "its first line is no header"),
        (b"[1]\n", "its first line is no header"),
        (b'{"mirab_journal": 99}\n', "has form 99; this version reads 1"),
        (b"\xff\xfe\x00\n", "line 1: not JSON"),
    ],
)
def test_what_is_no_record_says_so(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=told):
        read_header(tmp_path / "x")
