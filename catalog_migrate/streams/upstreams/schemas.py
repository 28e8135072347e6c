"""What sources and sinks have to do with a schema registry: their subjects, what a sink registers,
and whether a source's columns fit the newest schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.options import effective
from catalog_migrate.connectors.query import QuerySpec, declared_columns, written_columns
from catalog_migrate.connectors.registry import avro, protobuf
from catalog_migrate.connectors.registry.client import (
    RegisteredSchema,
    SchemaRegistry,
    UnknownSchema,
    subject_of,
)
from catalog_migrate.connectors.values import topics_of
from catalog_migrate.errors import CatalogMigrateError, ConnectionFailed, PrerequisiteMissing
from catalog_migrate.model.findings import Finding, findings_of
from catalog_migrate.model.objects import Column, External, ObjectDefinition
from catalog_migrate.model.types import Array, Atomic, Decimal, Map, Struct, Type, parse_type
from catalog_migrate.planner.plan import Migration
from catalog_migrate.streams.catalog import dependencies

KINDS = {"AVRO": "AVRO", "JSON SCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
"""By FORMAT what a registry calls it."""

_STRATEGY = "SUBJECT STRATEGY"
_JSON_TYPES: dict[str, dict[str, Any]] = {
    "BOOLEAN": {"type": "boolean"}, "FLOAT": {"type": "number"}, "DOUBLE": {"type": "number"},
    "STRING": {"type": "string"}, "DATE": {"type": "string", "format": "date"},
    "TIMESTAMP": {"type": "string", "format": "date-time"}, "TIMESTAMP_NTZ": {"type": "string"},
    "BINARY": {"type": "string", "contentEncoding": "base64"}, "VARIANT": {},
    **{name: {"type": "integer"} for name in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
}  # fmt: skip


class Written(msgspec.Struct, frozen=True):
    """What a sink registers: under which subject, the schema's text and what the registry calls it.
    """

    subject: str
    text: str
    kind: str


def written(external: External, columns: Sequence[Column]) -> Written:
    """Return the schema of a sink's rows.

    Raises :class:`~catalog_migrate.connectors.registry.avro.UnfitSchema`.
    """
    topic = str(external.options["TOPIC"])
    record = str(external.options.get("RECORD NAME") or record_name(topic))
    kind = KINDS[external.format or ""]
    text = (
        avro.written_schema(columns, record) if kind == "AVRO" else json_schema(columns, record)
    )
    return Written(subject_of(_strategy(external, "sink"), topic, record), text, kind)


def record_name(topic: str) -> str:
    """Return the name of a topic's record, with _ for what no name can have."""
    parts = (re.sub(r"[^A-Za-z0-9_]", "_", part) for part in topic.split("."))
    return ".".join(part if re.match("[A-Za-z_]", part) else f"_{part}" for part in parts)


def json_schema(columns: Sequence[Column], title: str) -> str:
    """The JSON Schema of rows as a sink writes them; what it does not name is not there, so that a
    column may be added later."""
    return json.dumps({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": title,
        **_object((each.name, parse_type(each.type), each.nullable) for each in columns),
    })


