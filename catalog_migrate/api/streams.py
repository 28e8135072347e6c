"""Sources and sinks: run a cluster, see where they stand, unsafe operations on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from catalog_migrate.api.configured import (
    OnNote,
    local_spark,
    make_options,
    open_catalog,
    refuse_remote,
    unheard,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import UsageError

if TYPE_CHECKING:
    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.catalog.state import State
    from catalog_migrate.model.findings import Finding
    from catalog_migrate.sql.statements import UnsafeAction
    from catalog_migrate.streams.catalog.rows import Rows
    from catalog_migrate.streams.catalog.upstream_tables import UpstreamColumns
    from catalog_migrate.streams.ddl.execute import Result
    from catalog_migrate.streams.ddl.health import Limits, StreamsHealth
    from catalog_migrate.streams.positions.client import Confirm
    from catalog_migrate.streams.positions.plan import UnsafePlan
    from catalog_migrate.streams.positions.positions_file import Exported
    from catalog_migrate.streams.positions.requests import Request, Ties
    from catalog_migrate.streams.runtime.operations import Program
    from catalog_migrate.streams.runtime.runtime import Runtime

Ask = Callable[["State"], "Request"]
"""The request that is to be made of a catalog's newest state."""


@contextmanager
def cluster_runtime(
    settings: Settings, cluster: str = "main", *, wait: float | None = None,
    http: str | None = None, on_note: OnNote = unheard,
) -> Iterator[Runtime]:
    """The runtime of a cluster on a local session, as configured; the caller runs it.

    ``wait`` bounds in seconds how long another runtime of the cluster is waited for. ``http`` is
    the address (``HOST:PORT``) at which ``/healthz``, ``/readyz`` and ``/metrics`` answer from
    before the session starts until the end; EndpointFailed where it cannot be bound.
    """
    from catalog_migrate.streams.catalog.dependencies import find
    from catalog_migrate.streams.catalog.query_spec import plain_secrets
    from catalog_migrate.streams.runtime.http_endpoint import Endpoint, parse_address
    from catalog_migrate.streams.runtime.runtime import RuntimeOptions

    refuse_remote(settings, "the runtime of streams")
    address = None if http is None else parse_address(http)
    catalog = open_catalog(settings, write=True)
    options = RuntimeOptions(
        drain=settings.number("streams.drain") or 0.0, wait=wait,
        ttl=settings.number("streams.lease_ttl") or 0.0,
        margin=settings.number("streams.lease_margin") or 0.0,
        unsafe=settings.text("streams.enable_unsafe_ops") == "true",
        show_values=settings.text("streams.show_values") == "true",
        hold_after=int(settings.number("streams.hold_after") or 1),
        upstream_columns=cast("UpstreamColumns", settings.text("streams.upstream_columns")),
        starts_at_once=int(settings.number("streams.starts_at_once") or 0),
    )
    state = catalog.state()
    found = find(state, "cluster", cluster)  # an unknown one is reported before Spark starts
    name = str(found.item.definition.item_name)
    for secret in plain_secrets(state):
        on_note(f"warning: {secret} is in the catalog as plain text; `doctor` says what to do")
    with ExitStack() as stack:
        endpoint = None if address is None else stack.enter_context(Endpoint(address, name))
        if endpoint is not None:
            on_note(f"answers at http://{endpoint.address}: /healthz, /readyz, /metrics")
        spark = stack.enter_context(
            local_spark(settings, on_note, jars=_login_jars(state, on_note))
        )
        runtime = catalog.runtime(
            spark, cluster, options=options, on_event=on_note, start=make_options(settings)
        )
        if endpoint is not None:
            endpoint.runtime = runtime
        yield runtime


def _login_jars(state: State, on_note: OnNote) -> list[str]:
    """Paths of the jars that logins of the catalog's connections need, fetched if absent.

    Errors are those of :func:`~catalog_migrate.engine.spark.jars.ensure_jars`.
    """
    from catalog_migrate.engine.spark.jars import MSK_JAR, ensure_jars

    mechanisms = {
        item.definition.external.options.get("SASL MECHANISMS")
        for item in state.items.values() if item.definition.external is not None
    }
    return ensure_jars(on_note, jars=[MSK_JAR]) if "AWS_MSK_IAM" in mechanisms else []


def positions(settings: Settings, name: str, *, sink: bool = False) -> Exported:
    """Where a source stands, per partition the next record to read; of a sink its version."""
    from catalog_migrate.streams.positions.positions_file import export

    return export(open_catalog(settings).state(), "sink" if sink else "source", name)


