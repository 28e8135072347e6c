"""``run``: the runtime of a cluster, one Spark application until SIGTERM."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from catalog_migrate.api.streams import cluster_runtime
from catalog_migrate.cli import options
from catalog_migrate.cli.output import note

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import LeaseRecord


@click.command("run")
@click.option("--cluster", default="main", show_default=True, metavar="NAME",
              help="The cluster to run; CREATE CLUSTER makes one.")
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(min=0), default=None,
              help="How long to wait for another runtime of this cluster to leave.")
@options.catalog
def command(cluster: str, wait: float | None) -> int:
    """Run a cluster's sources and sinks, follow the catalog, carry out ALTERs.

    SIGTERM or Ctrl-C lets current batches end (streams.drain seconds at most), then stops. Exit 5
    when another runtime has the cluster, or took it over.

    \b
    Example:
      catalog-migrate run --cluster main
      catalog-migrate sql -c 'SHOW SOURCES'
    """
    settings = options.settings()
    with cluster_runtime(settings, cluster, wait=wait, on_note=note) as runtime:

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
