"""A shard changed in place: worked out on an empty shadow table, put on the shard as one commit.

Spark's and delta-rs' statements know what may become of a table's columns; but each of theirs is a
commit of its own, and Spark's may be written over another process'
(:mod:`catalog_migrate.delta.log`). So the statements are issued on a shadow table that nobody
else knows of, and the form that it then has is given to the shard: readers and writers meet the
table as it was or as it is to be, never in between, and what is refused has not touched it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from catalog_migrate.delta import datatypes
from catalog_migrate.delta.log import has_log, lost_race_error, refuse_later_epoch
from catalog_migrate.delta.seal import CONSTRAINTS, SEAL_CONSTRAINT
from catalog_migrate.delta.table import (
    CLUSTERED,
    PHYSICAL_NAME,
    Form,
    commit_actions,
    create_shadow_table,
    discard,
    form_of,
    open_table,
    refuse_unsupported,
    shadow_name,
    shard_columns,
    sweep_shadow_tables,
    view_table,
)
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.statements import rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Alter, Layout, PlacedColumn, Shape, steps_to
from catalog_migrate.model.objects import Check, Column
from catalog_migrate.model.table_features import WRITTEN_BY_DELTA_RS
from catalog_migrate.model.table_properties import canonical_key, is_metadata
from catalog_migrate.model.types import find_added_fields, is_longer_text, parse_type
from catalog_migrate.sql.tokens import escape_doubled_quotes
from catalog_migrate.store import store_at
from catalog_migrate.store.address import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.delta.table import TableView

    Session = Callable[[], SparkSession]

_MAPPING_MODE = "delta.columnMapping.mode"
OPERATION = "EVOLVE IN PLACE"
"""What a table's history says of such a commit."""
_MARKS = "catalog_migrate."
"""Begins the properties that say whose a table is."""
_DOMAINS = "domainMetadata"
_FEATURE_TYPES = {"TIMESTAMP_NTZ": "timestampNtz", "VARIANT": "variantType"}
"""Types that need a table feature of their own."""


@dataclass(frozen=True)
class EvolvedTable:
    """What a shard is to become, as :meth:`~catalog_migrate.engine.port.Engine.evolve` has it."""

    columns: Sequence[Column]
    shard: ShardSpec
    shape: Shape | None = None


def evolve(
    session: Session, path: str, wanted: EvolvedTable, *, app_id: str = "", epoch: int = 0
) -> None:
    """Bring the shard at ``path`` to what is wanted, by one commit; none where it is there already.

    ``session`` is asked for where Spark is needed. EngineFailure for what cannot be done in place
    and for what Spark refuses; transient ones where others changed the table meanwhile, and
    ``FENCED`` where a holder of a later epoch than ``epoch`` did.
    """
    table = view_table(path)
    refuse_later_epoch(path, table.transaction_version(app_id), epoch)
    standing = form_of(table)
    refuse_unsupported(path, standing.protocol)
    reached = _rehearse(session, path, standing, wanted)
    reached = reached.with_configuration(_without(reached.configuration, wanted.shard.unset))
    actions = reached.actions(standing)
    if not actions:
        return
    # the statements took their time: what came meanwhile was not raced for
    table = view_table(path)
    refuse_later_epoch(path, table.transaction_version(app_id), epoch)
    if form_of(table) != standing:
        raise lost_race_error(path, "DELTA_METADATA_CHANGED", "others changed its metadata")
    validated = _validate_new_checks(session, path, table.version(), standing, reached)
    commit_actions(
        table, actions, operation=OPERATION, behind_data=not validated, app_id=app_id, epoch=epoch,
    )


def _rehearse(session: Session, path: str, standing: Form, wanted: EvolvedTable) -> Form:
    """The form that a shadow table has after the statements.

    EngineFailure with the shard's own place where it was refused.
    """
    apart = _apart(standing, wanted)
    bare, held = _strip(standing, apart)
    reached = _rehearse_here(path, bare, wanted) if is_remote(path) else None
    if reached is None:
        reached = _rehearse_there(session, path, bare, wanted)
    features = reached.features | (apart & standing.features)
    return reached.with_features(features).with_configuration({**held, **reached.configuration})


class _SparkNeeded(Exception):
    """A statement that delta-rs has not."""


def _rehearse_here(path: str, bare: Form, wanted: EvolvedTable) -> Form | None:
    """By delta-rs alone, on a shadow table of this machine; None where Spark is needed."""

    def session() -> NoReturn:
        raise _SparkNeeded

    with TemporaryDirectory(prefix="catalog-migrate-") as shadow:
        try:
            create_shadow_table(shadow, bare)
            _alter(session, shadow, wanted)
            return form_of(open_table(shadow))
        except _SparkNeeded:
            return None
        except EngineFailure as refused:
            raise EngineFailure(
                refused.message.replace(shadow, path), remedy=refused.remedy,
                condition=refused.condition, transient=refused.transient,
            ) from refused


