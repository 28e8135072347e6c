"""Properties of a shard that bring a table feature, set and unset by Delta's own ALTER TABLE.

Such a property is more than metadata: the protocol changes with it, and row tracking numbers the
rows that are there. Spark's statement does all of it, on the shard itself, and may be repeated
after having stopped anywhere. What it does is tried on a clone before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from catalog_migrate.delta.log import refuse_later_epoch
from catalog_migrate.delta.table import Form, commit_actions, form_of, view_table
from catalog_migrate.engine.port import MissingProperties, ShardSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.statements import rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.table_properties import (
    FEATURE,
    canonical_key,
    change_of,
    features_of,
    is_metadata,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_VERSION: Mapping[str, int] = {
    "appendOnly": 2, "invariants": 2, "checkConstraints": 3, "changeDataFeed": 4,
    "generatedColumns": 4, "columnMapping": 5, "identityColumns": 6,
}
"""Features that writers of a version have where the protocol names none (Delta protocol,
*Legacy Features*)."""


def _has(form: Form, feature: str) -> bool:
    """Whether the table's protocol has a feature, be it under the name of its preview."""
    protocol = form.protocol
    if "writerFeatures" in protocol:
        return any(name == feature or name == f"{feature}-preview" for name in form.features)
    return bool(_BY_VERSION.get(feature, 99) <= protocol["minWriterVersion"])


def _holds(form: Form, key: str, value: str) -> bool:
    """Whether a table has a property with the features that it brings."""
    if not key.startswith(FEATURE) and form.configuration.get(key) != value:
        return False
    return all(_has(form, feature) for feature in features_of(key, value))


def missing_properties(path: str, shard: ShardSpec) -> MissingProperties:
    """What of ``shard`` only Delta's ALTER TABLE gives the table at ``path``; needs no Spark."""
    return _missing(form_of(view_table(path)), shard)


def _missing(form: Form, shard: ShardSpec) -> MissingProperties:
    present = form.configuration
    return MissingProperties(
        {
            key: value for key, value in sorted(shard.properties.items())
            if not _holds(form, key, value)
            and not is_metadata(key, present.get(key), value)
        },
        tuple(
            key for key in shard.unset
            if key in present and canonical_key(key) == key
            and not is_metadata(key, present[key], None)
        ),
    )


def set_properties(
    session: Callable[[], SparkSession], path: str, shard: ShardSpec, *, app_id: str = "",
    epoch: int = 0,
) -> None:
    """Give the table at ``path`` what :func:`missing_properties` says, and read it back.

    Spark's ALTER carries no epoch: EngineFailure ``FENCED`` where a later holder came before it or
    meanwhile. What it set by then is what was committed.
    """
    table = view_table(path)
    refuse_later_epoch(path, table.transaction_version(app_id), epoch)
    form = form_of(table)
    missing = _missing(form, shard)
    if not missing:
        return
    _refuse_uncopied(path, form, missing)
    _remove_unfounded(path, missing, app_id, epoch)
    left = missing_properties(path, shard)
    with failing(f"change the properties of {path}"):
        if left.set:
            run(session(), statements.set_properties(path, left.set))
        if left.unset:
            run(session(), statements.unset_properties(path, left.unset))
        rows(session(), f"SELECT * FROM {statements.by_path(path)} LIMIT 1")
    refuse_later_epoch(path, view_table(path).transaction_version(app_id), epoch)
    kept = missing_properties(path, shard)
    if kept:
        raise EngineFailure(
            f"cannot change the properties of {path}: {', '.join((*kept.set, *kept.unset))} did not"
            " take",
            condition="PROPERTY_NOT_KEPT",
        )


def _refuse_uncopied(path: str, form: Form, missing: MissingProperties) -> None:
    """EngineFailure for what a table with rows never gets: it is copied into one that has it."""
    present = form.configuration
    wanted = [*missing.set.items(), *((key, None) for key in missing.unset)]
    for key, value in wanted:
        if change_of(key, present.get(key), value) == "copy":
            raise EngineFailure(
                f"cannot change the properties of {path}: {key} needs a copy",
                condition="DELTA_UNSUPPORTED_PROPERTY_CHANGE",
            )


def _remove_unfounded(path: str, missing: MissingProperties, app_id: str, epoch: int) -> None:
    """Take away properties whose features the protocol lacks: Delta refuses such a table.

    Earlier versions of this tool wrote them so.
    """
    table = view_table(path)
    form = form_of(table)
    unfounded = {
        key for key in (*missing.set, *missing.unset)
        if not all(_has(form, feature) for feature in features_of(key, form.configuration.get(key)))
        and key in form.configuration
    }
    if unfounded:
        kept = {key: each for key, each in form.configuration.items() if key not in unfounded}
        commit_actions(
            table, form.with_configuration(kept).actions(form), operation="UNSET TBLPROPERTIES",
            app_id=app_id, epoch=epoch,
        )


def clone(session: Callable[[], SparkSession], path: str, there: str) -> None:
    """A table at ``there`` with the rows and deletion vectors of ``path``, whose files it reads."""
    with failing(f"clone {path}"):
        run(session(), statements.clone(path, there))
