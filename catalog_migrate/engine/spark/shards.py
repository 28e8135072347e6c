"""Shards: Delta table directories, created and changed through delta-rs, by Spark where it must.

And rows copied from an old one into a new one by Spark, with the row that made a copy fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.delta import datatypes
from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.log import find_log_problem, refuse_damaged_log, write_checksum
from catalog_migrate.delta.seal import CONSTRAINTS
from catalog_migrate.delta.table import (
    commit_actions,
    count_appended,
    create_empty,
    create_shadow_table,
    data_files,
    data_size,
    delete_data,
    delete_table,
    find_unsupported,
    form_of,
    publish,
    remove_files,
    shard_columns,
    shard_size,
    shard_version,
    table_size,
    tables_below,
    view_table,
)
from catalog_migrate.engine.port import CopyResult, RowsRefused, RowsRequest, ShardSpec
from catalog_migrate.engine.spark import properties, statements
from catalog_migrate.engine.spark.evolution import EvolvedTable, evolve, shard_layout
from catalog_migrate.engine.spark.statements import as_written, rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, RowNotConverted
from catalog_migrate.model.layout import Layout, Shape
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import placeholder_location
from catalog_migrate.model.table_properties import MAPPING_MODE, is_made_by_spark
from catalog_migrate.model.types import Sized, parse_type
from catalog_migrate.model.wording import counted
from catalog_migrate.sql.tokens import escape_doubled_quotes, tokenise
from catalog_migrate.store import store_at
from catalog_migrate.store.address import is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_ONLY = ("INTERVAL", "VOID")
"""Types that delta-rs would write into a table that Spark then cannot read."""
BRING_FEATURES = ("TIMESTAMP_NTZ", "VARIANT")
"""Types under which the protocol lists features: column mapping, which delta-rs leaves out there,
is one that readers must know too."""


def needs_spark(shard: ShardSpec) -> bool:
    """Return whether only Spark can create this shard."""
    if shard.clustered_by or is_made_by_spark(shard.properties):
        return True
    kinds = (*SPARK_ONLY, *(BRING_FEATURES if MAPPING_MODE in shard.properties else ()))
    return any(datatypes.holds(parse_type(column.type), *kinds) for column in shard.columns)


def configuration(shard: ShardSpec) -> dict[str, str]:
    """Table properties and CHECK constraints as a Delta table's configuration."""
    checks = {
        f"{CONSTRAINTS}{check.name.lower()}": escape_doubled_quotes(check.expression)
        for check in shard.checks
    }
    return {**shard.properties, **shard.stamps, **checks}


