"""``blockcalc completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands, options, presets and blocks in a shell.

    \b
    blockcalc completion bash >> ~/.bashrc
    """
    from . import main

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(main, {}, "blockcalc", "_BLOCKCALC_COMPLETE").source())
