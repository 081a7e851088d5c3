"""Files appear whole or not at all; nothing that is read is overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirab.cli.exits import ConflictError, NotFoundError, UnusableError
from mirab.cli.output import check_input, check_outputs, json_object, to_json, writing


def test_a_file_takes_its_name_only_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    with pytest.raises(RuntimeError), writing(target) as file:
        file.write("half of the new")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_replacing_a_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    for word in ("Wrote", "Replaced"):
        with writing(target) as file:
            file.write("text")
        assert capsys.readouterr().err == f"{word} {target}\n"
    assert target.read_text() == "text"


def test_new_files_have_the_rights_that_the_person_gives_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with writing(tmp_path / "report.json"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with writing(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left") as raised, writing(Path("/dev/full")) as file:
        file.write("text")
    assert raised.value.filename == "/dev/full"


def test_an_input_is_never_an_output(tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("rows")
    (tmp_path / "same").symlink_to(log)
    with pytest.raises(ConflictError, match="is an input"):
        check_outputs([os.fspath(tmp_path / "same")], [os.fspath(log)])


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    name = os.fspath(tmp_path / "out")
    with pytest.raises(ConflictError, match="two outputs"):
        check_outputs([name, None, "-", name], [])


def test_a_missing_folder_is_found_out_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="mkdir -p"):
        check_outputs([os.fspath(tmp_path / "no" / "report.json")], [])
    with pytest.raises(IsADirectoryError):
        check_outputs([os.fspath(tmp_path)], [])


def test_inputs_are_files_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_input(os.fspath(tmp_path / "no"))
    with pytest.raises(IsADirectoryError):
        check_input(os.fspath(tmp_path))


def test_json_has_no_numbers_that_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json({"ratio": float("nan")})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "is not JSON"),
        (b"[" * 10_000, "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "is JSON of another kind"),
    ],
)
def test_a_file_without_a_json_object_is_told_with_what_to_give(content: bytes, told: str) -> None:
    with pytest.raises(UnusableError, match=rf"r\.json {told}: give a report\."):
        json_object("r.json", content, "give a report")
    assert json_object("r.json", b'{"a": 1}', "give a report") == {"a": 1}
