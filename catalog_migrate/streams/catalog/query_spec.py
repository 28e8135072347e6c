"""From a committed definition to what a query is started with: secrets are resolved here, and late.

``env:`` differs from process to process, so only the process that runs a query resolves for it.

Some secrets stand as plain text in the catalog. Nothing puts one there any more; an older version
of this tool did, by UNSAFE SET. They go on working until they are replaced, and are shown nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import ItemRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors import secrets
from catalog_migrate.connectors.base import find_if_installed, require_installed
from catalog_migrate.connectors.options import override_connection
from catalog_migrate.connectors.postgres.survey import survey_from
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import HIDDEN, Secret
from catalog_migrate.errors import UnresolvedSecret
from catalog_migrate.model.objects import Column, External, ObjectDefinition, SecretRef
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import QueryKind, SetOptions, Unsafe
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import as_in_shard
from catalog_migrate.streams.catalog.upstream_tables import UpstreamColumns
from catalog_migrate.streams.catalog.upstream_tables import upstream_columns as policy_of

Resolve = Callable[[str], Secret]
"""From a reference (``env:NAME``) to the value; raises UnresolvedSecret."""

resolve_secret: Resolve = secrets.resolve
"""What resolves references unless the caller has something else."""

CHECKPOINTS = "_checkpoints"
"""Directory of all checkpoints, in the warehouse."""


# -- plain secrets ---------------------------------------------------------------------------------


class PlainSecret(msgspec.Struct, frozen=True):
    """One of them, without its value; ``kind`` and ``name`` are of the item that it stands at."""

    kind: QueryKind
    name: str
    option: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.option}"

    @property
    def remedy(self) -> str:
        """What takes it out of the definition; that nothing takes it out of the history."""
        put = SetOptions({self.option: SecretRef("name")})
        statement = render(Unsafe(self.kind, self.name, (put,), "rotated")).rstrip(";")
        return (
            f"put a secret in its place ({statement}), then rotate the value where it is checked: "
            "the catalog's history keeps the old one"
        )


def plain_secrets(state: State) -> tuple[PlainSecret, ...]:
    """All of them."""
    return tuple(
        PlainSecret(
            "source" if found.mapping.kind == "source" else "sink",
            str(found.item.definition.item_name), option,
        )
        for found in dependencies.queries(state)
        for option in options_of(found.external)
    )


def options_of(external: External) -> tuple[str, ...]:
    """The options of an item whose plain text is a secret, all of a connector that is missing."""
    if not external.overrides:
        return ()
    connector = find_if_installed(external.connector)
    return tuple(
        name for name, value in external.overrides.items()
        if isinstance(value, str)
        and (connector is None or connector.connection.holds_secret(name))
    )


def without_secrets(external: External) -> External:
    """As it may be shown: ``***`` where a secret stands as plain text."""
    hidden = dict.fromkeys(options_of(external), HIDDEN)
    return msgspec.structs.replace(external, overrides={**external.overrides, **hidden})


def hide_secrets(definition: ObjectDefinition) -> ObjectDefinition:
    """Return a definition with :func:`without_secrets` of its external part."""
    if definition.external is None:
        return definition
    return msgspec.structs.replace(definition, external=without_secrets(definition.external))


def restore_secrets(shown: ObjectDefinition, present: ObjectDefinition) -> ObjectDefinition:
    """Return a definition as it was before :func:`hide_secrets`; ``present`` has what it hides."""
    external, there = shown.external, present.external
    if external is None or there is None:
        return shown
    back = {
        name: there.overrides[name] for name in options_of(external)
        if external.overrides[name] == HIDDEN and name in there.overrides
    }
    return msgspec.structs.replace(
        shown, external=msgspec.structs.replace(external, overrides={**external.overrides, **back})
    )


# -- queries ---------------------------------------------------------------------------------------


def resolved_connection(
    state: State, connection_id: str, *, resolve: Resolve = resolve_secret
) -> Resolved:
    """The effective options of a connection with its secrets' values.

    The options of the tunnel that it goes through stand beside its own, as ``SSH TUNNEL HOST``.
    Raises :class:`UnresolvedSecret` that names option, connection and secret, and ConnectorMissing.
    """
    require_installed(dependencies.external_of(state.items[connection_id]))
    whole = dependencies.effective(state, connection_id)
    options = _resolved(state, connection_id, whole, resolve)
    for option, used in whole.uses.items():
        options[option] = dependencies.display(state, used)
        its = _resolved(state, used, dependencies.effective(state, used), resolve)
        options |= {f"{option} {name}": value for name, value in its.items()}
    return options


def _resolved(
    state: State, connection_id: str, whole: dependencies.Effective, resolve: Resolve
) -> dict[str, str | Secret]:
    options: dict[str, str | Secret] = {}
    for name, value in whole.options.items():
        if not isinstance(value, SecretRef):
            options[name] = value
            continue
        secret = dependencies.by_id(state, whole.secrets[name])
        try:
            options[name] = resolve(secret.external.reference or "")
        except UnresolvedSecret as error:
            raise UnresolvedSecret(
                f"{name} of connection {dependencies.display(state, connection_id)}: "
                f"{secret.text}: {error.message}",
                remedy=error.remedy,
            ) from error
    return options


def first_stream(item_id: str) -> StreamRecord:
    """The record of a query that was never started."""
    return StreamRecord(checkpoint=f"{CHECKPOINTS}/{item_id}/1")


def spec_of(
    state: State, item_id: str, *, resolve: Resolve = resolve_secret,
    stream: StreamRecord | None = None, upstream_columns: UpstreamColumns = "evolve",
) -> QuerySpec:
    """What the query of a source or sink is started from, as the state says.

    ``stream`` replaces the committed record of positions; ``upstream_columns`` is the policy of
    POSTGRES sources that say none.
    A sink that has a retired shard still to read is started on that one, with its columns.
    """
    item = state.items[item_id]
    definition = item.definition
    external = dependencies.external_of(item)
    require_installed(external)
    stream = stream or state.streams.get(item_id) or first_stream(item_id)
    reads = state.items.get(item.links.get("reads", ""))
    dead = state.items.get(item.links.get("dead_letters", ""))
    kind: QueryKind = "source" if definition.kind == "source" else "sink"
    if kind == "source":
        shard, columns = item.shard or "", definition.columns
    else:
        assert reads is not None, f"{item_id} reads nothing"
        shard, columns = stream.reads or reads.shard or "", reads.definition.columns
        if shard != reads.shard:
            columns = _retired_columns(dependencies.location(state, shard))
            external = as_in_shard(state, external, reads.shard or "", shard)
    registry = item.links.get(dependencies.REGISTRY)
    return QuerySpec(
        item_id=item_id,
        name=definition.item_name,
        kind=kind,
        external=external,
        columns=columns,
        connection={
            **resolved_connection(state, item.links["connection"], resolve=resolve),
            **override_connection(external.connector or "", kind, external.options),
            **_overrides(state, item, resolve),
        },
        shard=dependencies.location(state, shard),
        checkpoint=dependencies.location(state, stream.checkpoint),
        dead_letters=None if dead is None else dependencies.location(state, dead.shard or ""),
        topic_ids=_topic_ids(state, item.links.get("reads")),
        reads_stream=reads is not None and reads.definition.kind == "source",
        registry=None if registry is None
        else resolved_connection(state, registry, resolve=resolve),
        registry_name="" if registry is None else dependencies.display(state, registry),
        tables=tuple(_outputs(state, item, external)),
        slot=slot_of(state, item_id) if external.tables else "",
        ignores_new_columns=policy_of(external, upstream_columns) == "ignore",
        snapshot_number=stream.snapshot,
        snapshot_tables=stream.snapshot_tables,
        survey=survey_from(stream.survey),
    )


def _outputs(state: State, item: ItemRecord, external: External) -> Iterator[OutputTable]:
    for each in external.tables:
        table = state.items[item.links[dependencies.OUTPUT + each.name]]
        yield OutputTable(
            each, table.definition.item_name, table.definition.columns, table.ids.ids,
            dependencies.location(state, table.shard or ""),
        )


def slot_of(state: State, item_id: str) -> str:
    """The replication slot of a POSTGRES source: its SLOT, else one that no other catalog has."""
    own = dependencies.external_of(state.items[item_id]).options.get("SLOT")
    return own if isinstance(own, str) else f"catalog_migrate_{state.lineage[:8]}_{item_id}"


def names_upstream(state: State, item_id: str) -> tuple[str, ...]:
    """The topics, tables and the like that a query's own definition names."""
    external = dependencies.external_of(state.items[item_id])
    connector = find_if_installed(external.connector)
    topics = () if connector is None else connector.names(external)
    others = (external.options.get(name) for name in ("TABLE", "PUBLICATION", "SLOT"))
    tables = (name for table in external.tables for name in (table.postgres_name, table.full_name))
    return (*topics, *(str(name) for name in others if name is not None), *tables)


def _overrides(state: State, item: ItemRecord, resolve: Resolve) -> Resolved:
    """What an item puts over the options of its connection (unsafe operations only).

    A secret that an older version stored as plain text is as hidden as any other.
    """
    found: dict[str, str | Secret] = {}
    external = dependencies.external_of(item)
    plain = options_of(external)
    for name, value in external.overrides.items():
        if isinstance(value, SecretRef):
            secret = dependencies.by_id(state, item.links[dependencies.OVERRIDE + name])
            found[name] = resolve(secret.external.reference or "")
        else:
            found[name] = Secret(value) if name in plain else value
    return found


def _retired_columns(path: str) -> tuple[Column, ...]:
    """The columns of a retired shard: its rows are sent in the shape that they were appended in."""
    from catalog_migrate.delta.table import shard_columns

    return tuple(shard_columns(path))


def _topic_ids(state: State, source_id: str | None) -> Mapping[str, str]:
    stream = state.streams.get(source_id or "")
    return stream.known_topics if stream is not None else {}
