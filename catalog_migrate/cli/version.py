"""``version``: the version of the tool."""

from __future__ import annotations

import click

from catalog_migrate.version import __version__


@click.command("version")
def command() -> None:
    """Print the version; nothing heavy is imported for it.

    \b
    Example:
      catalog-migrate version
    """
    click.echo(f"catalog-migrate {__version__}")
