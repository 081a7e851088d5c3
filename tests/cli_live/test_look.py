"""Commands that look: ls, show, share, squatters, node ls, logs, await, completion."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from mirab.cli.audit import listed
from mirab.cli.columns import formatted, standard
from mirab.cli.exits import InvalidError
from mirab.cli.grid import Column, columns_of, cut, table
from mirab.cli.jobs import parse_ids, parse_states
from mirab.cli.logs import last_lines
from mirab.cli.nodenames import folded, unfolded
from mirab.cli.share import tree
from mirab.cli.show import lines_of
from tests.cli.conftest import Mirab
from tests.cli_live.double import Answer, Asked, Double, job, problem

RUNNING: dict[str, Any] = {
    "state": "RUNNING", "reason": "", "why": "", "attempt": 1, "started_at": "2026-03-01T12:00:00Z",
    "protected_until": "2026-03-01T12:15:00Z", "node_names": ["n000", "n001", "n003"],
}  # fmt: skip


@pytest.fixture
def three(double: Double) -> Double:
    double.jobs = {
        "7": job("7", **RUNNING),
        "8": job("8", user="bob", account="blue"),
        "9": job("9", state="COMPLETED", exit_code=0),
    }
    return double


def test_ls_shows_what_waits_and_runs_in_squeues_columns(mirab: Mirab, three: Double) -> None:
    lines = mirab("ls").out.splitlines()
    assert lines[0].split() == "JOBID NAME USER ACCOUNT ST TIME NODES GPUS NODELIST(REASON)".split()  # noqa: SIM905
    assert lines[1].split()[:5] == ["7", "train", "ann", "red/a", "R"]
    assert lines[1].split()[-1] == "n[000-001,003]"
    assert lines[2].split()[:5] == ["8", "train", "bob", "blue", "PD"]
    assert lines[2].split()[5:] == ["0:00", "1", "8", "(Resources)"]
    assert len(lines) == 3


def test_ls_filters(mirab: Mirab, three: Double) -> None:
    def ids(*words: str) -> list[str]:
        return [each["id"] for each in json.loads(mirab("ls", "--json", *words).out)["jobs"]]

    assert ids("--me") == ["7"]
    assert ids("-u", "bob") == ["8"]
    assert ids("-A", "blue") == ["8"]
    assert ids("-t", "all") == ["7", "8", "9"]
    assert ids("-t", "CD,PD") == ["8", "9"]
    assert ids("9", "7") == ["9", "7"]
    mirab("ls", "-w", "n3", "--label", "x")
    asked = three.requests("GET", "/jobs")[-1]
    assert (asked.query["node"], asked.query["label"]) == (["n3"], ["x"])
    assert mirab("ls", "10").code == 3
    three.special = lambda asked: problem(404, "there is no account bleu") if asked.path == "/share/bleu" else None
    misspelt = mirab("ls", "-A", "bleu")
    assert (misspelt.code, misspelt.out, misspelt.err) == (3, "", "mirab: there is no account bleu.\n")
    assert mirab("ls", "-t", "F", "-w", "n99").code == 3, "no node of that name"
    assert mirab("ls", "-t", "odd").code == 2


def test_long_lists_are_cut_with_a_word_and_paged(mirab: Mirab, double: Double) -> None:
    double.jobs = {str(number): job(str(number)) for number in range(1, 1_206)}
    said = mirab("ls", "--noheader")
    assert len(said.out.splitlines()) == 1_000
    assert said.err == "There are more: these are the first 1,000. --limit 0 shows all.\n"
    said = mirab("ls", "--noheader", "--limit", "0")
    assert (len(said.out.splitlines()), said.err) == (1_205, "")
    assert json.loads(mirab("ls", "--limit", "3", "--json").out)["more"] is True


def test_long_says_why_and_until_when(mirab: Mirab, three: Double) -> None:
    out = mirab("ls", "--long").out
    assert "PROTECTED" in out
    assert "    needs 1 node with 8 free GPUs; 0 are\n" in out
    assert " over " in out.splitlines()[1]


def test_format_letters_as_in_squeue(mirab: Mirab, three: Double) -> None:
    out = mirab("ls", "-o", "%.5i|%3j|%t|%T|%u|%a|%D|%R|%G|%%", "--noheader").out
    assert out.splitlines() == [
        "    7|tra|R|RUNNING|ann|red/a|1|n[000-001,003]|8|%",
        "    8|tra|PD|PENDING|bob|blue|1|(Resources)|8|%",
    ]
    assert mirab("ls", "-o", "%i %j").out.splitlines()[0] == "JOBID NAME"
    said = mirab("ls", "-o", "%Y")
    assert said.code == 2
    assert "%Y stands for nothing" in said.sentence


def test_every_letter_has_a_cell_for_every_state() -> None:
    from mirab.cli.columns import LETTERS
    from mirab.cli.jobs import STATES

    jobs = [job(state=state, started_at="2026-03-01T12:00:00Z") for state in STATES] + [job(time_limit_s=None)]
    lines = formatted(" ".join("%" + letter for letter in LETTERS), jobs)
    assert len(lines) == len(jobs) + 1


def test_names_of_others_cannot_move_the_cursor() -> None:
    wild = job(name="\x1b[31mred\nline\u202e")
    assert "\x1b" not in standard([wild], 0)
    assert len(standard([wild], 0).splitlines()) == 2
    assert "\x1b" not in formatted("%j", [wild])[1]


def test_a_table_shrinks_to_the_terminal_and_never_in_a_pipe() -> None:
    columns = (Column("ID", right=True), Column("NAME", least=4), Column("ACCOUNT", least=4))
    rows = [["1", "n" * 30, "a" * 20]]
    narrow = table(columns, rows, 40)
    assert max(len(line) for line in narrow.splitlines()) <= 40
    assert "…" in narrow
    assert "n" * 30 in table(columns, rows, 0)
    assert max(len(line) for line in table(columns, rows, 5).splitlines()) == 2 + 2 + 4 + 2 + 4


WIDE = {"7": "train", "8": "训练模型", "9": "tune🚀", "10": "e\u0301te\u0301", "11": "한국어-실험-이름이-아주-길다"}
"""Names whose characters take one column, two, or none."""


def ends(lines: list[str], words: str) -> set[int]:
    """The columns of a terminal at which these words begin."""
    return {columns_of(line[: line.index(words)]) for line in lines}


def test_columns_stand_below_each_other_whatever_the_script() -> None:
    jobs = [job(name, name=text) for name, text in WIDE.items()]
    assert [columns_of(text) for text in list(WIDE.values())[:4]] == [5, 8, 6, 3]
    for width in (0, 80):
        assert len(ends(standard(jobs, width, head=False).splitlines(), "ann")) == 1
    for form in ("%8j|", "%.8j|", "%.3j|", "%4j|"):
        assert ends(formatted(form, jobs, head=False), "|") == {int(re.sub(r"\D", "", form))}
    assert all(columns_of(line) <= 80 for line in standard(jobs, 80).splitlines())
    assert cut("训练模型", 5) == "训练…"


def test_show_tells_all_about_a_job(mirab: Mirab, three: Double) -> None:
    out = mirab("show", "8").out
    assert "bob for blue" in out
    zone = time.strftime("%Z", time.localtime(1_772_366_400))
    assert re.search(rf"submitted  .* {zone}$", out, re.MULTILINE)
    assert "PENDING (Resources)" in out
    assert "needs 1 node with 8 free GPUs; 0 are" in out
    assert "minimum runtime 15:00" in out
    assert json.loads(mirab("show", "8", "--json").out)["jobs"][0]["id"] == "8"


def test_show_tells_attempts_and_what_runs(mirab: Mirab, double: Double) -> None:
    run = {
        "id": "7.1", "attempt": 1, "node_names": ["n0"], "gpus": 8, "decided_at": "2026-03-01T12:00:00Z",
        "started_at": "2026-03-01T12:00:01Z", "ended_at": "2026-03-01T13:00:00Z", "outcome": "PREEMPTED",
        "exit_code": 143, "lost_s": 60,
    }  # fmt: skip
    spec = {
        "argv": ["python", "train.py"], "script": "", "cwd": "/home/ann", "output": "mirab-%j.out", "error": "",
        "signal": "USR1", "grace_s": 120, "dependency": "",
    }  # fmt: skip
    double.special = lambda asked: Answer({**job("7", preemptions=1, lost_s=60), "runs": [run], "spec": spec})
    out = mirab("show", "7").out
    assert "python train.py" in out
    assert "SIGUSR1 2 min before a stop" in out
    assert "/home/ann/mirab-7.out" in out, "the file itself, not its pattern"
    assert "1 time, 60 s lost" in out or "1 time, 1 min lost" in out
    assert "PREEMPTED" in out


ACCOUNTS = [
    {"path": "red", "share": 0.6, "used_h": 12.0, "owed_h": 20.0, "delivered_h": 12.0, "entitled_h": 40.0,
     "committed_h": 3.0, "debt_h": 8.0, "ratio": 0.375, "running_gpus": 8, "waiting_jobs": 2, "waiting_gpus": 16,
     "users": [{"user": "ann", "used_h": 12.0, "committed_h": 3.0, "running_gpus": 8, "waiting_jobs": 2}]},
    {"path": "red/a", "share": 0.6, "used_h": 12.0, "owed_h": None, "delivered_h": None, "entitled_h": 0.0,
     "committed_h": 3.0, "debt_h": None, "ratio": None, "running_gpus": 8, "waiting_jobs": 2, "waiting_gpus": 16,
     "users": []},
]  # fmt: skip


def test_share_is_a_tree(mirab: Mirab, double: Double) -> None:
    double.special = lambda asked: Answer({"accounts": ACCOUNTS})
    lines = mirab("share", "red", "--users").out.splitlines()
    assert double.asked[-1].path == "/share/red"
    assert lines[0].split()[:4] == ["ACCOUNT", "SHARE", "USED_H", "OWED_H"]
    assert lines[1].split() == ["red", "60.0", "%", "12", "20", "12", "8.0", "0.38", "8", "2", "16"]
    assert lines[2].split()[0] == "(ann)"
    assert lines[3].startswith("  a ")
    assert json.loads(mirab("share", "--json").out)["accounts"] == ACCOUNTS


KNOWN = {"borrowed_gpus": 2.5, "debt_from": "2026-03-08T12:00:00Z", "debt_gone_by": "2026-03-08T18:00:00Z",
         "next_job": "7", "next_start": "2026-03-01T14:00:00Z", "next_start_p90": "2026-03-01T16:00:00Z",
         "owner": "Rita", "review": "2026-04-01"}  # fmt: skip


def test_share_of_one_account_tells_its_debt_its_next_start_and_its_owner(mirab: Mirab, double: Double) -> None:
    double.special = lambda asked: Answer({"accounts": [{**ACCOUNTS[0], **KNOWN}, ACCOUNTS[1]]})
    told = mirab("share", "red").out.partition("\n\n")[2].splitlines()
    assert told == [
        "red: ratio = (used 12 h + committed 3.0 h) / entitled 40 h = 0.38, below its share: it is owed",
        "its debt of 8.0 h leaves the window from 2026-03-08 12:00 on, all of it by 2026-03-08 18:00 "
        "if nothing is paid",
        "it runs on 2.5 GPUs more than its share: borrowed from accounts that do not use theirs, who get them back "
        "past the minimums",
        "next start: job 7, in half of the runs forward by 2026-03-01 14:00, nine of ten by 2026-03-01 16:00",
        "owner: Rita; review: 2026-04-01",
    ]
    heads, red, below = mirab("share", "--long").out.splitlines()
    assert heads.split()[-5:] == ["BORROWED", "NEXT_START", "DEBT_GONE_BY", "OWNER", "REVIEW"]
    assert " ".join(red.split()).endswith("16 2.5 2026-03-01 14:00 2026-03-08 18:00 Rita 2026-04-01")
    assert below.split()[-2:] == ["16", "0"]


def test_share_shows_its_formula_with_numbers(mirab: Mirab, double: Double) -> None:
    double.special = lambda asked: Answer({"accounts": ACCOUNTS})
    assert mirab("share", "--formula").out.splitlines() == [
        "red: ratio = (used 12 h + committed 3.0 h) / entitled 40 h = 0.38, below its share: it is owed",
        "red/a: ratio = (used 12 h + committed 3.0 h) / entitled 0 h: it has no share, so it goes after all others",
    ]


def test_a_ratio_that_rounds_to_one_says_on_which_side_it_is(mirab: Mirab, double: Double) -> None:
    below, above = ({**ACCOUNTS[0], "ratio": value} for value in (0.9996, 1.0004))
    double.special = lambda asked: Answer({"accounts": [below, above]})
    first, second = mirab("share", "--formula").out.splitlines()
    assert first.endswith("= just under 1.00, below its share: it is owed")
    assert second.endswith("= 1.00, at or above its share")


def test_the_tree_fits_a_narrow_terminal() -> None:
    big = [{**each, "used_h": 12_345.0, "owed_h": 12_345.0, "delivered_h": 12_345.0} for each in ACCOUNTS]
    assert max(len(line) for line in tree(big, 80).splitlines()) <= 80
    assert "WAITING_GPUS" in tree(big, 0)
    assert "DELIVERED_H" in tree(big, 80)


def test_the_audit_log_keeps_what_machines_read_out_of_its_table(mirab: Mirab, double: Double) -> None:
    entry = {
        "at": "2026-03-01T12:00:00Z", "who": "ann", "origin": "", "action": "budget.changeset", "target": "budgets",
        "before": "", "after": '{"type":"Changeset","version":3}', "why": "more",
    }  # fmt: skip
    plain = {**entry, "action": "budget.set", "after": "v3: red share 60% -> 50%"}
    double.special = lambda asked: Answer({"entries": [entry, plain], "next": None})
    _, kept, told = mirab("audit").out.splitlines()
    assert "Changeset" not in kept
    assert "--json" in kept
    assert "red share 60% -> 50%" in told
    assert json.loads(mirab("audit", "--json").out)["entries"][0]["after"] == entry["after"]
    narrow = listed([entry, plain], 60).splitlines()
    assert max(len(line) for line in narrow) <= 60
    assert narrow[-1].strip() == "v3: red share 60% -> 50% (more)"


def test_the_audit_log_tells_exceptions_and_the_rollout_in_words(mirab: Mirab, double: Double) -> None:
    case = {"id": "x1", "kind": "guaranteed", "account": "red", "state": "granted", "end": 1_772_409_600_000}
    decided = {"account": "*", "mode": "enforce", "gates": "abcdef0123456789", "exception": ""}
    told = [("exception.approve", json.dumps(case)), ("rollout.set", json.dumps(decided)), ("rollout.set", "{odd")]
    entries = [
        {"at": "2026-03-01T12:00:00Z", "who": "ann", "origin": "", "action": action, "target": "x1", "before": "",
         "after": after, "why": "more"}
        for action, after in told
    ]  # fmt: skip
    double.special = lambda asked: Answer({"entries": entries, "next": None})
    _, granted, enforced, odd = mirab("audit").out.splitlines()
    assert "  guaranteed for red, granted, to end at 2026-03-0" in granted
    assert "  enforce, on gates abcdef012345  " in enforced
    assert "{odd" in odd


def test_squatters(mirab: Mirab, double: Double) -> None:
    double.special = lambda asked: Answer({"runs": []})
    assert mirab("squatters").err == "Nobody squats.\n"
    run = {"job": "7", "run": "7.1", "user": "ann", "account": "red", "gpus": 8, "silent_s": 7200, "flag": "silent"}
    double.special = lambda asked: Answer({"runs": [run]})
    assert mirab("squatters").out.splitlines()[1].split() == ["7", "ann", "red", "8", "2", "h", "silent"]
    assert json.loads(mirab("squatters", "--json").out) == {"runs": [run]}


def test_logs_writes_the_bytes_as_they_are(mirab: Mirab, three: Double) -> None:
    assert mirab("logs", "7").out == "hello\nworld\n"
    assert three.asked[-1].query == {"stream": ["out"], "follow": ["0"], "offset": ["0"]}
    assert mirab("logs", "-n", "1", "7").out == "world\n"
    assert json.loads(mirab("logs", "--json", "7").out)["text"] == "hello\nworld\n"
    assert mirab("logs", "99").code == 3
    assert mirab("logs", "-f", "-n", "1", "7").code == 2


@pytest.mark.parametrize("broken", [True, False])
def test_following_goes_on_where_it_broke_off_or_was_ended_by_a_server_that_stops(
    mirab: Mirab, three: Double, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    monkeypatch.setattr("mirab.cli.following.PAUSE_S", 0.01)
    pieces = iter([Answer(pieces=[b"one\n"], break_off=broken), Answer(pieces=[b"two\n"])])

    def breaking(asked: Asked) -> Answer | None:
        if asked.query.get("offset") == ["4"]:
            three.jobs["7"]["state"] = "COMPLETED"
        return next(pieces) if asked.path.endswith("/output") else None

    three.special = breaking
    assert mirab("logs", "-f", "7").out == "one\ntwo\n"
    assert [each.query["offset"] for each in three.asked if each.path.endswith("/output")] == [["0"], ["4"]]


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_the_last_lines(number: int) -> None:
    chunks = [b"a\nb", b"b\n", b"c"]
    assert b"".join(last_lines(iter(chunks), number)) == b"".join([b"a\n", b"bb\n", b"c"][3 - min(number, 3) :])


def test_await_exits_with_the_highest_code(mirab: Mirab, three: Double) -> None:
    three.jobs["10"] = job("10", state="FAILED", exit_code=5)
    three.jobs["11"] = job("11", state="CANCELLED")
    assert mirab("await", "9").code == 0
    assert mirab("await", "9", "10", "11").code == 5
    said = mirab("await", "11")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Job 11 ended: CANCELLED")
    assert json.loads(mirab("await", "9", "--json").out)["jobs"][0]["id"] == "9"


def test_await_gives_up_after_its_time(mirab: Mirab, three: Double) -> None:
    said = mirab("await", "7", "--timeout", "10ms")
    assert said.code == 7
    assert said.sentence == "mirab: job 7 is still RUNNING: wait longer, or look with `mirab ls 7`."
    assert mirab("await", "7", "--timeout", "10").code == 2


def test_an_arrays_id_stands_for_its_tasks(mirab: Mirab, double: Double) -> None:
    double.jobs = {
        f"12_{task}": job(f"12_{task}", array_job="12", array_task=task, state="FAILED", exit_code=task)
        for task in (1, 2)
    }
    assert mirab("await", "12").code == 2
    assert mirab("await", "12_[1-2]").code == 2
    assert mirab("await", "12_1").code == 1


def test_ids_and_states_as_typed() -> None:
    assert parse_ids(["7,8", "12_3", "12_[0-2,5]"]) == ["7", "8", "12_3", "12_0", "12_1", "12_2", "12_5"]
    for odd in ("x", "12_", "12_[9-1]", "../1", ""):
        with pytest.raises(InvalidError):
            parse_ids([odd])
    assert parse_states("pd,running") == ["PENDING", "RUNNING"]


def test_node_names_fold_and_unfold() -> None:
    names = ["n000", "n001", "n003", "n10", "login", "g1", "g2"]
    assert folded(names) == "n[000-001,003],n10,login,g[1-2]"
    assert unfolded([folded(names)]) == names
    assert folded(["n7"]) == "n7"
    assert folded(["a1", "b1"]) == "a1,b1"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(mirab: Mirab, shell: str) -> None:
    said = mirab("completion", shell)
    assert said.code == 0
    assert "_MIRAB_COMPLETE" in said.out


def test_the_shell_gets_the_names_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    import click

    from mirab.cli.main import cli

    found = cli.shell_complete(click.Context(cli), "sq")
    assert [item.value for item in found] == ["squatters"]


def test_the_code_of_an_attempt_before_is_not_that_of_a_job_that_runs_again(mirab: Mirab, double: Double) -> None:
    double.jobs = {"7": job("7", **{**RUNNING, "exit_code": 143}), "8": job("8", state="FAILED", exit_code=4)}
    assert "exit code" not in mirab("show", "7").out
    assert "FAILED, exit code 4" in mirab("show", "8").out.replace(" (Resources)", "")


def test_a_long_reason_is_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.cli.show.terminal_width", lambda: 60)
    waits = {**job("7", why="it waits for others " * 10), "runs": [], "spec": None}
    assert max(len(line) for text in lines_of(waits) for line in text.splitlines()) <= 60


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"nodes": 1, "gpus_per_node": 4, "cpus_per_node": 8}, "1 node with 4 GPUs and 8 cores"),
        ({"nodes": 2, "gpus_per_node": 1, "cpus_per_node": 0}, "2 nodes with 1 GPU each"),
        ({"nodes": 3, "gpus_per_node": 0, "cpus_per_node": 16}, "3 nodes with 16 cores each"),
    ],
)
def test_what_was_asked_for_names_only_what_was(asked: dict[str, Any], told: str) -> None:
    lines = [line.split("  ")[-1] for line in lines_of({**job("7", **asked), "runs": [], "spec": None})]
    assert any(line == told or line.startswith(f"{told}, time limit") for line in lines), lines
