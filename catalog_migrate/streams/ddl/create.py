"""CREATE: what each statement puts into the catalog (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.records import HoldRecord, Owner
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put
from catalog_migrate.connectors.base import has_records
from catalog_migrate.connectors.options import check, section_of
from catalog_migrate.connectors.query import DEAD_LETTER_COLUMNS, PLACE_COLUMNS
from catalog_migrate.connectors.registry import avro
from catalog_migrate.errors import RefusedStatement
from catalog_migrate.model.connector_names import package_of
from catalog_migrate.model.names import quote_part
from catalog_migrate.model.objects import (
    Column,
    External,
    ObjectDefinition,
    OptionValue,
    SecretRef,
    UpstreamTable,
)
from catalog_migrate.model.paths import shard_path
from catalog_migrate.model.types import canonical_type
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.statements import USED_CONNECTIONS, QueryKind
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.accepted import (
    WHOLE_VALUE,
    format_of,
    problems_of,
)
from catalog_migrate.streams.catalog.cluster_log import LOG_COLUMNS, OPERATOR
from catalog_migrate.streams.catalog.dependencies import refuse_new_loops, refuse_shared_ports
from catalog_migrate.streams.catalog.operation_records import earlier_topics
from catalog_migrate.streams.catalog.query_options import (
    check_query,
    named,
    refuse,
    require_connector,
)
from catalog_migrate.streams.catalog.statement_changes import Draft, Effect
from catalog_migrate.streams.catalog.upstream_tables import (
    TRANSACTION_COLUMNS,
    check_tables,
    column_conflicts,
    is_mirror,
    our_columns,
    role,
    with_column_ids,
)

DEFAULT_CLUSTER = "main"
"""Cluster of a source or sink that names none, while there is not exactly one other."""


_INCLUDE_TYPES = {"PARTITION": "INT", "OFFSET": "BIGINT", "TIMESTAMP": "TIMESTAMP"}


def create(state: State, statement: Any, *, owner: Owner = "user") -> Effect:
    """What a CREATE puts into the catalog; nothing, with IF NOT EXISTS, where the name is taken."""
    kind, put = CREATES[type(statement)]
    found = dependencies.lookup(state, kind, statement.name) if statement.if_not_exists else None
    if found is not None:
        return Effect(f"{found.text} exists already", (), (f"{found.text} exists, nothing done",))
    return put(Draft(state, owner=owner), statement)


def _secret(draft: Draft, statement: st.CreateSecret) -> Effect:
    """``CREATE SECRET s AS 'env:NAME'``: only the reference is stored."""
    check_reference(f"secret {named('secret', statement.name).item_name}", statement.reference)
    definition = named(
        "secret", statement.name, external=External(reference=statement.reference),
        comment=statement.comment,
    )
    created = draft.create(definition)
    return Effect(f"secret {definition.item_name} created", draft.updates, created=(created,))


def check_reference(where: str, reference: str) -> None:
    """Raise RefusedStatement unless the text has a known scheme; the value is not read."""
    from catalog_migrate.connectors.secrets import is_scheme, schemes

    scheme, colon, rest = reference.partition(":")
    if colon and scheme == "file" and not PurePosixPath(rest).is_absolute():
        raise RefusedStatement(
            f"{where}: the path of its file does not begin at the root (it is not shown, it may be"
            " the value): every process that reads it would look somewhere else",
            remedy="write 'file:/…' and the whole path",
        )
    if not colon or not rest or not is_scheme(scheme):
        raise RefusedStatement(
            f"{where}: this is no reference to a secret (its text is not shown, it may be one)",
            remedy="write where the value is kept: "
            + " or ".join(f"'{each}:…'" for each in sorted(schemes()))
            + "; values themselves are never stored",
        )


def _connection(draft: Draft, statement: st.CreateConnection) -> Effect:
    """``CREATE CONNECTION c TO KAFKA (…)``; ``USING CONNECTION base`` inherits."""
    definition = named(
        "connection", statement.name, external=statement.external, comment=statement.comment
    )
    checked, links = check_connection(draft.state, definition)
    created = draft.create(checked, links=links)
    refuse_shared_ports(draft.after())
    return Effect(
        f"connection {checked.item_name} created", draft.updates, validate=statement.validate,
        created=(created,),
    )


def check_connection(
    state: State, definition: ObjectDefinition, *, item_id: str | None = None,
    before: Mapping[str, OptionValue] | None = None,
) -> tuple[ObjectDefinition, dict[str, str]]:
    """A connection planned as a whole CREATE: canonical options, and what its names stand for.

    ``item_id`` is the connection's own id when it exists already (a base must not lead to it),
    ``before`` what its options were then.
    Raises InvalidOptions with all problems, UnknownItem, RefusedStatement for a circle.
    """
    external = definition.external or External()
    connector = require_connector(external.connector)
    where = f"connection {definition.item_name}"
    links: dict[str, str] = {}
    inherited: Mapping[str, OptionValue] = {}
    if external.connection is not None:
        base = dependencies.find(state, "connection", external.connection)
        if base.external.connector != connector:
            raise RefusedStatement(
                f"{where} is {connector}, its base {base.text} is {base.external.connector}",
                remedy="a connection inherits from one of its own type",
            )
        whole = dependencies.effective(state, base.item_id)
        itself = base.mapping.key.identity == definition.identity
        if itself or (item_id is not None and item_id in whole.chain):
            path = " -> ".join(
                [
                    str(definition.item_name),
                    *(dependencies.display(state, each) for each in whole.chain),
                ]
            )
            raise RefusedStatement(
                f"connections use each other in a circle: {path}",
                remedy="take another base",
            )
        inherited = whole.options
        links["connection"] = base.item_id
    options, _ = check(
        connector, "connection", external.options, where=where, inherited=inherited, before=before
    )
    for name, value in options.items():
        if isinstance(value, SecretRef):
            secret = dependencies.find(state, "secret", value.secret)
            links[dependencies.SECRET + name] = secret.item_id
        elif name in USED_CONNECTIONS:
            used = dependencies.find(state, "connection", value)
            if used.external.connector != name:
                raise RefusedStatement(
                    f"{where}: {used.text} is {used.external.connector}, no {name}",
                    remedy=f"name a connection TO {name}; SHOW CONNECTIONS lists them",
                )
            links[dependencies.USING + name] = used.item_id
    return (
        msgspec.structs.replace(
            definition,
            external=msgspec.structs.replace(
                external, connector=connector, options=options, package=package_of(connector)
            ),
        ),
        links,
    )


def _cluster(draft: Draft, statement: st.CreateCluster) -> Effect:
    """``CREATE CLUSTER main``: a place where queries run, with its log."""
    created = put_cluster(draft, statement.name)
    name = named("cluster", statement.name).item_name
    return Effect(f"cluster {name} created", draft.updates, created=(created,))


def put_cluster(draft: Draft, name: str) -> str:
    """Open a cluster and its log; return the cluster's item id."""
    cluster = named("cluster", name, external=External())
    log = named("log", free_name(draft.state, "log", f"{cluster.name}_log", cluster.schema))
    index = f"{log.name}-{cluster.name}-primary-idx"
    log_id = draft.create(
        msgspec.structs.replace(
            log, columns=LOG_COLUMNS, properties={"primary_index": index},
            comment=f"states and progress of the queries of cluster {cluster.name}",
        ),
        shard=fresh_shard(log),
    )
    return draft.create(cluster, links={"log": log_id})


