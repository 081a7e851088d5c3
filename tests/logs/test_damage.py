"""Files as they come: packed, cut, with a BOM, with the wrong line ends, bad bytes, empty."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import tarfile
from pathlib import Path
from random import Random

import pytest

from mirab.logs.detect import load
from mirab.logs.errors import LogError
from mirab.logs.intake import FIELDS_MISSING, LONGEST_NAME
from mirab.logs.options import LoadOptions
from tests.logs.helpers import FIXTURES, adds_up, dropped, ids, native, read

PLAIN = native("1,0,a,u,1,1,60", "2,5,a,u,1,1,60")
ALL = sorted(
    path.name for path in FIXTURES.iterdir() if path.suffix not in (".md", ".yaml") and "node" not in path.name
)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("how", ["gzip", "bom", "crlf", "gzip bom crlf", "no end of line", "blank lines"])
def test_line_49_any_form_packed_with_bom_or_crlf_reads_the_same(tmp_path: Path, name: str, how: str) -> None:
    raw = (FIXTURES / name).read_bytes()
    if "crlf" in how:
        raw = raw.replace(b"\n", b"\r\n")
    if how == "no end of line":
        raw = raw.rstrip(b"\n")
    if how == "blank lines":
        before = b"" if name == "philly.csv" else b"\n\n"  # its jobs are numbered by line
        raw = before + raw + b"\n \n"
    if "bom" in how:
        raw = b"\xef\xbb\xbf" + raw
    if "gzip" in how:
        raw = gzip.compress(raw)
    plain, changed = load(FIXTURES / name), read(tmp_path, raw)
    assert changed.arrivals == plain.arrivals
    assert dropped(changed) == dropped(plain)
    assert changed.rows == plain.rows


def test_line_49_names_in_utf8_survive_and_bad_bytes_are_counted(tmp_path: Path) -> None:
    good = read(tmp_path, native("1,0,größe/東京,zoë,1,1,60"))
    assert (good.arrivals[0].workload.account, good.arrivals[0].workload.user) == ("größe/東京", "zoë")
    bad = read(tmp_path, PLAIN.encode().replace(b",u,", b",\xff\xfe,"))
    assert bad.arrivals[0].workload.user == "\ufffd\ufffd"
    assert "lines with bytes that are not UTF-8, replaced: 2 (first at line 2)" in bad.notes


@pytest.mark.parametrize("raw", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0), b"\x00\x00\x00"])
def test_line_49_an_empty_file_is_one_sentence(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(LogError, match=r"log: is empty: give a log with at least one job"):
        read(tmp_path, raw)


def test_line_49_a_header_without_rows_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="has no rows"):
        read(tmp_path, native())


def test_line_49_a_truncated_last_line_is_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, PLAIN + "3,9,a,u,1")
    assert trace.dropped == {FIELDS_MISSING: (1, (4,))}
    assert ids(trace) == ["1", "2"]
    swf = (FIXTURES / "small.swf").read_text() + "    5  300 0 36"
    assert dropped(read(tmp_path, swf))[FIELDS_MISSING] == 1


def test_line_49_a_truncated_gzip_file_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    rows = native(*(f"{number},{number},acc{number * 7919 % 997},u,1,1,60" for number in range(5000)))
    packed = gzip.compress(rows.encode())
    trace = read(tmp_path, packed[: len(packed) // 2])
    assert 500 < len(trace.arrivals) < 4500
    assert any("the file is cut short after line" in note for note in trace.notes)
    with pytest.raises(LogError):
        read(tmp_path, packed[:15])


def test_line_49_a_truncated_json_gives_the_jobs_before(tmp_path: Path) -> None:
    raw = (FIXTURES / "philly.json").read_text()
    trace = read(tmp_path, raw[: raw.index("application_1_0002")])
    assert ids(trace) == ["application_1_0001"]
    assert any("the JSON breaks off, or is damaged, in the job at line 15" in note for note in trace.notes)


def test_line_49_unsorted_rows_arrive_in_order(tmp_path: Path) -> None:
    trace = read(tmp_path, native("b,50,a,u,1,1,60", "a,50,a,u,1,1,60", "c,7,a,u,1,1,60"))
    assert ids(trace) == ["c", "a", "b"]


def test_an_unbalanced_quote_spoils_one_row_only(tmp_path: Path) -> None:
    trace = read(tmp_path, native('1,0,"a,u,1,1,60', '2,0,"a, b",u,1,1,60', "3,0,a,u,1,1,60"))
    assert ids(trace) == ["2", "3"]
    assert trace.arrivals[0].workload.account == "a, b"
    assert adds_up(trace)


def test_a_repeated_header_and_surplus_fields_are_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, PLAIN + PLAIN.replace("1,0,a", "1,0,a,x").replace("2,5", "9,5"))
    assert dropped(trace) == {"a repeated header": 1, "too many fields (a separator inside a field?)": 1}


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (bz2.compress(PLAIN.encode()), "bzip2-compressed: unpack it"),
        (b"PK\x03\x04rest", "a zip archive"),
        (PLAIN.encode("utf-16"), "UTF-16 text: save it as UTF-8"),
        (b"PAR1" + b"\x01\x02" * 50, "a Parquet file"),
        (b"\x7fELF" + b"\x00\x01" * 500, "not a text"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, raw: bytes, what: str) -> None:
    with pytest.raises(LogError, match=what):
        read(tmp_path, raw)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"none: cannot be read \(No such file or directory\): check the path"):
        load(tmp_path / "none")


def test_lines_are_named_up_to_five(tmp_path: Path) -> None:
    trace = read(tmp_path, native("1,0,a,u,1,1,60", *(f"{n},0,a,u,1,1,x" for n in range(2, 10))))
    assert trace.dropped == {"run_s is not a number of seconds": (8, (3, 4, 5, 6, 7))}


@pytest.mark.slow
def test_line_49_as_many_rows_as_there_are_stream(tmp_path: Path) -> None:
    """In a process of its own: less than 700 bytes of memory a row, so the rows are not held twice.

    A million take 431 bytes each, 300,000 take 427.
    """
    import subprocess
    import sys

    path, rows = tmp_path / "long.csv", 300_000
    with path.open("w") as out:
        out.write("id,submit_s,account,user,nodes,gpus_per_node,run_s,min_runtime_s,time_limit_s\n")
        for number in range(rows):
            out.write(f"{number},{number // 3},acc{number % 15},u{number % 150},1,{1 + number % 8},60,900,3600\n")
    code = (
        "import resource, sys; from mirab.logs.detect import load;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "trace = load(sys.argv[1]); assert len(trace.arrivals) == trace.rows == int(sys.argv[2]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", code, str(path), str(rows)]
    grown = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert grown * 1024 < 700 * rows


AD = """\
ClusterId = {number}
ProcId = 0
QDate = 1600000000
JobStartDate = 1600000010
CompletionDate = 1600000100
Owner = "u"
RequestGpus = 1
"""
ADS = [AD.format(number=number) for number in (1, 2, 3)]


def test_a_folder_with_an_archive_in_it_gives_every_job(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "history.tar.gz", "w:gz") as archive:
        for number, ad in enumerate(ADS[:2]):
            member = tarfile.TarInfo(f"history/{number}")
            member.size = len(ad)
            archive.addfile(member, io.BytesIO(ad.encode()))
    (tmp_path / "history.3").write_text(ADS[2], encoding="utf-8")
    assert len(load(tmp_path).arrivals) == 3


def test_a_folder_of_folders_and_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    with pytest.raises(LogError, match="folder without files"):
        load(tmp_path)
    (tmp_path / "notes").write_text("nothing of interest\n", encoding="utf-8")
    with pytest.raises(LogError, match="none of its files holds a job: name the file of the log"):
        load(tmp_path)


@pytest.mark.parametrize("length", [2, 10])
def test_a_gzip_cut_before_its_first_byte_is_not_called_empty(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"submit_s,account\n" * 99)[:length])
    with pytest.raises(LogError, match="cut short"):
        load(path)


def test_a_pipe_is_refused_before_anything_is_taken_from_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogError, match="is a pipe, and a log is read more than once: save it as a file"):
        load(tmp_path / "pipe")


def test_noise_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(Random(1).randbytes(3000))
    with pytest.raises(LogError, match="is not a text"):
        load(path)


def test_a_name_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"submit_s,account,gpus_per_node,nodes,run_s\n0,{'x' * 10**6},1,1,60\n", encoding="utf-8")
    assert len(load(path).arrivals[0].workload.account) == LONGEST_NAME


@pytest.mark.parametrize(("name", "account"), [("*", "_"), ("a/*/b", "a/_/b"), ("a*", "a*")])
def test_an_account_called_as_what_children_leave_gets_another_name(tmp_path: Path, name: str, account: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"submit_s,account,gpus_per_node,nodes,run_s\n0,{name},1,1,60\n", encoding="utf-8")
    assert load(path).arrivals[0].workload.account == account


def test_columns_that_make_no_job_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a|b\n", encoding="utf-8")
    with pytest.raises(
        LogError, match="--columns names no jobid and no submit and no start and no elapsed and no alloc"
    ):
        load(path, LoadOptions(columns="a,b"))


def test_one_row_that_cannot_be_used_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("submit_s,account,gpus_per_node,nodes,run_s\n0,a,1,1,1e12\n", encoding="utf-8")
    with pytest.raises(LogError, match=r"its only row cannot be used .*beyond a hundred years.*: mend these lines"):
        load(path)


SACCT = {
    "JobID": "7",
    "JobIDRaw": "7",
    "Submit": "2026-03-01T00:00:00",
    "Start": "2026-03-01T00:10:00",
    "Elapsed": "00:40:00",
    "State": "COMPLETED",
    "AllocTRES": "cpu=8,gres/gpu=4,node=1",
}


def _without(tmp_path: Path, *columns: str) -> Path:
    kept = {name: text for name, text in SACCT.items() if name not in columns}
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join(["|".join(kept), "|".join(kept.values())]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("column", "told"), [("Submit", "submit"), ("Start", "start"), ("AllocTRES", "alloctres")])
def test_a_column_that_sacct_was_not_asked_for_is_named(tmp_path: Path, column: str, told: str) -> None:
    with pytest.raises(LogError, match=f"jobs.txt:1: has no column {told}"):
        load(_without(tmp_path, column))


def test_sacct_with_the_raw_ids_alone_is_recognized(tmp_path: Path) -> None:
    assert [arrival.workload.id for arrival in load(_without(tmp_path, "JobID")).arrivals] == ["7"]


def test_a_packed_log_cut_after_its_header_is_not_called_without_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt.gz"
    text = "|".join(SACCT) + "\n" + "".join(map(str, range(9999)))
    path.write_bytes(gzip.compress(text.encode())[:400])
    with pytest.raises(LogError, match=r"cut short after line .*: fetch it again"):
        load(path)
