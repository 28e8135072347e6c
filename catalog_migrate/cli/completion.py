"""``completion``: the lines that make a shell complete verbs and options."""

from __future__ import annotations

import click

VARIABLE = "_CATALOG_MIGRATE_COMPLETE"
"""What the printed lines set when they ask this program for what could follow."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete verbs, options and their values.

    In ~/.bashrc or ~/.zshrc: eval "$(catalog-migrate completion bash)", or zsh for bash.
    For fish: catalog-migrate completion fish > ~/.config/fish/completions/catalog-migrate.fish

    \b
    Example:
      catalog-migrate completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "catalog-migrate", VARIABLE).source())