def free_name(state: State, kind: str, wanted: str, schema: str) -> str:
    """``wanted``, or with 1, 2, … appended until nothing has that name (seed 003's rule)."""
    number = 0
    while True:
        name = wanted + (str(number) if number else "")
        definition = ObjectDefinition(schema=schema, kind=kind, name=name)
        if dependencies.lookup(state, "relation", str(definition.item_name)) is None:
            return str(definition.item_name)
        number += 1


def fresh_shard(definition: ObjectDefinition) -> str:
    """Return a path for a shard that nothing else will ever have."""
    return shard_path(definition.schema, definition.name, uuid4().hex)


def _cluster_of(draft: Draft, name: str | None) -> tuple[str, tuple[str, ...]]:
    """The item id of a source's or sink's cluster, and a notice when it was made now."""
    if name is not None:
        return dependencies.find(draft.state, "cluster", name).item_id, ()
    clusters = [m for m in draft.state.mappings.values() if m.kind == "cluster"]
    if len(clusters) == 1:
        return clusters[0].item_id, ()
    found = dependencies.lookup(draft.state, "cluster", DEFAULT_CLUSTER)
    if found is not None:
        return found.item_id, ()
    if clusters:
        names = ", ".join(sorted(str(m.key.item_name) for m in clusters))
        raise RefusedStatement(
            f"there are {len(clusters)} clusters and the statement names none",
            remedy=f"write IN CLUSTER and one of {names}",
        )
    return put_cluster(draft, DEFAULT_CLUSTER), (
        f"cluster {DEFAULT_CLUSTER} was created with it; run it with: catalog-migrate run "
        f"--cluster {DEFAULT_CLUSTER}",
    )


