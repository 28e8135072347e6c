"""``demo``: the demonstrations on real data, which only a checkout has."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

import catalog_migrate
from catalog_migrate.errors import PrerequisiteMissing


@click.command("demo")
@click.option(
    "--directory", metavar="DIR", type=click.Path(file_okay=False),
    help="Where to put the demonstration's catalog (default: a temporary directory).",
)
@click.option(
    "--streams", is_flag=True,
    help="The demonstration of sources and sinks: a password rotated, a broker moved.",
)
@click.option("--keep", is_flag=True, help="Leave catalog and tables there to look at.")
def command(directory: str | None, streams: bool, keep: bool) -> None:
    """Upgrade a real catalog of 208 objects twice, killed in the middle, every row checked.

    \b
    Example:
      catalog-migrate demo
      catalog-migrate demo --streams
    """
    from catalog_migrate.engine.spark.java import prefer_short_runs

    # the chapters are processes of their own, which inherit it
    prefer_short_runs(os.environ)
    if streams:
        _example("demo_streams").run(keep=keep)
    else:
        _example("demo").run(Path(directory) if directory else None, keep=keep)


def _example(name: str) -> ModuleType:
    """A module of the checkout's ``examples``."""
    checkout = Path(catalog_migrate.__file__).resolve().parents[1]
    if not (checkout / "examples" / f"{name}.py").is_file():
        raise PrerequisiteMissing(
            "the demonstrations are not in an installed package",
            remedy="run them from a checkout: `make demo`, `make demo-streams`",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return import_module(f"examples.{name}")
