"""`mirab policies`: the stock policies, and what can be set."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.output import emit, to_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """Show the stock policies and every setting with its meaning and its value in each."""
    table = described()
    emit(to_json(table) if as_json else as_text(table))


def described() -> dict[str, Any]:
    """Policies by name, settings with form and meaning, and the value of each in each."""
    from mirab.model.policy import POLICIES
    from mirab.model.settings import format_setting, settings

    return {
        "policies": list(POLICIES),
        "settings": {
            setting.name: {
                "means": setting.means.replace("``", ""),
                "form": setting.form,
                "values": {name: format_setting(policy, setting.name) for name, policy in POLICIES.items()},
            }
            for setting in settings().values()
        },
    }


def as_text(table: dict[str, Any]) -> str:
    """A line of values for each setting, its meaning below."""
    head = f"{'setting':22}" + "".join(f"{name:>11}" for name in table["policies"])
    lines = [head]
    for name, setting in table["settings"].items():
        lines.append(f"{name:22}" + "".join(f"{value:>11}" for value in setting["values"].values()))
        lines += click.wrap_text(setting["means"], 100, "    ", "    ").splitlines()
    lines += [
        "",
        "Change one with --set, such as --set window=14d; or name a YAML file with a policy in place of a name.",
    ]
    return "\n".join(lines)