def _source(draft: Draft, statement: st.CreateSource) -> Effect:
    """``CREATE SOURCE s (…) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON …``."""
    external, links = check_query(draft.state, "source", statement.name, statement.external)
    definition = named("source", statement.name, comment=statement.comment)
    whole = dependencies.effective(draft.state, links["connection"]).options
    if section_of(external.connector or "", "source").tables:
        external = check_tables(statement.name, external, definition.schema)
    else:
        _require_accepted(f"source {definition.item_name}", "source", external, statement, whole)
    definition = msgspec.structs.replace(
        definition, external=external,
        columns=source_columns(
            statement.name, external, statement.columns, format_of("source", external, whole)
        ),
    )
    links["cluster"], notices = _cluster_of(draft, external.cluster)
    tables = []
    for table in external.tables:
        links[role(table)], taken, more = _output_table(draft, definition, table)
        tables.append(taken)
        notices += more
    definition = msgspec.structs.replace(
        definition, external=msgspec.structs.replace(external, tables=tuple(tables))
    )
    if external.dead_letters is not None:
        if dependencies.identity_of("source", external.dead_letters) == definition.identity:
            raise RefusedStatement(
                f"source {definition.item_name} would write what it cannot read into itself: ON"
                " ERROR INTO names it",
                remedy="name a table of its own for them, which CREATE makes",
            )
        links["dead_letters"], more = _dead_letters(draft, "source", external.dead_letters)
        notices += more
    created = draft.create(definition, links=links, shard=fresh_shard(definition))
    notices += _put_pause(draft, created, "source", definition, statement.paused)
    return Effect(
        f"source {definition.item_name} created", draft.updates, notices, created=(created,)
    )


def _require_accepted(
    where: str, kind: QueryKind, external: External, statement: Any,
    connection: Mapping[str, OptionValue],
) -> None:
    """RefusedStatement with everything that a source or sink of that kind does not take."""
    columns = getattr(statement, "columns", ())
    refuse(where, problems_of(kind, external, columns, connection))


def _put_pause(
    draft: Draft, item_id: str, kind: str, definition: ObjectDefinition, reason: str | None
) -> tuple[str, ...]:
    """The operator's hold of CREATE … PAUSED, in the commit that creates (KIP-980)."""
    if reason is None:
        return ()
    hold = HoldRecord(item_id=item_id, holder=OPERATOR, reason=reason, since="")
    draft.add(Put("hold", f"{item_id}/{OPERATOR}/1", hold))
    return (f"it is held ({reason}): RESUME {kind.upper()} {definition.item_name} starts it",)


def source_columns(
    name: str, external: External, declared: tuple[Column, ...], format_: str
) -> tuple[Column, ...]:
    """Return the columns of a source's shard: declared, shown by INCLUDE, and Kafka's own four.

    ``format_`` is what its records or files are in. Of a POSTGRES source those of its transactions.
    """
    section = section_of(external.connector or "", "source")
    if section.tables:
        if declared:
            raise RefusedStatement(
                f"source {name} declares columns, which come from the tables upstream",
                remedy="leave them out",
            )
        return TRANSACTION_COLUMNS
    columns = [
        msgspec.structs.replace(column, type=canonical_type(column.type))
        for column in _value_columns(name, declared, format_)
    ]
    for what, shown_as in external.include.items():
        kind = "BINARY" if (external.key_format or format_) == "BYTES" else "STRING"
        columns.append(Column(shown_as, _INCLUDE_TYPES.get(what, kind)))
    if section.records:
        columns += PLACE_COLUMNS
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise RefusedStatement(
                f"source {name} has the column {column.name} twice",
                remedy="rename it; INCLUDE takes AS name, and _topic, _partition, _offset and "
                "_timestamp are always there",
            )
        seen.add(column.name.lower())
    return tuple(columns)


