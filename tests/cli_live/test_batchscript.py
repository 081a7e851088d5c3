"""The lines of options of a batch script, by Slurm's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.cli.batchscript import ScriptError, read_script, split_words


def asked(text: str) -> list[tuple[str, str]]:
    return [(each.option.field, each.value) for each in read_script(text).asked]


def test_options_up_to_the_first_command_count() -> None:
    script = read_script(
        "#!/bin/bash\n# a comment\n\n#SBATCH -J train -N 2\n#SBATCH --time=1:00:00\n#MIRAB --min-runtime 30m\n"
        "echo hi\n#SBATCH --nodes=9\n"
    )
    assert [(each.option.field, each.value, each.line) for each in script.asked] == [
        ("job_name", "train", 4),
        ("nodes", "2", 4),
        ("time", "1:00:00", 5),
        ("min_runtime", "30m", 6),
    ]
    assert script.warnings == ("line 8: #SBATCH after the first command has no effect: move it up",)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("--job-name=x", "x"),
        ("--job-name x", "x"),
        ("-J x", "x"),
        ("-Jx", "x"),
        ('--job-name="two words"', "two words"),
        ("--job-name='two words'", "two words"),
        (r"--job-name=two\ words", "two words"),
        ("--job-name=x # why", "x"),
        ("--job-name=a#b", "a#b"),
        ("--job-name=''", ""),
    ],
)
def test_the_forms_of_an_option(line: str, value: str) -> None:
    assert asked(f"#!/bin/sh\n#SBATCH {line}\n") == [("job_name", value)]


def test_marks_are_whole_words_at_the_beginning() -> None:
    assert asked("#!/bin/sh\n#SBATCHx -J a\n #SBATCH -J b\n##SBATCH -J c\n# SBATCH -J d\n") == []
    assert asked("#!/bin/sh\n#SBATCH\t-J a\n") == [("job_name", "a")]


def test_flags_without_value() -> None:
    assert asked("#!/bin/sh\n#SBATCH -H --no-requeue\n") == [("hold", ""), ("resume", "")]
    with pytest.raises(ScriptError, match="line 2: --hold takes no value"):
        read_script("#!/bin/sh\n#SBATCH --hold=yes\n")


def test_what_slurm_knows_and_mirab_does_not_is_ignored_and_named() -> None:
    script = read_script(
        "#!/bin/sh\n#SBATCH --mail-type=END --wckey k -J x\n#SBATCH -p gpu\n#SBATCH --exclusive\n#SBATCH -Q\n"
    )
    assert [each.value for each in script.asked] == ["x"]
    assert script.warnings == (
        "line 2: --mail-type is ignored: mirab sends no mail; `mirab await` tells when a job ends",
        "line 2: --wckey is not known here and is ignored",
        "line 3: -p is ignored: mirab chooses the nodes; ask for a type with --gpu-type",
        "line 4: --exclusive is ignored: ask for a node's GPUs with --gpus-per-node",
        "line 5: -Q is not known here and is ignored",
    )


def test_an_unknown_option_of_mirab_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ScriptError, match=r"line 2: there is no option --min-runtim; did you mean --min-runtime\?"):
        read_script("#!/bin/sh\n#MIRAB --min-runtim=1h\n")
    with pytest.raises(ScriptError, match="see mirab submit --help"):
        read_script("#!/bin/sh\n#MIRAB --qqqqqq=1h\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("echo hi\n", "first line must name the interpreter"),
        ("#!/bin/sh\r\necho\r\n", "dos2unix"),
        (
            "\ufeff#!/bin/sh\necho hi\n",
            "a byte order mark, which no shell understands: save it as UTF-8",
        ),
        ("#!/bin/sh\n\0", "NUL"),
        ("#!/bin/sh\n#SBATCH --time\n", "line 2: --time needs a value: --time TIME"),
        ("#!/bin/sh\n#SBATCH -J 'a\n", "line 2: a ' has no partner"),
        ("#!/bin/sh\n#SBATCH time=5\n", "line 2: 'time=5' is not an option"),
    ],
)
def test_what_cannot_be_submitted_says_why(text: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read_script(text)
    assert message in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        read_script("#!/bin/sh\n#SBATCH " + text)
    except ScriptError as error:
        assert str(error)


@given(st.lists(st.text(alphabet="ab \t'\"\\#$")))
def test_words_that_are_quoted_come_back_as_they_were(words: list[str]) -> None:
    line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    assert split_words(line) == words
