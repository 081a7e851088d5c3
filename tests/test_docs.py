"""The documents agree with the program: options, settings, commands, JSON keys, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mirab.cli.exits import Exit
from mirab.cli.main import COMMANDS, cli, module_of
from mirab.cli.reference import EXITS, cli_page, policy_page

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(("name", "made"), [("cli.md", cli_page), ("policy.md", policy_page)])
def test_the_reference_is_what_the_code_says(name: str, made: object) -> None:
    assert callable(made)
    assert page(f"docs/reference/{name}") == made(), "run `make docs`"


def test_every_exit_code_is_described() -> None:
    assert set(EXITS) == set(Exit)


def every_command(group: click.Group, name: str = "mirab") -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name, those of groups too."""
    context = click.Context(group)
    for sub in group.list_commands(context):
        command = group.get_command(context, sub)
        assert command is not None
        yield f"{name} {sub}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{name} {sub}")


def test_every_option_has_a_word_of_help_or_speaks_for_itself() -> None:
    for name, command in every_command(cli):
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help or parameter.show_default, f"{name} {parameter.opts}"


def shown_commands() -> list[tuple[str, str]]:
    """Every `mirab ...` command line of the documents: in code blocks, and between backticks."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL):
            lines = re.sub(r"\\\n", " ", block).splitlines()
            found += [
                (named(path), line.removeprefix("$ ")) for line in lines if line.startswith(("$ mirab ", "mirab "))
            ]
        found += [(named(path), line) for line in re.findall(r"`(mirab [a-z][^`\n]*)`", text)]
    return found


@pytest.mark.parametrize(("where", "line"), shown_commands())
def test_every_command_shown_is_one_the_program_knows(where: str, line: str) -> None:
    words = shlex.split(re.split(r"\s[#>|]", line)[0])[1:]
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    if command is None:
        assert words[0] in ("gate",), f"{where}: no command {words[0]}"
        return
    if isinstance(command, click.Group) and len(words) > 1:
        command = command.get_command(context, words[1]) or command.get_command(context, "start") or command
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words[1:]:
        if word == "--":
            return
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known | {"--help", "-h"}, f"{where}: mirab {words[0]} has no {word}"


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), f"{named(path)} links to {target}"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, todo = set(), [ROOT / "docs/index.md"]
    while todo:
        path = todo.pop().resolve()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        links = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        todo += [
            path.parent / link for link in links if not re.match(r"[a-z]+:", link) and (path.parent / link).is_file()
        ]
        todo += [
            found for link in links if (path.parent / link).is_dir() for found in (path.parent / link).glob("*.md")
        ]
    lost = [named(path) for path in (ROOT / "docs").rglob("*.md") if path.resolve() not in reached]
    assert not lost


def test_the_help_lists_every_command_with_a_sentence() -> None:
    modules = {
        path.stem
        for path in (ROOT / "src/mirab/cli").glob("*.py")
        if re.search(r"^def command\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    lines = {name: line for commands in COMMANDS.values() for name, line in commands}
    assert {module_of(name).removeprefix("mirab.cli.") for name in lines} == modules
    assert [name for name, line in lines.items() if not re.fullmatch(r"[A-Z].*\.", line)] == []


def test_no_page_holds_a_placeholder() -> None:
    for path in PAGES:
        left = re.findall(
            r"\b(?:TODO|TBD|FIXME|XXX)\b|^[A-Z]{4,}(?:-[A-Z]+)*$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert not left, f"{named(path)}: {left}"