def _value_columns(
    name: str, declared: tuple[Column, ...], format_: str
) -> tuple[Column, ...]:
    """The columns of a record's or a file's value; RefusedStatement for too few or too many."""
    if not declared:
        only = WHOLE_VALUE.get(format_)
        if only is None:
            raise RefusedStatement(
                f"source {name} has no columns",
                remedy=f"FORMAT {format_} needs them: {name} (id BIGINT, …)",
            )
        return (only,)
    if format_ in WHOLE_VALUE and len(declared) != 1:
        raise RefusedStatement(
            f"source {name} has {len(declared)} columns, FORMAT {format_} gives one",
            remedy="declare one column, or none (it is called value)",
        )
    return declared


def find_mirroring_source(state: State, table_id: str) -> dependencies.CatalogEntry | None:
    """The source that keeps the current rows of a table, None for any other table."""
    return next((
        found for found in dependencies.queries(state)
        if is_mirror(found.external) and table_id in dependencies.outputs(found.item)
    ), None)


def _output_table(
    draft: Draft, source: ObjectDefinition, table: UpstreamTable
) -> tuple[str, UpstreamTable, tuple[str, ...]]:
    """The table of ours for one upstream, one that fits or a new one; and what it takes of it."""
    external = source.external or External()
    columns = our_columns(table, external)
    found = dependencies.lookup(draft.state, "relation", table.into)
    if found is None:
        definition = named(
            "table", table.into, columns=columns, contents="retained",
            comment=f"{'rows' if is_mirror(external) else 'changes'} of {table.full_name}, by"
            f" source {source.item_name}",
        )
        made = draft.create(definition, shard=fresh_shard(definition))
        return made, table, (f"table {definition.item_name} was created for {table.full_name}",)
    problems = column_conflicts(columns, found.item.definition.columns)
    if found.mapping.kind != "table":
        problems = [f"it is a {found.mapping.kind}"]
    elif found.item.definition.is_derived:
        problems.append("it is derived, and every migration fills it again")
    writer = next((
        other for other in dependencies.queries(draft.state)
        if found.item_id in dependencies.outputs(other.item)
    ), None)
    if writer is not None:
        problems.append(f"{writer.text} writes it")
    if is_mirror(external) and dependencies.must_only_grow(
        draft.state, dependencies.users_of(draft.state, found.item_id)
    ):
        problems.append("a sink reads it, so that its rows are never updated")
    if problems:
        raise RefusedStatement(
            f"{found.text} cannot take the changes of {table.full_name}: {'; '.join(problems)}",
            remedy="give our table another name: TABLES "
            f"({quote_part(table.full_name.rpartition('.')[2])} AS other)",
        )
    return found.item_id, with_column_ids(table, found.item), ()


def _dead_letters(draft: Draft, kind: QueryKind, name: str) -> tuple[str, tuple[str, ...]]:
    """The table of ON ERROR INTO: one that fits, or a new one."""
    found = dependencies.lookup(draft.state, "relation", name)
    if found is None:
        definition = named(
            "table", name, columns=DEAD_LETTER_COLUMNS, contents="retained",
            comment="records that a source could not read" if kind == "source"
            else "rows that the destination of a sink refused",
        )
        made = draft.create(definition, shard=fresh_shard(definition))
        return made, (f"table {definition.item_name} was created for dead letters",)
    shape = [(column.name, column.type) for column in found.item.definition.columns]
    if shape != [(column.name, column.type) for column in DEAD_LETTER_COLUMNS]:
        wanted = ", ".join(f"{column.name} {column.type}" for column in DEAD_LETTER_COLUMNS)
        raise RefusedStatement(
            f"{found.text} cannot hold dead letters",
            remedy=f"name a table that is not there yet, or one with the columns {wanted}",
        )
    return found.item_id, ()