def _rehearse_there(session: Session, path: str, bare: Form, wanted: EvolvedTable) -> Form:
    """On a shadow table that is inside the shard's directory for the time being.

    A failure is transient where another holder took it away meanwhile.
    """
    sweep_shadow_tables(path)
    table = store_at(path)
    name = shadow_name()
    shadow = table.place(name)
    try:
        with failing(f"create a shadow table of {path}"):
            table.make_folder(name)  # never the shard with it: that may be missing
        create_shadow_table(shadow, bare)
        _alter(session, shadow, wanted)
        return form_of(view_table(shadow))
    except EngineFailure as refused:
        taken = table.exists("/") and not has_log(shadow)
        raise EngineFailure(
            refused.message.replace(shadow, path), remedy=refused.remedy,
            condition=refused.condition, transient=refused.transient or taken,
        ) from refused
    finally:
        discard(table, name)


def _apart(form: Form, wanted: EvolvedTable) -> frozenset[str]:
    """Features that the shadow table goes without: what no statement that is issued touches.

    By which columns a table is clustered is in an action beside its form. No column that is added
    or described changes that; one that is renamed or dropped could.
    """
    if wanted.shape is not None or CLUSTERED not in form.features:
        return frozenset()
    return frozenset({CLUSTERED} if "rowTracking" in form.features else {CLUSTERED, _DOMAINS})


def _strip(form: Form, apart: frozenset[str]) -> tuple[Form, dict[str, str]]:
    """A form without some features, without whose table it is, and the properties left out.

    A shadow table that a crash leaves must not pass for a table of the catalog.
    """
    held = {
        name: value for name, value in form.configuration.items() if name.startswith(_MARKS)
    }
    rest = {name: value for name, value in form.configuration.items() if name not in held}
    return form.with_features(form.features - apart).with_configuration(rest), held


def _alter(session: Session, path: str, wanted: EvolvedTable) -> None:
    """Reshape, add, lengthen, relax, comment, constrain a table; each only where it differs.

    Structs get fields.
    """
    columns = wanted.columns
    if wanted.shape is not None:
        _reshape(session(), path, columns, wanted.shape)
    standing = {column.name.lower(): column for column in shard_columns(path)}
    _refuse_unevolvable(path, standing, columns)
    _add_columns(session, path, standing, columns)
    with failing(f"change {path} in place"):
        for column in columns:
            old = standing.get(column.name.lower())
            if old is not None:
                _alter_column(session, path, old, column)
    _describe(session, path, wanted.shard)


def _alter_column(session: Session, path: str, old: Column, column: Column) -> None:
    fields = find_added_fields(old.type, column.type)
    for field in fields or ():
        run(session(), statements.add_field(path, old.name, field))
    if column.type != old.type and fields is None:
        run(session(), statements.retype_column(path, column))
    if column.nullable and not old.nullable:
        run(session(), statements.relax_column(path, old.name))
    if (column.comment or None) == old.comment:
        return
    if _needs_spark(path):
        run(session(), statements.comment_column(path, old.name, column.comment))
    else:
        open_table(path).alter.set_column_metadata(old.name, {"comment": column.comment or ""})


def _add_columns(
    session: Session, path: str, standing: Mapping[str, Column], columns: Sequence[Column]
) -> None:
    new = [column for column in columns if column.name.lower() not in standing]
    if not new:
        return
    features = _features_of(new)
    with failing(f"add columns to {path}"):
        # delta-rs refuses to add a column to a table with column mapping
        if new == list(columns[len(standing):]) and not (
            features or _is_mapped(view_table(path)) or _needs_spark(path)
        ):
            from deltalake import Schema

            schema = Schema.from_json(json.dumps(datatypes.json_schema(new, stored=True)))
            open_table(path).alter.add_columns(list(schema.fields))
            return
        for feature in features:
            run(session(), statements.enable_feature(path, feature))
        after: str | None = None
        for column in columns:
            if column.name.lower() not in standing:
                run(session(), statements.add_column(path, column, after))
            after = column.name


def _features_of(columns: Sequence[Column]) -> list[str]:
    """The table features that types of columns want."""
    kinds = [parse_type(column.type) for column in columns]
    return [
        feature for name, feature in _FEATURE_TYPES.items()
        if any(datatypes.holds(kind, name) for kind in kinds)
    ]


def _describe(session: Session, path: str, shard: ShardSpec) -> None:
    """Table comment, properties and checks."""
    metadata = view_table(path).metadata()
    present = metadata.configuration
    with failing(f"change {path} in place"):
        if (shard.comment or "") != (metadata.description or ""):
            if _needs_spark(path):
                run(session(), statements.comment_table(path, shard.comment))
            else:
                open_table(path).alter.set_table_description(shard.comment or "")
        changed = {
            k: v for k, v in shard.properties.items()
            if present.get(k) != v and is_metadata(k, present.get(k), v)
        }
        if changed and _needs_spark(path):
            run(session(), statements.set_properties(path, changed))
        elif changed:
            open_table(path).alter.set_table_properties(changed, raise_if_not_exists=False)
        _constrain(session, path, present, shard.checks)


