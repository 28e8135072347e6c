"""Values of a mirror's rows that got another key in a batch, and that upstream did not send again.

They are put into the changes that moved the rows, so that a row with another key comes whole, as a
new one does, and the MERGE is the one of every batch. Where each value comes from is found out by
:mod:`catalog_migrate.connectors.postgres.moved_rows`, on the driver and without the values: an
earlier change of the batch, or the mirror as it was before the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.connectors.postgres.moved_rows import (
    Carried,
    Key,
    SentBefore,
    Step,
    Traced,
    trace,
)
from catalog_migrate.connectors.postgres.sessions import NEW_SNAPSHOT, RESET_SPLITS
from catalog_migrate.connectors.postgres.types import spark_value
from catalog_migrate.connectors.query import OutputTable
from catalog_migrate.connectors.row_values import hash_key
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import UnfitValue
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.catalog.upstream_tables import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOVED = (
    "coalesce(size(unchanged), 0) > 0"
    " AND (operation = 'insert' OR (operation = 'update' AND before IS NOT NULL))"
)
"""Changes by which a row is new under its key, and of which a value was not sent."""


@contextmanager
def complete_rows(rows: DataFrame, table: OutputTable) -> Iterator[DataFrame]:
    """The changes of a batch with the unsent values of rows that got another key in their places.

    Changes that the mirror has already (of a table that was copied again, or of a position that was
    set back) are left out: its rows are those of after them. The mirror must not have the batch.
    What the frame is made of is released at the end.

    Raises UnfitValue where the value was never sent, or the mirror lacks the row that has it.
    """
    mirror = _Mirror.of(rows, table)
    rows = rows.where(f"lsn >= {mirror.newest}")
    columns = dict(table.mapped_columns)
    steps = _steps(rows, table)
    unsent = sorted({place for step in steps for place in step.unsent} & set(columns))
    found = trace(steps, unsent)
    for missing in found.never:
        raise _unfit(table, missing.column, missing.key, (
            "was not sent, and no row of before has it (a row filter of the publication made an"
            " INSERT of an UPDATE)"
        ))
    with ExitStack() as stack:
        entries = [_read_sent(rows, found.sent)] if found.sent else []
        if found.carried:
            carried = mirror.read_carried(found.carried, columns, unsent).persist()
            stack.callback(carried.unpersist)
            _require_found(carried, found, mirror, table)
            entries.append(carried.where("found").selectExpr(
                "lsn", "sequence", "explode(map_entries(values)) AS entry"
            ))
        for more in entries[1:]:
            entries[0] = entries[0].unionByName(more)
        yield _fill(rows, entries[0]) if entries else rows


def _steps(rows: DataFrame, table: OutputTable) -> list[Step]:
    """The changes of all rows that a key of such a change leads to, in their order."""
    places = [
        place for place, column in enumerate(table.upstream.columns)
        if column.name in table.upstream.key
    ]

    def key(image: str) -> str:
        return "array(" + ", ".join(f"{image}[{place}]" for place in places) + ")"

    keyed = rows.selectExpr(
        "lsn", "sequence",
        f"CASE WHEN operation = 'insert' THEN NULL WHEN before IS NULL THEN {key('after')}"
        f" ELSE {key('before')} END AS old",
        f"IF(operation = 'delete', NULL, {key('after')}) AS new",
        "unchanged", f"{MOVED} AS moved",
    )
    touched = keyed.where("moved").selectExpr("explode(array(old, new)) AS key").where(
        "key IS NOT NULL"
    ).distinct()
    ours = [
        keyed.join(touched, keyed[side] == touched["key"], "left_semi") for side in ("old", "new")
    ]
    found = ours[0].unionByName(ours[1]).dropDuplicates(["lsn", "sequence"])
    return [
        Step(
            (row["lsn"], row["sequence"]), _key(row["old"]), _key(row["new"]),
            tuple(row["unchanged"] or ()),
        )
        for row in found.orderBy("lsn", "sequence").collect()
    ]


def _key(values: Sequence[str | None] | None) -> Key | None:
    return None if values is None else tuple(values)


class _Mirror(NamedTuple):
    """A mirror as it is before the batch; ``newest`` is the newest change that it has."""

    rows: DataFrame
    table: OutputTable
    newest: int

    @classmethod
    def of(cls, changes: DataFrame, table: OutputTable) -> _Mirror:
        path = local_path(table.shard)
        rows = (
            changes.sparkSession.read.format("delta")
            .option("versionAsOf", load_table(path).version()).load(path)
        )
        newest = rows.agg(F.max("_lsn")).collect()[0][0]
        if any(column.name == DELETED.name for column in table.columns):
            rows = rows.where(F.col(quote_sql(DELETED.name)).isNull())
        return cls(rows, table, newest or 0)

    def read_carried(
        self, wanted: Sequence[Carried], columns: dict[int, Column], unsent: Sequence[int]
    ) -> DataFrame:
        """Of each wanted the values by place, as PostgreSQL's text, and whether its row was
        ``found``."""
        import pyarrow as pa

        texts = pa.list_(pa.string())
        asked = self.rows.sparkSession.createDataFrame(pa.table({
            "lsn": pa.array([each.at[0] for each in wanted], pa.int64()),
            "sequence": pa.array([each.at[1] for each in wanted], pa.int32()),
            "key": pa.array([list(each.key) for each in wanted], texts),
            "origin": pa.array([list(each.origin) for each in wanted], texts),
            "columns": pa.array([list(each.columns) for each in wanted], pa.list_(pa.int32())),
        }))
        values = ", ".join(f"{place}, {_text(columns[place])}" for place in unsent)
        return self._join(asked, "origin", "left").selectExpr(
            "wanted.lsn", "wanted.sequence", "wanted.key", "mirror._lsn IS NOT NULL AS found",
            f"map_filter(map({values}), (place, v) -> array_contains(wanted.columns, place))"
            " AS values",
        )

    def has(self, wanted: DataFrame) -> int:
        """Of how many wanted rows the mirror has the key, as it is after the change or later."""
        return self._join(wanted, "key", "inner").where("mirror._lsn >= wanted.lsn").count()

    def _join(self, wanted: DataFrame, key: str, how: str) -> DataFrame:
        """Wanted rows beside those of the mirror, under names that no column takes."""
        same = " AND ".join(
            f"mirror.{quote_sql(column.name)} <=>"
            f" {spark_value(column.type, f'wanted.{key}[{number}]', key=True)}"
            for number, column in enumerate(self.table.key)
        )
        rows = self.rows.select(F.struct("*").alias("mirror"))
        return wanted.select(F.struct("*").alias("wanted")).join(rows, F.expr(same), how)


def _text(column: Column) -> str:
    name = f"mirror.{quote_sql(column.name)}"
    if column.type == "BINARY":
        return f"concat('\\\\x', lower(hex({name})))"
    return f"CAST({name} AS STRING)"


def _require_found(
    carried: DataFrame, found: Traced, mirror: _Mirror, table: OutputTable
) -> None:
    """UnfitValue for a row that the mirror lacks, unless it has the one of after the change."""
    lost = carried.where("NOT found")
    missing = {(row["lsn"], row["sequence"]) for row in lost.select("lsn", "sequence").collect()}
    if missing and mirror.has(lost) < len(missing):
        first = next(each for each in found.carried if each.at in missing)
        raise _unfit(table, first.columns[0], first.key, (
            "was not sent because it stayed the same, and the mirror has no row under the key that"
            " its row had before"
        ), first.at[0])


def _unfit(
    table: OutputTable, place: int, key: Key, what: str, lsn: int | None = None
) -> UnfitValue:
    column, full_name = table.upstream.columns[place].name, table.upstream.full_name
    return UnfitValue(
        f"the value of column {column} of {full_name} in a row (key sha256 {hash_key(key)}) {what}",
        remedy=f"ALTER TABLE {full_name} REPLICA IDENTITY FULL upstream where that happens again;"
        f" then {NEW_SNAPSHOT}",
        table=full_name, column=column, key=hash_key(key), lsn=lsn, statements=RESET_SPLITS,
    )


def _read_sent(rows: DataFrame, wanted: Sequence[SentBefore]) -> DataFrame:
    """The values that earlier changes of the batch have."""
    import pyarrow as pa

    number = pa.int32()
    asked = rows.sparkSession.createDataFrame(pa.table({
        "at_lsn": pa.array([each.at[0] for each in wanted], pa.int64()),
        "at_sequence": pa.array([each.at[1] for each in wanted], number),
        "place": pa.array([each.column for each in wanted], number),
        "lsn": pa.array([each.sent[0] for each in wanted], pa.int64()),
        "sequence": pa.array([each.sent[1] for each in wanted], number),
    }))
    return asked.join(rows.select("lsn", "sequence", "after"), ["lsn", "sequence"]).selectExpr(
        "at_lsn AS lsn", "at_sequence AS sequence",
        "named_struct('key', place, 'value', get(after, place)) AS entry",
    )


def _fill(rows: DataFrame, entries: DataFrame) -> DataFrame:
    """The changes with the values of (lsn, sequence, entry) in their images."""
    values = entries.groupBy("lsn", "sequence").agg(
        F.expr("map_from_entries(collect_list(entry))").alias("values")
    )
    return rows.join(values, ["lsn", "sequence"], "left").withColumns({
        "after": F.expr(
            "IF(values IS NULL, after, transform(after, (v, place) ->"
            " IF(map_contains_key(values, place), values[place], v)))"
        ),
        "unchanged": F.expr(
            "IF(values IS NULL, unchanged,"
            " filter(unchanged, place -> NOT map_contains_key(values, place)))"
        ),
    }).drop("values")
