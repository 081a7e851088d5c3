"""Exit codes and sentences: one table, every error a sentence, never a traceback."""

from __future__ import annotations

import errno

import click
import pytest

from mirab.cli import exits
from mirab.cli.exits import (
    TABLE,
    ConflictError,
    Exit,
    GateNotMetError,
    NotFoundError,
    ReaderGoneError,
    UnusableError,
    report,
)
from tests.cli.conftest import Mirab


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("no such option"), 2),
        (click.BadParameter("not a number"), 2),
        (NotFoundError("no such workload"), 3),
        (FileNotFoundError(errno.ENOENT, "", "jobs.csv"), 3),
        (PermissionError(errno.EACCES, "", "jobs.csv"), 4),
        (ConflictError("would overwrite"), 5),
        (FileExistsError(errno.EEXIST, "", "jobs.csv"), 5),
        (GateNotMetError("occupancy 0.9, wanted 0.95"), 6),
        (TimeoutError(errno.ETIMEDOUT, "timed out", "jobs.csv"), 7),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused", "server"), 8),
        (IsADirectoryError(errno.EISDIR, "", "jobs"), 2),
        (UnusableError("line 3 is not YAML"), 1),
        (OSError(errno.ENOSPC, "", "report.json"), 1),
        (MemoryError(), 1),
        (ZeroDivisionError("division by zero"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (BrokenPipeError(errno.EPIPE, ""), 141),
        (ReaderGoneError(), 141),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert told.err.count("\n") == (0 if code in (130, 141) else 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["completion"],
            "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish. See 'mirab completion --help'.",
        ),
        (["synth", "--nodes", "many"], "Invalid value for '--nodes': 'many' is not a whole number. See"),
    ],
)
def test_what_click_says_is_one_line_of_plain_words(words: list[str], told: str, mirab: Mirab) -> None:
    said = mirab(*words)
    assert said.code == 2
    assert said.err.startswith(f"mirab: {told}") and said.err.count("\n") == 1


@pytest.mark.parametrize("number", sorted(exits._OS_ADVICE))
def test_what_the_system_refuses_names_the_file_and_what_to_do(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    report(OSError(number, "words of the system", "some/file"))
    told = capsys.readouterr().err
    assert told.startswith("mirab: some/file ")
    assert ":" in told.removeprefix("mirab:")
    assert "words of the system" not in told


def test_a_folder_that_is_gone_is_named_although_the_system_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    report(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    assert capsys.readouterr().err.startswith("mirab: the folder you are in does not exist")


def test_an_unknown_refusal_of_the_system_keeps_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    report(OSError(errno.EIO, "Input/output error", "some/file"))
    assert "some/file could not be used: Input/output error." in capsys.readouterr().err


def test_a_fault_of_mirab_says_how_to_see_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIRAB_TRACEBACK", raising=False)
    report(KeyError("n001"))
    told = capsys.readouterr().err
    assert "KeyError: 'n001'" in told
    assert "MIRAB_TRACEBACK=1" in told


def test_the_traceback_is_there_for_who_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAB_TRACEBACK", "1")
    try:
        raise KeyError("n001")
    except KeyError as error:
        report(error)
    assert "Traceback" in capsys.readouterr().err


def test_the_table_has_no_row_that_an_earlier_one_hides() -> None:
    kinds = [kind for kind, _, _ in TABLE]
    hidden = [(later, earlier) for i, later in enumerate(kinds) for earlier in kinds[:i] if issubclass(later, earlier)]
    assert not hidden


def test_every_exit_code_of_the_design_is_there() -> None:
    assert [code for code in Exit if code < 100] == list(range(9))