class Shards:
    """What :class:`~catalog_migrate.engine.port.Engine` says of shards, copying apart."""

    def __init__(self, spark: SparkSession | None) -> None:
        """``spark`` None: what only Spark can do is refused."""
        self._session_given = spark

    @property
    def _session(self) -> SparkSession:
        if self._session_given is None:
            raise EngineFailure(
                "this needs a Spark session",
                remedy="the runtime does it at its next start: catalog-migrate run",
            )
        return self._session_given

    def create_shard(self, shard: ShardSpec) -> None:
        """Create through delta-rs (3 ms), or Spark for what delta-rs cannot do.

        For an object store delta-rs makes it on this machine.
        """
        path = local_path(shard.path)
        if self.shard_version(path) is not None:
            self._confirm(shard)
            return
        if needs_spark(shard):
            self._create_by_spark(shard)
        elif not is_remote(path):
            self._create(path, shard)
        else:
            with TemporaryDirectory(prefix="catalog-migrate-") as here:
                self._create(here, shard)
                with failing(f"create the shard {path}"):
                    made = publish(here, path)
            if not made:
                self._confirm(shard)

    def _create(self, path: str, shard: ShardSpec) -> None:
        from deltalake import DeltaTable, Schema

        with failing(f"create the shard {shard.path}"):
            DeltaTable.create(
                path,
                schema=Schema.from_json(
                    json.dumps(datatypes.json_schema(shard.columns, stored=True))
                ),
                partition_by=list(shard.partitioned_by) or None,
                description=shard.comment,
                configuration=configuration(shard),
                raise_if_key_not_exists=False,
            )
        write_checksum(path, 0)
        self._add_missing_features(path, shard)

    def _confirm(self, shard: ShardSpec) -> None:
        """A shard that is there must be an empty one in the same form (a repeated call)."""
        path = local_path(shard.path)
        standing = [(c.name, c.type, c.nullable) for c in self.shard_columns(path)]
        if standing != [(c.name, c.type, c.nullable) for c in shard.columns] or (
            self.shard_size(path)[0] != 0
        ):
            raise EngineFailure(
                f"cannot create the shard {path}: another table is there",
                condition="DELTA_TABLE_ALREADY_EXISTS",
            )
        self._add_missing_features(path, shard)

    def _add_missing_features(self, path: str, shard: ShardSpec) -> None:
        """Name the features that Spark demands of a table whose protocol lists features.

        delta-rs lists only those of the types: Spark then refuses a NOT NULL column with
        ``DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH``.
        """
        table = view_table(path)
        form = form_of(table)
        if not form.features:
            return
        wanted = ["appendOnly", "invariants"]
        if any(column.generated is not None for column in shard.columns):
            wanted.append("generatedColumns")
        if shard.checks:
            wanted.append("checkConstraints")
        if shard.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
            wanted.append("changeDataFeed")
        actions = form.under_protocol(0, *wanted).actions(form)
        if actions:
            with failing(f"create the shard {shard.path}"):
                version = commit_actions(table, actions, operation="ADD FEATURE")
            write_checksum(path, version)

    def _create_by_spark(self, shard: ShardSpec) -> None:
        with failing(f"create the shard {shard.path}"):
            run(self._session, statements.create_shard(shard))
            for check in shard.checks:
                run(self._session, statements.add_check(shard.path, check.name, check.expression))

    shard_version = staticmethod(shard_version)
    find_shard_problem = staticmethod(find_log_problem)
    unsupported = staticmethod(find_unsupported)
    shard_columns = staticmethod(shard_columns)
    shard_size = staticmethod(shard_size)
    bytes_written = staticmethod(data_size)
    count_appended = staticmethod(count_appended)

    def count_rows(self, path: str, version: int) -> int:
        """Rows at a version: by statistics, else counted by Spark."""
        known = table_size(view_table(path, version=version)).rows
        if known >= 0:
            return known
        with failing(f"count the rows of {path} at version {version}"):
            source = statements.at_version(local_path(path), version)
            return int(rows(self._session, f"SELECT count(*) FROM {source}")[0][0])

    seal_properties = staticmethod(seals.seal_properties)
    is_sealed = staticmethod(seals.is_sealed)
    unseal = staticmethod(seals.unseal)
    fence = staticmethod(seals.fence)

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        """One commit behind ``follows`` and whatever data came after it."""
        refuse_damaged_log(path)
        return seals.seal(path, follows=follows, app_id=app_id, epoch=epoch)

    def truncate_shard(self, path: str) -> None:
        """Remove all rows; a sealed shard refuses."""
        if seals.is_sealed(path):
            raise EngineFailure(
                f"cannot empty {path}: it is sealed", condition="DELTA_CANNOT_MODIFY_APPEND_ONLY"
            )
        with failing(f"empty {path}"):
            remove_files(path)

    def shard_layout(self, path: str) -> Layout:
        """Physical names by the log's newest schema."""
        return shard_layout(view_table(path))

    def create_shadow_table(self, path: str, shadow: str) -> None:
        create_shadow_table(shadow, form_of(view_table(path)))

    def evolve(
        self, path: str, columns: Sequence[Column], shard: ShardSpec, shape: Shape | None = None, *,
        app_id: str = "", epoch: int = 0,
    ) -> None:
        """All of it in one commit, which is put where no other one is."""
        wanted = EvolvedTable(columns, shard, shape)
        evolve(lambda: self._session, local_path(path), wanted, app_id=app_id, epoch=epoch)

    missing_properties = staticmethod(properties.missing_properties)

    def set_properties(
        self, path: str, shard: ShardSpec, *, app_id: str = "", epoch: int = 0
    ) -> None:
        """By Spark, on the shard itself."""
        properties.set_properties(
            lambda: self._session, local_path(path), shard, app_id=app_id, epoch=epoch
        )

    def clone_shard(self, path: str, there: str) -> None:
        """By a SHALLOW CLONE, which a kill leaves as a table that an intent names."""
        properties.clone(lambda: self._session, local_path(path), local_path(there))

    delete_shard = staticmethod(delete_table)
    delete_shard_data = staticmethod(delete_data)
    list_shards = staticmethod(tables_below)


