"""``unlock``: takes the lease away from a holder that is surely dead."""

from __future__ import annotations

import click

from catalog_migrate.cli.options import catalog_option, settings_of
from catalog_migrate.cli.sources import open_catalog


@click.command("unlock")
@click.option(
    "--if-holder", required=True, metavar="NAME",
    help="Only if this is the holder, as `status` and the error print it.",
)
@catalog_option
@click.pass_context
def command(ctx: click.Context, if_holder: str, catalog: str | None) -> None:
    """Free the migration lease, if NAME holds it, without waiting for it to run out.

    Whatever NAME still tries to commit is refused from then on. Exit 5 when another holds it.

    \b
    Example:
      catalog-migrate unlock --if-holder batch-3/4711
    """
    from catalog_migrate.catalog.lease import unlock

    opened = open_catalog(settings_of(ctx, catalog=catalog), write=True)
    lease = opened.state().leases.get("migration")
    held = lease is not None and bool(lease.holder)
    unlock(opened.log, if_holder)
    click.echo(f"freed the lease of {if_holder}" if held else "nobody held the lease")