def _constrain(
    session: Session, path: str, present: Mapping[str, str], checks: Sequence[Check]
) -> None:
    wanted = {check.name.lower(): escape_doubled_quotes(check.expression) for check in checks}
    for name, expression in _checks(present).items():
        if wanted.get(name) == expression:
            del wanted[name]
        else:
            run(session(), statements.drop_check(path, name))
    for name, expression in wanted.items():
        run(session(), statements.add_check(path, name, expression))


def _without(configuration: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """The properties without those that are unset, where metadata alone does it."""
    unset = {
        key for key in keys
        if key in configuration
        and (canonical_key(key) != key or is_metadata(key, configuration[key], None))
    }
    return {key: value for key, value in configuration.items() if key not in unset}


def _needs_spark(path: str) -> bool:
    """Whether delta-rs refuses to change a table, because of a feature of it."""
    features = form_of(view_table(path)).features
    return not features <= WRITTEN_BY_DELTA_RS


def _checks(configuration: Mapping[str, str]) -> dict[str, str]:
    """Expressions of CHECK constraints by folded name, without the seal's."""
    named = {
        key[len(CONSTRAINTS) :].lower(): expression
        for key, expression in configuration.items()
        if key.startswith(CONSTRAINTS)
    }
    named.pop(SEAL_CONSTRAINT, None)
    return named


def _validate_new_checks(
    session: Session, path: str, version: int, standing: Form, reached: Form
) -> bool:
    """Validate checks that the shard has not yet on its rows; whether there are any.

    The shadow table has no rows that could violate one. As with Spark's ADD CONSTRAINT NULL does.
    """
    known = _checks(standing.configuration)
    new = {n: e for n, e in _checks(reached.configuration).items() if known.get(n) != e}
    for name, expression in new.items():
        with failing(f"validate the check {name} on {path}"):
            violated = rows(session(), statements.violating(path, version, expression))
        if violated:
            raise EngineFailure(
                f"cannot change {path} in place: rows violate the check {name} ({expression})",
                condition="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            )
    return bool(new)


def _refuse_unevolvable(
    path: str, standing: Mapping[str, Column], columns: Sequence[Column]
) -> None:
    """EngineFailure for a change that metadata alone cannot make."""
    reason = None
    lost = standing.keys() - {column.name.lower() for column in columns}
    if lost:
        reason = f"dropping {', '.join(sorted(lost))}"
    for column in columns:
        old = standing.get(column.name.lower())
        if old is None and not column.nullable:
            reason = f"adding {column.name} NOT NULL"
        elif (
            old is not None
            and old.type != column.type
            and not is_longer_text(old.type, column.type)
            and find_added_fields(old.type, column.type) is None
        ):
            reason = f"changing {column.name} from {old.type} to {column.type}"
        elif old is not None and old.nullable and not column.nullable:
            reason = f"making {column.name} NOT NULL"
    if reason is not None:
        raise EngineFailure(
            f"{reason} needs a copy, it cannot be done in place on {path}",
            condition="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
        )


# -- columns renamed, dropped and moved -----------------------------------------------------------

# What delta-rs 1.6 can do on a mapped table was tried: read, append, seal, unseal, fence, comment,
# properties, empty; not ADD COLUMN. So nothing but that depends on whether a shard is mapped, a
# shard is created without, and mapping is turned on by the first rename or drop.

def _is_mapped(table: TableView) -> bool:
    """Whether column mapping is on, so that names are not those in the files."""
    return table.metadata().configuration.get(_MAPPING_MODE, "none").lower() != "none"


def shard_layout(table: TableView) -> Layout:
    """Physical and given names of a table's columns, with canonical types, in order."""
    schema: Mapping[str, Any] = json.loads(table.schema().to_json())
    given = datatypes.columns_of(schema)
    return Layout(
        _is_mapped(table),
        tuple(
            PlacedColumn(
                (field.get("metadata") or {}).get(PHYSICAL_NAME, column.name), column.name,
                column.type,
            )
            for field, column in zip(schema["fields"], given, strict=True)
        ),
    )


def _reshape(
    spark: SparkSession, path: str, columns: Sequence[Column], shape: Shape
) -> None:
    """Issue what is still missing of ``shape``.

    ``columns`` are the shape's with everything that an ADD COLUMN needs.
    """
    declared = {column.name.lower(): column for column in columns}
    with failing(f"change {path} in place"):
        for step in steps_to(shard_layout(view_table(path)), shape):
            run(spark, _statement(path, step, declared))


def _statement(path: str, step: Alter, declared: Mapping[str, Column]) -> str:
    if step.op == "map":
        return statements.set_property(path, _MAPPING_MODE, "name")
    if step.op == "drop":
        return statements.drop_columns(path, step.names)
    (name,) = step.names
    if step.op == "rename":
        return statements.rename_column(path, name, step.to or name)
    if step.op == "add":
        return statements.add_column(path, declared[name.lower()], step.after)
    return statements.move_column(path, name, step.after)