def _sink(draft: Draft, statement: st.CreateSink) -> Effect:
    """``CREATE SINK k FROM t INTO KAFKA CONNECTION c (TOPIC 'o') …``."""
    external, links = check_query(draft.state, "sink", statement.name, statement.external)
    name = named("sink", statement.name).item_name
    whole = dependencies.effective(draft.state, links["connection"]).options
    _require_accepted(f"sink {name}", "sink", external, statement, whole)
    if external.reads is None:
        raise RefusedStatement(f"sink {name} reads nothing", remedy="write FROM table")
    reads = dependencies.find(draft.state, "relation", external.reads)
    check_input(f"sink {name}", reads, external)
    if external.format == "AVRO":
        for reason in avro.unwritable(reads.item.definition.columns):
            raise RefusedStatement(
                f"sink {name} cannot write {reads.text} as Avro: {reason}",
                remedy="write FORMAT JSON SCHEMA, or read a table without that column",
            )
        try:
            avro.written_schema((), str(external.options.get("RECORD NAME", "r")))
        except avro.UnfitSchema as error:
            raise RefusedStatement(
                f"sink {name}, option RECORD NAME: {error}", remedy="write RECORD NAME 'shop.Order'"
            ) from None
    keyed = replaces_rows(external) and not external.order_by
    if keyed and not has_records(reads.item.definition):
        raise RefusedStatement(
            f"sink {name} has KEY but no ORDER BY: of two rows of {reads.text} with one key it"
            " cannot tell which is the last",
            remedy="write KEY (…) ORDER BY (…) with a column that grows, as a time of change",
        )
    mirrored = find_mirroring_source(draft.state, reads.item_id)
    if mirrored is not None:
        raise RefusedStatement(
            f"sink {name} reads {reads.text}, whose rows {mirrored.text} updates and deletes: a"
            " sink sends appended rows",
            remedy="create a source with FORMAT CHANGES over the same tables, and read its table",
        )
    links["reads"] = reads.item_id
    notices: tuple[str, ...] = ()
    if external.dead_letters is not None:
        links["dead_letters"], notices = _dead_letters(draft, "sink", external.dead_letters)
        if links["dead_letters"] == reads.item_id:
            raise RefusedStatement(
                f"sink {name} would read what it writes: ON ERROR INTO is the table that it reads",
                remedy="name another table",
            )
    links["cluster"], made = _cluster_of(draft, external.cluster)
    notices += made
    definition = named("sink", statement.name, external=external, comment=statement.comment)
    created = draft.create(definition, links=links)
    notices += _put_pause(draft, created, "sink", definition, statement.paused)
    refuse_new_loops(draft.state, draft.after())
    if reads.mapping.kind == "table" and external.settings.get("ON CHANGE") != "skip":
        notices += (
            f"{reads.text} is append-only from now on: UPDATE, DELETE and MERGE are refused there "
            "(WITH (on_change = 'skip') leaves it as it is and sends appended rows only)",
        )
    return Effect(
        f"sink {name} created", draft.updates, notices + _namesakes(draft.state, reads, external),
        created=(created,),
    )


def _namesakes(
    state: State, reads: dependencies.CatalogEntry, external: External
) -> tuple[str, ...]:
    """That rows of a topic which was created again get the keys of those of the new one."""
    section = section_of(external.connector or "", "sink")
    if not section.row_keys or reads.mapping.kind != "source":
        return ()
    again = sorted(earlier_topics(state, reads.item_id))
    if not again:
        return ()
    return (
        f"{reads.text} holds rows of {', '.join(again)} from before it was created again: they get "
        "the same keys (header catalog_migrate.row) as rows of the new one, and a consumer that"
        " drops repeats drops one of two",
    )


def check_input(where: str, reads: dependencies.CatalogEntry, external: External) -> None:
    """Refuse what a sink cannot read exactly, and columns that are not there."""
    definition = reads.item.definition
    if reads.mapping.kind == "view":
        raise RefusedStatement(
            f"{where} reads the view {definition.item_name}; Spark cannot stream a view",
            remedy="name the table or source under it",
        )
    if definition.is_derived and not replaces_rows(external):
        raise RefusedStatement(
            f"{where} reads the derived table {definition.item_name}, which is filled again by "
            "every migration: each row would be sent again",
            remedy="write INTO POSTGRES … KEY (…), which replaces rows by key",
        )
    names = {column.name.lower() for column in definition.columns}
    for column in (*external.key, *external.order_by):
        if column.lower() not in names:
            raise RefusedStatement(
                f"{where}: {definition.item_name} has no column {column}",
                remedy="its columns: " + ", ".join(c.name for c in definition.columns),
            )


def replaces_rows(external: External) -> bool:
    """Return whether a sink keeps the last row of each key."""
    return bool(external.key) and section_of(external.connector or "", "sink").replaces


CREATES: Mapping[type, tuple[str, Callable[[Draft, Any], Effect]]] = {
    st.CreateSecret: ("secret", _secret),
    st.CreateConnection: ("connection", _connection),
    st.CreateCluster: ("cluster", _cluster),
    st.CreateSource: ("source", _source),
    st.CreateSink: ("sink", _sink),
}
"""The kind of object that each CREATE makes, and what puts it."""