def check_schemas(spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
    """Ask whether the registry of a source or sink has, or takes, the schema that it needs.

    Nothing is written; no finding where there is no registry.
    """
    if spec.registry is None:
        return ()
    subject = f"connection {spec.registry_name}"
    registry = SchemaRegistry(spec.registry, subject=subject, timeout=timeout)
    try:
        if spec.kind == "sink":
            return (_sink_finding(spec, registry),)
        return tuple(_source_findings(spec, registry)) or (registry.check(),)
    except ConnectionFailed as error:
        return findings_of(error, subject)
    except PrerequisiteMissing as error:
        return (Finding("", "FORMAT", "error", error.message, error.remedy),)


class SinkCheck(msgspec.Struct, frozen=True):
    """What a registry says of a sink whose table gets other columns; ``ok`` None: it said nothing.

    ``bundled``: the sink comes with the release.
    """

    name: str
    ok: bool | None
    message: str
    remedy: str = ""
    bundled: bool = False

    def __str__(self) -> str:
        if self.ok is None:
            return f"sink {self.name}: not asked whether its columns are taken: {self.message}"
        if self.ok:
            return f"sink {self.name}: {self.message}"
        then = "" if self.bundled else "; it stops at the first row of the new columns"
        return f"sink {self.name}: {self.message}{then} (remedy: {self.remedy})"


def migrated_sinks(state: State, migration: Migration) -> list[SinkCheck]:
    """Ask the registries about every sink whose table gets other columns by a migration."""
    from catalog_migrate.streams.catalog.statement_changes import sinks_with_renamed_keys

    targets = {
        target.item_id: target for target in migration.targets
        if target.action is not None and target.definition.kind == "table"
        and target.item_id in state.items
        and _shape(target.definition) != _shape(state.items[target.item_id].definition)
    }
    if not targets:
        return []
    after = sinks_with_renamed_keys(state, migration)
    down: dict[str, str] = {}
    found = []
    for each in dependencies.queries(state):
        target = targets.get(each.item.links.get("reads", ""))
        registry = each.item.links.get(dependencies.REGISTRY)
        if target is None or registry is None:
            continue
        external = dependencies.external_of(after.get(each.item_id, each.item))
        name, bundled = str(each.item.definition.item_name), each.mapping.owner == "shipped"
        if registry not in down:
            try:
                finding = _asked(state, registry, external, target.definition.columns)
                found.append(
                    SinkCheck(name, finding.ok, finding.message, finding.remedy or "", bundled)
                )
                continue
            except CatalogMigrateError as error:
                down[registry] = error.message
        found.append(SinkCheck(name, None, down[registry], bundled=bundled))
    return found


def _asked(
    state: State, registry: str, external: External, columns: Sequence[Column]
) -> Finding:
    from catalog_migrate.streams.catalog.query_spec import resolved_connection

    name = dependencies.display(state, registry)
    try:
        mine = written(external, columns)
    except avro.UnfitSchema as error:
        return Finding(
            "", "FORMAT", "error", str(error), "leave the column away, or change its type"
        )
    resolved = resolved_connection(state, registry)
    return _taken(SchemaRegistry(resolved, subject=f"connection {name}"), name, mine)


def _shape(definition: ObjectDefinition) -> list[tuple[str, str, bool]]:
    return [(column.name, column.type, column.nullable) for column in definition.columns]


def newest_schemas(
    spec: QuerySpec, registry: SchemaRegistry, part: str = "value"
) -> Iterator[tuple[str, RegisteredSchema | None]]:
    """The newest schema of each subject of a source's topics, for the ``value`` or ``key`` of their
    records; None for a subject that is not there. Only of subjects that are known by the topic
    alone. Raises ConnectionFailed."""
    if _strategy(spec.external, "source") != "topic":
        return
    for topic in topics_of(str(spec.external.options["TOPIC"])):
        subject = f"{topic}-{part}"
        try:
            newest: RegisteredSchema | None = registry.latest(subject)
        except UnknownSchema:
            newest = None
        yield subject, newest


def _source_findings(spec: QuerySpec, registry: SchemaRegistry) -> list[Finding]:
    """Of each topic whose subject is known by the topic alone."""
    found = []
    for subject, newest in newest_schemas(spec, registry):
        if newest is None:
            found.append(Finding(
                "", _STRATEGY, "error",
                f"connection {spec.registry_name} has no subject {subject}",
                "register the schema or write the first record; where subjects are named by"
                f" records: SET ({_STRATEGY} = 'record')",
            ))
            continue
        problem = _misfit(spec, newest)
        fits = f"the newest schema of {subject} in connection {spec.registry_name} fits"
        found.append(
            Finding("", None, "ok", fits) if problem is None else Finding(
                "", "FORMAT", "error",
                f"the newest schema of {subject} in connection {spec.registry_name}: {problem}",
                "declare columns that hold it (docs/streams.md, Schema registries), or leave the"
                " column away",
            )
        )
    return found


def _misfit(spec: QuerySpec, schema: RegisteredSchema) -> str | None:
    wanted = KINDS[spec.external.format or ""]
    if schema.kind != wanted:
        return f"it is {schema.kind}, not {wanted}"
    columns = declared_columns(spec)
    found: Mapping[str, object]
    try:
        if wanted == "AVRO":
            found = avro.reading(schema.text, schema.references.values(), columns).columns
        elif wanted == "PROTOBUF":
            descriptors = protobuf.compiled(schema.text, schema.references)
            _, found = protobuf.MessageReader(descriptors, columns).conversions()
        else:
            return None
    except (avro.UnfitSchema, protobuf.UnfitMessage) as error:
        return str(error)
    missing = [c.name for c in columns if not c.nullable and found[c.name] is None]
    return f"it has no {', '.join(missing)}, which is NOT NULL" if missing else None


def _sink_finding(spec: QuerySpec, registry: SchemaRegistry) -> Finding:
    try:
        mine = written(spec.external, written_columns(spec))
    except avro.UnfitSchema as error:
        return Finding(
            "", "FORMAT", "error", str(error), "leave the column away, or change its type"
        )
    return _taken(registry, spec.registry_name, mine)


def _taken(registry: SchemaRegistry, name: str, mine: Written) -> Finding:
    wrong = registry.incompatibilities(mine.subject, mine.text, mine.kind)
    if wrong:
        return refusal(name, mine.subject, wrong)
    said = f"subject {mine.subject} of connection {name} takes its columns"
    return Finding("", None, "ok", said)


def refusal(registry: str, subject: str, reasons: Sequence[str]) -> Finding:
    """That a registry refuses the schema of a sink."""
    return Finding(
        "", "FORMAT", "error",
        f"connection {registry} refuses its columns for subject {subject}: {'; '.join(reasons)}",
        "make the change one that the subject's compatibility allows (a new column that may be"
        " null), or write to another topic",
    )


def _strategy(external: External, kind: str) -> str:
    section = "source" if kind == "source" else "sink"
    found = effective(external.connector or "", external.options, section=section)  # type: ignore[arg-type]
    return str(found[_STRATEGY])


def _object(fields: Any) -> dict[str, Any]:
    properties = {
        name: _json_type(tree) if not nullable else {"oneOf": [{"type": "null"}, _json_type(tree)]}
        for name, tree, nullable in fields
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _json_type(tree: Type) -> dict[str, Any]:
    if isinstance(tree, Array):
        return {"type": "array", "items": {"oneOf": [{"type": "null"}, _json_type(tree.element)]}}
    if isinstance(tree, Map):
        values = {"oneOf": [{"type": "null"}, _json_type(tree.value)]}
        return {"type": "object", "additionalProperties": values}
    if isinstance(tree, Struct):
        return _object((each.name, each.type, each.nullable) for each in tree.fields)
    if isinstance(tree, Decimal):
        return {"type": "number"}
    if isinstance(tree, Atomic):
        return dict(_JSON_TYPES.get(tree.name, {"type": "string"}))
    return {"type": "string"}
