"""The record of a replay: written the same each time, read back as it was, and read as far as it goes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mirab.model.policy import Policy
from mirab.study.journalfile import cycles, facts_mentioning, read_header, records
from tests.study_page.records import BUDGETS, CLUSTER, small_record

CYCLES = 10


@pytest.mark.parametrize("name", ["record.jsonl", "record.jsonl.gz"])
def test_read_back_as_written(tmp_path: Path, name: str) -> None:
    written = small_record(tmp_path / name)
    header = read_header(tmp_path / name)
    assert (header.trace, header.policy, header.cluster, header.budgets) == ("a small log", Policy(), CLUSTER, BUDGETS)
    assert [(list(facts), plan) for facts, plan in records(tmp_path / name)] == written
    assert len(written) == CYCLES


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


def test_facts_that_mention_a_name(tmp_path: Path) -> None:
    small_record(tmp_path / "r.jsonl")
    found = list(facts_mentioning(tmp_path / "r.jsonl", "quitter"))
    assert {fact["type"] for fact in found} >= {"WorkloadSubmitted", "WorkloadCancelled"}
    assert len(found) < len([fact for cycle in cycles(tmp_path / "r.jsonl") for fact in cycle["facts"]])
    assert not list(facts_mentioning(tmp_path / "r.jsonl", "nobody"))


def test_reasons_of_some_queues_only(tmp_path: Path) -> None:
    small_record(tmp_path / "r.jsonl")
    every = [record for cycle in cycles(tmp_path / "r.jsonl") for record in cycle["waiting"]]
    some = [record for cycle in cycles(tmp_path / "r.jsonl", lambda queue: queue["user"] == "cy")
            for record in cycle["waiting"]]  # fmt: skip
    assert some == [record for record in every if record["user"] == "cy"] != []


def test_a_queue_is_described_once(tmp_path: Path) -> None:
    small_record(tmp_path / "r.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    described = [queue for line in lines for queue in line.get("queues", ())]
    assert [(queue["account"], queue["user"]) for queue in described] == [("language", "ana"), ("vision", "cy")]


def test_reasons_without_their_plan_are_no_record(tmp_path: Path) -> None:
    small_record(tmp_path / "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_bytes().splitlines(keepends=True)
    torn = next(place for place, line in enumerate(lines) if line.startswith(b'{"queues"'))
    (tmp_path / "r.jsonl").write_bytes(b"".join(lines[: torn + 1]))
    assert list(records(tmp_path / "r.jsonl")) == []


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "its first line is no header"),
        (b"job,start,end\n", "its first line is no header"),
        (b'{"a": 1}\n', "its first line is no header"),
        (b"[1]\n", "its first line is no header"),
        (b'{"mirab_journal": 99}\n', "has form 99; this version reads 1"),
        (b"\xff\xfe\x00\n", "its first line is no header"),
    ],
)
def test_what_is_no_record_says_so(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=told):
        read_header(tmp_path / "x")
