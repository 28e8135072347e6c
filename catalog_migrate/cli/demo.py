"""``demo``: the demonstration on real data."""

from __future__ import annotations

import os
from pathlib import Path

import click


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
        from catalog_migrate.demo_streams import run as run_streams

        run_streams(keep=keep)
        return
    from catalog_migrate.demo import run

    run(Path(directory) if directory else None, keep=keep)