def create_placeholder(path: str) -> str | None:
    """An empty table of the same shape in a directory of its own; None when ``path`` is missing.

    EngineFailure when files lie there without a log: whoever drops the name would remove them.
    """
    path = local_path(path)
    if shard_version(path) is None:
        place = store_at(path)
        if place.exists("/") and any(place.names()):
            raise EngineFailure(
                f"{path} has files and no Delta log, and a managed name that points there",
                condition="DELTA_TABLE_NOT_FOUND",
                remedy="restore its log, or move the directory away",
            )
        return None
    form = form_of(view_table(path))
    mapping = {
        name: value for name, value in form.configuration.items()
        if name.startswith("delta.columnMapping.")
    }
    placeholder = placeholder_location(path)
    create_empty(placeholder, form.with_configuration(mapping))
    return placeholder


# -- copying rows, and finding the one that made it fail -------------------------------------------

Projection = Sequence[tuple[str, str]]
"""(column of the target, SQL expression over the columns of the source), in order."""

_NUMBER = "catalog_migrate_row_number"
SHOW_VALUES = "spark.catalogMigrate.showValues"
"""Setting of a session: errors may hold values of the rows that they are about."""
_ON_REQUEST = f"; {SHOW_VALUES}=true shows its values"
_WITHOUT_VALUES = frozenset({
    "CANNOT_UP_CAST_DATATYPE", "DATATYPE_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_LOG_FILE_NOT_FOUND", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND", "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "DIVIDE_BY_ZERO",
    "INCOMPATIBLE_DATA_FOR_TABLE",
    "NOT_NULL_ASSERT_VIOLATION", "PARSE_SYNTAX_ERROR",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_ACQUIRE_MEMORY",
    "UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE",
})  # fmt: skip
"""Error classes whose text never has a value of a row; any other may, one of a later Spark too."""
_OF_THE_MACHINE = re.compile(
    r"\bjava\.(?:io|nio\.file|net)\.\w+Exception|No space left on device|OutOfMemoryError"
)
_SHOWN_VALUES = 8
_SHOWN_LENGTH = 60


def is_without_values(failure: EngineFailure) -> bool:
    """Whether the text of a failure has no values of rows: by its error class, or what Java says
    of disks, stores and memory, which has none."""
    if failure.condition is None:
        return _OF_THE_MACHINE.search(failure.message) is not None
    return failure.condition.partition(".")[0] in _WITHOUT_VALUES


def _conditions(request: RowsRequest) -> Iterator[tuple[RowsRefused, str]]:
    """Each reason to refuse a row, with the condition that the row meets then."""
    given = {name.lower() for name, _ in request.projection}
    wanted = {name.lower() for name in request.looked_at}
    for column in request.columns:
        if column.name.lower() not in wanted:
            continue
        name = quote_sql(column.name)
        if not column.nullable:
            yield RowsRefused("null", column.name), f"{name} IS NULL"
        kind = parse_type(column.type)
        if isinstance(kind, Sized):
            yield RowsRefused("long", column.name), f"length(rtrim({name})) > {kind.length}"
        if column.generated is not None and column.name.lower() in given:
            yield (
                RowsRefused("generated", column.name), f"NOT ({name} <=> ({column.generated}\n))"
            )
    for check in request.checks:
        yield RowsRefused("check", check.name), statements.violate(check.expression)



