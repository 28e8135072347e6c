"""``graph``: what depends on what, and the program of a plan."""

from __future__ import annotations

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.releases import release_graph
from catalog_migrate.api.starts import read_plan
from catalog_migrate.cli import options
from catalog_migrate.cli.output import emit
from catalog_migrate.errors import UsageError
from catalog_migrate.report.pictures import FORMATS, draw_graph, draw_program


@click.command("graph")
@click.argument("name", required=False)
@click.option("--program", metavar="PLAN", type=click.Path(dir_okay=False),
              help="The steps of this plan file and their waves instead.")
@options.catalog
@options.release
@click.option("--system", is_flag=True, help="Our own built-ins (schema catalog_migrate) too.")
@options.format_(*FORMATS)
@options.out
def command(
    name: str | None, program: str | None, system: bool, format_: str, out: str | None
) -> None:
    """Print what depends on what: of the release given, else of the catalog.

    Tables, views, functions and types, and secrets, connections, sources, sinks and clusters.
    With NAME only that object, everything it needs and everything that needs it.

    With --program the steps that `apply` takes for a plan: steps of one wave go side by side, and
    a wave begins when the one before it has ended.

    \b
    Example:
      catalog-migrate graph --catalog catalog --format mermaid
      catalog-migrate graph shop.orders --release release
      catalog-migrate graph --program plan.json --format dot | dot -Tsvg > plan.svg
    """
    if program is not None:
        if name is not None or system:
            raise UsageError(
                "--program shows a whole plan", remedy="leave out NAME and --system"
            )
        emit(draw_program(read_plan(program).steps, format_), out)
        return
    settings = options.settings()
    graph = (
        open_catalog(settings).graph(system=system) if options.given("release.path") is None
        else release_graph(settings)
    )
    emit(draw_graph(graph, format_, name), out)