def lag_limits(settings: Settings) -> Limits:
    """Return the lag that is too much, as configured."""
    from catalog_migrate.streams.ddl.health import Limits

    return Limits(*(settings.number(f"streams.lag_{each}") for each in Limits.__struct_fields__))


def streams_health(
    settings: Settings, catalog: Catalog | None = None, *, lags: bool = True
) -> StreamsHealth:
    """How every source and sink is, and whether one needs a person; needs no Spark.

    Tables and servers are asked for the lag only where ``lags`` is wanted.
    """
    from catalog_migrate.streams.ddl import health
    from catalog_migrate.streams.runtime.ports import Ports

    opened = catalog or open_catalog(settings)
    return health.streams_health(
        opened.state(), opened.log, ports=Ports(), now=datetime.now(timezone.utc).timestamp(),
        limits=lag_limits(settings), lags=lags, silent_after=_silent_after(settings),
    )


def examine_streams(settings: Settings) -> tuple[Finding, ...]:
    """What ``doctor`` finds of streams: servers are asked, nothing is written, no Spark starts."""
    from catalog_migrate.streams.ddl import examination
    from catalog_migrate.streams.runtime.ports import Ports

    opened = open_catalog(settings)
    return examination.examine_streams(
        opened.state(), opened.log, ports=Ports(), now=datetime.now(timezone.utc).timestamp(),
        silent_after=_silent_after(settings),
    )


def _silent_after(settings: Settings) -> float:
    """Seconds without a renewal after which a runtime is not believed to run anything."""
    from catalog_migrate.streams.ddl.health import SILENT_AFTER

    return max(SILENT_AFTER, 2 * (settings.number("streams.lease_ttl") or 0.0))


def log_of(
    settings: Settings, name: str, *, sink: bool = False, since: str | None = None,
    limit: int | None = None,
) -> Rows:
    """Return what the log of its cluster has of a source or sink, the newest last; needs no Spark.

    ``since`` is how long ago (``1h``), or a time. UsageError for anything else.
    """
    from catalog_migrate.streams.catalog.dependencies import find
    from catalog_migrate.streams.ddl.log_entries import log_entries, moment_of

    start = None if since is None else moment_of(since, datetime.now(timezone.utc))
    state = open_catalog(settings).state()
    found = find(state, "sink" if sink else "source", name)
    return log_entries(state, found.item_id, since=start, limit=limit)


# -- unsafe operations -----------------------------------------------------------------------------


class Moves(NamedTuple):
    """Where sources go on: ``partitions`` pairs ``topic:number`` with a target, ``everywhere`` is
    one for all, ``file`` has what ``source positions --format json`` prints or Kafka's own tool
    exports."""

    partitions: Sequence[tuple[str, str]] = ()
    everywhere: str | None = None
    file: str | None = None


_NONE = Moves()


def unsafe_request(
    state: State, sources: Sequence[str], actions: Sequence[UnsafeAction] = (),
    moves: Moves = _NONE, *, settings: Request, translate: Ties | None = None,
    below: str | None = None, reason: str = "",
) -> Request:
    """One operation on ``sources`` and those of the connection ``below``: all of them or none.

    Raises UsageError, InvalidPosition, UnsafeBlocked.
    """
    from catalog_migrate.sql.statements import Unsafe
    from catalog_migrate.streams.positions.requests import injections, request_on, sources_named

    sources = sources_named(state, sources, below)
    if moves.file is not None and moves.everywhere is not None:
        raise UsageError("--file and --to cannot both be given", remedy="leave one of them away")

    def statement(source: str) -> Unsafe:
        targets = {} if moves.file is None else _targets(
            state, source, moves.file, other_topics=settings.accept_new_topic
        )
        moved = injections(targets, moves.partitions, moves.everywhere)
        return Unsafe("source", source, (*actions, *moved), reason)

    statements = [statement(source) for source in sources]
    return request_on(state, statements, settings, translate)


def plan_unsafe(
    settings: Settings, ask: Ask, *, reason: str = "", with_times: bool = False,
    on_note: OnNote = unheard,
) -> UnsafePlan:
    """Return the dry run of an operation; ``with_times`` says when doubled records were written."""
    catalog = open_catalog(settings)
    return catalog.unsafe(on_progress=on_note).plan(
        ask(catalog.state()), reason, with_times=with_times
    )