def _shorten(failure: EngineFailure) -> str:
    """What may be said of a failure whose text may have values of rows."""
    return f"[{failure.condition or 'no error class'}]{_ON_REQUEST}"


class Copies:
    """Bulk and tail copies by ``INSERT ... SELECT``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: SparkSession = spark

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Projection
    ) -> CopyResult:
        refuse_damaged_log(source)
        rows = statements.at_version(local_path(source), source_version)
        return self._insert(rows, source, local_path(target), projection)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str, projection: Projection
    ) -> CopyResult | None:
        """Return the rows of the data files that came between two versions, when none went.

        Comparing the two file lists rather than reading commits also serves a compaction or an
        update of the new rows alone, and is exact.
        """
        refuse_damaged_log(source)
        before, until = data_files(source, after), data_files(source, upto)
        if before - until:
            return None
        added = sorted(file.path.rsplit("/", 1)[-1] for file in until - before)
        if not added:
            return CopyResult(0, view_table(target).version())
        version = statements.at_version(local_path(source), upto)
        rows = statements.in_files(version, added)
        return self._insert(rows, source, local_path(target), projection)

    def _insert(self, rows: str, source: str, target: str, projection: Projection) -> CopyResult:
        if self._spark.version.startswith("4.0."):
            self._refuse_cast_structs(rows, target, projection)
        try:
            with failing(f"copy {source} into {target}"):
                run(self._spark, statements.insert(target, projection, rows))
        except EngineFailure as failure:
            if failure.transient:
                raise
            place = self._locate(rows, target, projection)
            if place is None and (self._shows_values or is_without_values(failure)):
                raise
            raise RowNotConverted(
                f"cannot copy {source} into {target}: {place or _shorten(failure)}",
                condition=failure.condition,
            ) from (failure if self._shows_values else None)
        return newest_write(target)

    def _refuse_cast_structs(self, rows: str, target: str, projection: Projection) -> None:
        """EngineFailure where the INSERT itself would cast a struct.

        Delta 4.0 then writes a NULL as a struct of NULLs, in silence. A CAST in the projection is
        Spark's, which keeps it.
        """
        types = {
            column.name.lower(): _plain(column.type)
            for column in shard_columns(target) if "STRUCT<" in column.type
        }
        nested = [(name, expression) for name, expression in projection if name.lower() in types]
        if not nested:
            return
        with failing(f"analyse the copy into {target}"):
            query = statements.select(nested, rows)
            fields = json.loads(statements.schema(self._spark, query).json())["fields"]
        for (name, expression), field in zip(nested, fields, strict=True):
            wanted, found = types[name.lower()], _plain(datatypes.canonical_of(field["type"]))
            if found != wanted:
                raise EngineFailure(
                    f"cannot copy into {target}: {name} is {wanted} and {expression} gives {found};"
                    " Delta 4.0 would write a NULL of it as a struct of NULLs",
                    remedy=f"USING CAST({expression} AS {wanted}), or Spark 4.1",
                )

    # before a copy ---------------------------------------------------------------------------
    def find_refused_rows(self, request: RowsRequest) -> Sequence[RowsRefused]:
        """One aggregate; only when an expression fails in it, one by one which it is."""
        refuse_damaged_log(request.path)
        rows = statements.at_version(local_path(request.path), request.version)
        copied = _copy_query(rows, request)
        try:
            return self._count_refused(copied, request)
        except EngineFailure as failure:
            if failure.transient:
                raise
            found, rest = self._find_failing(copied, request)
            if not found:
                if self._shows_values or is_without_values(failure):
                    raise
                raise EngineFailure(
                    f"cannot look at the rows of {request.name}: {_shorten(failure)}",
                    condition=failure.condition,
                ) from None
        return [*found, *self._count_refused(copied, rest)]

    def _find_failing(
        self, copied: str, request: RowsRequest
    ) -> tuple[list[RowsRefused], RowsRequest]:
        """Which columns fail, else which CHECKs; and what is still to be looked at."""
        found = self._failing(copied, {name: quote_sql(name) for name in request.looked_at})
        if found:  # a CHECK over a column that fails would fail for it
            parts = {each.part for each in found}
            looked_at = [name for name in request.looked_at if name not in parts]
            return found, replace(request, looked_at=looked_at, checks=())
        found = self._failing(copied, {each.name: each.expression for each in request.checks})
        parts = {each.part for each in found}
        rest = [each for each in request.checks if each.name not in parts]
        return found, replace(request, checks=rest)

    def _count_refused(self, copied: str, request: RowsRequest) -> list[RowsRefused]:
        """How many rows are refused for each reason, where it is any."""
        conditions = list(_conditions(request))
        if not conditions and not request.looked_at:
            return []
        query = statements.count_refused(
            copied, [condition for _, condition in conditions], request.looked_at
        )
        with failing(f"look at the rows of {request.name}"):
            (row,) = statements.rows(self._spark, query)
        return [
            replace(refused, rows=count)
            for (refused, _), count in zip(conditions, row, strict=False) if count
        ]

    def _failing(self, copied: str, expressions: Mapping[str, str]) -> list[RowsRefused]:
        """Which of the expressions, by their parts' names, fail on a row."""
        failures = (
            (part, self._failure_of(copied, expression)) for part, expression in expressions.items()
        )
        return [
            RowsRefused("fails", part, condition=failure.condition)
            for part, failure in failures if failure is not None
        ]

    # finding the row -----------------------------------------------------------------------
    def _locate(self, rows: str, target: str, projection: Projection) -> str | None:
        """Which column of which row it was; None when that cannot be found out."""
        try:
            types = {column.name.lower(): column.type for column in shard_columns(target)}
            for column, expression in projection:
                # the INSERT casts as well: `USING city` fails there and not by itself
                stored = f"CAST(({expression}) AS {types[column.lower()]})"
                failure = self._failure_of(f"SELECT * FROM {rows}", stored)
                if failure is None:
                    continue
                said = f"column {quote_sql(column)} = {expression} fails"
                if not self._shows_values:
                    return f"{said} on a row [{failure.condition}]{_ON_REQUEST}"
                row = self._failing_row(rows, stored)
                where = f" on a row with {row}" if row else ""
                return f"{said}{where}: {failure.reason}"
            return self._null_under_not_null(rows, target, projection) or self._find_violated_check(
                rows, target, projection
            )
        except EngineFailure:
            # The copy's own failure is raised by the caller: it says more than this one.
            return None

    @property
    def _shows_values(self) -> bool:
        """Whether the caller wants values of rows in errors, which end up in logs."""
        return self._spark.conf.get(SHOW_VALUES, "false") == "true"

    def _find_violated_check(self, rows: str, target: str, projection: Projection) -> str | None:
        """The first CHECK of the target that rows violate, and how many do."""
        configuration = view_table(target).metadata().configuration
        copied = statements.select(projection, rows)
        for key, expression in configuration.items():
            if not key.startswith(CONSTRAINTS):
                continue
            with failing("count rows"):
                found = statements.rows(
                    self._spark, statements.count_violating(copied, expression)
                )[0][0]
            if found:
                some = f"{counted(found, 'row')} {'violates' if found == 1 else 'violate'}"
                return (
                    f"{some} the CHECK {key[len(CONSTRAINTS):]} ({expression});"
                    f" WHERE NOT coalesce(({expression}), false) finds them"
                )
        return None

    def _failure_of(self, query: str, expression: str) -> EngineFailure | None:
        """What Spark raises when the expression fails on one of the query's rows."""
        try:
            with (
                failing(f"evaluate {expression}"),
                as_written(self._spark, query) as asked,
                as_written(self._spark, expression) as value,
            ):
                frame = self._spark.sql(asked).selectExpr(f"{value} AS value")
                frame.write.format("noop").mode("overwrite").save()
        except EngineFailure as failure:
            return failure
        return None

    def _failing_row(self, rows: str, expression: str) -> str | None:
        """Halve the range of row numbers of one partition until a single row is left.

        A filter on a number that is not deterministic stays between the scan and the expression,
        and the numbers are the same in each run as long as the files are.
        """
        numbered = f"(SELECT *, monotonically_increasing_id() AS {_NUMBER} FROM {rows})"
        with failing("number the rows"):
            ranges = statements.rows(
                self._spark, f"SELECT min({_NUMBER}) AS low, max({_NUMBER}) AS high FROM {numbered}"
                f" GROUP BY {_NUMBER} >> 33 ORDER BY low"
            )

        def between(low: int, high: int) -> str:
            return f"SELECT * FROM {numbered} WHERE {_NUMBER} BETWEEN {low} AND {high}"

        for low, high in ranges:
            if self._failure_of(between(low, high), expression) is None:
                continue
            while low < high:
                middle = (low + high) // 2
                if self._failure_of(between(low, middle), expression) is not None:
                    high = middle
                else:
                    low = middle + 1
            return self._show_values(between(low, low), expression)
        return None

    def _null_under_not_null(self, rows: str, target: str, projection: Projection) -> str | None:
        """The first row whose value is NULL under a NOT NULL column of the target."""
        strict = {column.name.lower() for column in shard_columns(target) if not column.nullable}
        for column, expression in projection:
            if column.lower() not in strict:
                continue
            row = self._show_values(
                f"SELECT * FROM (SELECT * FROM {rows}) WHERE ({expression}) IS NULL", expression
            )
            if row is not None:
                shown = f" with {row}" if row and self._shows_values else ""
                return (
                    f"column {quote_sql(column)} = {expression} is NULL on a row{shown};"
                    f" WHERE ({expression}) IS NULL finds them all"
                )
        return None

    def _show_values(self, query: str, expression: str) -> str | None:
        """The values of a row that the expression reads, and no other: errors end up in logs."""
        row = self._first(query)
        if row is None:
            return None
        read = {token.name.lower() for token in tokenise(expression) if token.is_name}
        values = [(name, value) for name, value in row.items() if name.lower() in read]
        shown = ", ".join(
            f"{name}={str(value)[:_SHOWN_LENGTH]}" for name, value in values[:_SHOWN_VALUES]
        )
        return shown + (", ..." if len(values) > _SHOWN_VALUES else "")

    def _first(self, query: str) -> dict[str, object] | None:
        with failing("show a row"):
            found = statements.rows(self._spark, f"{query} LIMIT 1")
        return found[0].asDict() if found else None


def _copy_query(rows: str, request: RowsRequest) -> str:
    """A query for the columns of a copy, as they are stored, generated ones among them."""
    types = {column.name.lower(): _plain(column.type) for column in request.columns}
    stored = statements.select(
        [(name, f"CAST(({text}\n) AS {types[name.lower()]})") for name, text in request.projection],
        rows,
    )
    given = {name.lower() for name, _ in request.projection}
    generated = [
        f"({column.generated}\n) AS {quote_sql(column.name)}" for column in request.columns
        if column.generated is not None and column.name.lower() not in given
    ]
    columns = ", ".join(["*", *generated])
    return f"SELECT {columns} FROM ({stored}) AS stored" if generated else stored


def _plain(type_: str) -> str:
    """A type without lengths of text and without NOT NULL, as an INSERT compares it."""
    return datatypes.without_lengths(type_).replace(" NOT NULL", "")


def newest_write(target: str) -> CopyResult:
    """Rows and version of the last commit; the target is private, so it is ours."""
    with failing(f"read the shard {target}"):
        commit = view_table(target).history(1)[0]
    metrics = commit.get("operationMetrics") or {}
    return CopyResult(int(metrics.get("numOutputRows", 0)), int(commit["version"]))
