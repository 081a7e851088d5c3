"""`mirab completion`: the script that teaches a shell mirab's words."""

from __future__ import annotations

import click

from mirab.cli.output import emit

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: mirab completion bash > ~/.local/share/bash-completion/completions/mirab; for zsh into a file _mirab of
    the fpath; for fish into ~/.config/fish/completions/mirab.fish.
    """
    from click.shell_completion import get_completion_class

    chosen = get_completion_class(shell)
    assert chosen is not None
    root = ctx.find_root().command
    emit(chosen(root, {}, "mirab", "_MIRAB_COMPLETE").source())