def unsafe_steps(settings: Settings, plan: UnsafePlan) -> Program:
    """Return what the runtime would execute for a dry run of this catalog now."""
    from catalog_migrate.streams.catalog.cluster_log import runtime_lives
    from catalog_migrate.streams.positions.operation_row import unsafe_program

    state = open_catalog(settings).state()
    if not plan.changes or any(part.item_id not in state.items for part in plan.request.parts):
        return ()
    return unsafe_program(
        state, plan.request, plan.edited, runs=runtime_lives(state, plan.cluster)
    )


def run_unsafe(
    settings: Settings, ask: Ask, *, reason: str | None, confirm: Confirm, key: str | None = None,
    on_note: OnNote = unheard,
) -> Result:
    """Carry an operation out; under the same ``key`` it is done only once.

    Raises as :meth:`~catalog_migrate.streams.positions.client.UnsafeClient.run`.
    """
    from catalog_migrate.streams.ddl.execute import unsafe_result

    catalog = open_catalog(settings, write=True)
    client, state = catalog.unsafe(on_progress=on_note), catalog.state()
    if key is not None and key in state.operations:
        # what it has committed itself may be what a new request would be refused for
        return unsafe_result(client.await_end(key))
    return unsafe_result(client.run(ask(state), reason, confirm=confirm, key=key))


def undo_unsafe(
    state: State, operation: str, *, restore_table: bool = False, tolerance: int | None = None,
    skip_validate: bool = False,
) -> Request:
    """The operation that takes another one back, with ``restore_table`` its source's table too."""
    import msgspec

    from catalog_migrate.streams.positions.restore import undo_request

    return msgspec.structs.replace(
        undo_request(state, operation, restore_table=restore_table),
        tolerance=tolerance, skip_validate=skip_validate,
    )


def apply_unsafe(
    settings: Settings, file: str, *, tolerance: int = 0, reason: str | None = None,
    confirm: Confirm, key: str | None = None, on_note: OnNote = unheard,
) -> Result:
    """Do what a saved dry run says; StalePlan when it would be more than that by now.

    ``tolerance`` is by how many records doubled or skipped that may be exceeded.
    """
    from catalog_migrate.streams.positions.plan import read_plan
    from catalog_migrate.streams.positions.planning import approve

    plan = read_plan(file)
    return run_unsafe(
        settings, lambda state: approve(state, plan, tolerance), reason=reason or plan.reason,
        confirm=confirm, key=key, on_note=on_note,
    )


def unsafe_operations(settings: Settings) -> list[dict[str, Any]]:
    """Return all unsafe operations that are on record, oldest first; needs no Spark."""
    from catalog_migrate.streams.positions.audit import history

    return history(open_catalog(settings).state())


def unsafe_operation(settings: Settings, operation: str) -> dict[str, Any]:
    """All that is known of one operation; UnsafeBlocked with the newest for an unknown one."""
    from catalog_migrate.streams.catalog.operation_records import operation_row
    from catalog_migrate.streams.positions.audit import entry

    return entry(operation, operation_row(open_catalog(settings).state(), operation))


def read_skipped(settings: Settings, operation: str, *, on_note: OnNote = unheard) -> bool:
    """Read what an operation skipped, on a local session; False when there is nothing to read."""
    from catalog_migrate.streams.catalog.operation_records import operation_row
    from catalog_migrate.streams.spark.engine import SparkQueries

    refuse_remote(settings, "reading what was skipped")
    catalog = open_catalog(settings, write=True)
    operation_row(catalog.state(), operation)  # an unknown one is reported before Spark starts
    client = catalog.unsafe(on_progress=on_note)
    with local_spark(settings, on_note) as spark:
        return client.read_skipped(
            operation, SparkQueries(spark, catalog.state().setting("warehouse"))
        )


def acknowledge(settings: Settings, operation: str) -> bool:
    """Note that this user has seen an operation; False when somebody had."""
    from catalog_migrate.streams.positions.client import who

    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return open_catalog(settings, write=True).acknowledge(operation, who=who(), at=now)


def _targets(
    state: State, source: str, file: str, *, other_topics: bool
) -> dict[str, str | None]:
    """The targets of a source in a file of positions."""
    from catalog_migrate.streams.catalog import dependencies
    from catalog_migrate.streams.positions.positions_file import read_exported, targets_of

    stream = state.streams.get(dependencies.find(state, "source", source).item_id)
    return targets_of(
        read_exported(Path(file).read_bytes(), file), file,
        stream.topics if stream is not None else {}, other_topics=other_topics,
    )
