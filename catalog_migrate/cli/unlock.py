"""``unlock``: takes the lease, or rows of sessions, away from processes that are surely dead."""

from __future__ import annotations

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.errors import UsageError


@click.command("unlock")
@click.option(
    "--if-holder", metavar="NAME",
    help="Free the lease, only if this is the holder, as `status` and the error print it.",
)
@click.option(
    "--session", "sessions", metavar="ID", multiple=True,
    help="Forget a session that is surely gone, as `status` lists it.",
)
@click.option(
    "--sessions-before", metavar="SERIAL", type=click.IntRange(min=0),
    help="Forget every session of an older serial.",
)
@options.catalog
def command(if_holder: str | None, sessions: tuple[str, ...], sessions_before: int | None) -> None:
    """Free the migration lease, if NAME holds it, without waiting for it to run out.

    Whatever NAME still tries to commit is refused from then on. Exit 5 when another holds it.

    While a session may live at an older serial, columns are copied rather than renamed or dropped
    in place. A process on this machine that has ended is known to be gone; of one elsewhere you
    have to say so. An unknown ID is an error.

    \b
    Example:
      catalog-migrate unlock --if-holder batch-3/4711
      catalog-migrate unlock --sessions-before 17
    """
    if if_holder is None and not sessions and sessions_before is None:
        raise UsageError(
            "nothing was named to be freed",
            remedy="catalog-migrate unlock --if-holder NAME | --session ID | "
            "--sessions-before SERIAL",
        )
    if if_holder is not None and not if_holder.strip():
        raise UsageError(
            "--if-holder is empty", remedy="name the holder, as catalog-migrate status prints it"
        )
    opened = open_catalog(options.settings(), write=True)
    if sessions or sessions_before is not None:
        removed = opened.forget_sessions(sessions, before=sessions_before)
        click.echo(
            f"forgot session {', '.join(removed)}" if removed else "no session is that old"
        )
    if if_holder is None:
        return
    held = opened.unlock(if_holder)
    click.echo(f"freed the lease of {if_holder}" if held else "nobody held the lease")
