"""The pages of reference that are made from the code: `make docs` writes them, and a test compares them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mirab.cli.exits import Exit
from mirab.cli.main import COMMANDS, cli

EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "failed: an input makes no sense, the disk is full, or a fault in mirab",
    Exit.USAGE: "the command line, a line of a batch script, or a value makes no sense",
    Exit.NOT_FOUND: "a file, a job, a node or an account is not there",
    Exit.DENIED: "you may not",
    Exit.CONFLICT: "an output would overwrite an input, or is named twice; a job or a version is no longer as assumed",
    Exit.GATE_NOT_MET: "a measure is worse than a gate asks for",
    Exit.TIMED_OUT: "no answer in time, or `--timeout` is over",
    Exit.UNREACHABLE: "no server answers",
    Exit.INTERRUPTED: "stopped by Ctrl-C",
    Exit.READER_GONE: "whoever read the output closed it, as `head` does",
}


def cli_page() -> str:
    """`docs/reference/cli.md`."""
    return "\n".join(_cli()) + "\n"


def _cli() -> Iterator[str]:
    yield from (
        "# The command line",
        "",
        "<!-- Made from the code by `make docs`. -->",
        "",
        "Standard output is data, standard error is talk and progress. Bars appear on a terminal only. An output file",
        "takes its name when it is complete; that it was written, or replaced, is said on standard error. No command",
        "overwrites its own input.",
        "",
        "`-h` or `--help` works everywhere. `mirab completion bash` prints the completion script of a shell.",
        "",
        "Commands that talk to a service find it by `--server`, `MIRAB_SERVER`, or the socket of this machine's",
        "service, and say who you are by the socket, or by the token in `MIRAB_TOKEN` or `~/.config/mirab/token`.",
        "`--json` prints the objects of the REST API with their own keys.",
        "",
        "Times that people read are in the zone of this machine (`TZ`), unless another is named beside them; in JSON",
        "they are UTC.",
    )
    context = click.Context(cli, info_name="mirab")
    for group, commands in COMMANDS.items():
        yield from ("", f"## {group}")
        for name, _ in commands:
            command = cli.get_command(context, name)
            assert isinstance(command, click.Command)
            yield from _command(name, command, context)
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code.value} | {EXITS[code]} |" for code in Exit)
    yield from (
        "",
        "An error is one sentence on standard error that says what is wrong, where, and what to do. With",
        "`MIRAB_TRACEBACK=1` in the environment, the traceback is printed before it.",
    )


def _command(name: str, command: click.Command, parent: click.Context, level: str = "###") -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield from ("", f"{level} `{context.command_path}`", "")
    yield from _one(command, context)
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from _command(sub, found, context, level + "#")


def _one(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```", f"{context.command_path} {usage}".rstrip(), "```", "")
    yield " ".join((command.help or "").split("\n\n", 1)[0].split())
    for paragraph in (command.help or "").split("\n\n")[1:]:
        yield from ("", " ".join(paragraph.split()))
    records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    if records:
        yield from ("", "| option | |", "|---|---|")
        yield from (f"| `{_cell(option)}` | {_cell(meaning)} |" for option, meaning in records)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def policy_page() -> str:
    """`docs/reference/policy.md`."""
    return "\n".join(_policy()) + "\n"


def _policy() -> Iterator[str]:
    from mirab.cli.policies import described

    table = described()
    yield from (
        "# Policy settings",
        "",
        "<!-- Made from the code by `make docs`. -->",
        "",
        "A policy is a value; every rule that differs between policies is a setting. Change one on the command line",
        "with `--set name=value`, or write a file:",
        "",
        "```yaml",
        "policy:",
        "  name: budget-two-weeks",
        "  order: budget",
        "  window: 14d",
        "  margin: 5%",
        "```",
        "",
        "and use it as `--policy file.yaml`. A setting that the file leaves out is that of `budget`. What rules do:",
        "[Concepts](../concepts.md).",
        "",
        "| setting | " + " | ".join(f"`{name}`" for name in table["policies"]) + " |",
        "|---" * (1 + len(table["policies"])) + "|",
    )
    for name, setting in table["settings"].items():
        yield f"| `{name}` | " + " | ".join(setting["values"].values()) + " |"
    for name, setting in table["settings"].items():
        yield from ("", f"**`{name}`**: {setting['means']} Write {setting['form']}.".replace("|", " | "))


def main() -> None:
    """Write the pages into the folder given."""
    from mirab.service.api.page import api_page

    folder = Path(sys.argv[1])
    (folder / "cli.md").write_text(cli_page(), encoding="utf-8")
    (folder / "policy.md").write_text(policy_page(), encoding="utf-8")
    (folder / "api.md").write_text(api_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
