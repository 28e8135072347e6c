"""``run``: the runtime of a cluster, one Spark application until SIGTERM."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from catalog_migrate.cli.options import catalog_option, settings_of
from catalog_migrate.cli.output import note
from catalog_migrate.cli.sources import local_spark, open_catalog, threads_of

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import LeaseRecord


@click.command("run")
@click.option("--cluster", default="main", show_default=True, metavar="NAME",
              help="The cluster to run; CREATE CLUSTER makes one.")
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(min=0), default=None,
              help="How long to wait for another runtime of this cluster to leave.")
@catalog_option
@click.pass_context
def command(ctx: click.Context, cluster: str, wait: float | None, catalog: str | None) -> int:
    """Run a cluster's sources and sinks, follow the catalog, carry out ALTERs.

    SIGTERM or Ctrl-C lets current batches end (streams.drain seconds at most), then stops. Exit 5
    when another runtime has the cluster, or took it over.

    \b
    Example:
      catalog-migrate run --cluster main
      catalog-migrate sql -c 'SHOW SOURCES'
    """
    from catalog_migrate.streams.plain_secrets import plain_secrets
    from catalog_migrate.streams.runtime import RuntimeOptions

    settings = settings_of(ctx, catalog=catalog)
    opened = open_catalog(settings, write=True)
    options = RuntimeOptions(
        drain=settings.number("streams.drain") or 0.0, wait=wait,
        ttl=settings.number("streams.lease_ttl") or 0.0,
        margin=settings.number("streams.lease_margin") or 0.0,
        unsafe=settings.text("streams.enable_unsafe_ops") == "true",
    )
    for found in plain_secrets(opened.state()):
        note(f"warning: {found} stands in the catalog as plain text; `doctor` says what to do")
    with local_spark(settings) as spark:
        runtime = opened.runtime(
            spark, cluster, options=options, on_event=note, threads=threads_of(settings)
        )

        def stop(_: int, __: object) -> None:
            note("stopping: current batches may end")
            runtime.request_stop()

        before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            note(f"cluster {cluster}: ready when its lease is ours")
            runtime.run(on_wait=_waiting)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    note(f"cluster {cluster} stopped")
    return 0


def _waiting(row: LeaseRecord, waited: float) -> None:
    if int(waited) % 5 == 0 and waited - int(waited) < 1:
        note(f"waiting for {row.holder}, which has the cluster since {row.since}")
