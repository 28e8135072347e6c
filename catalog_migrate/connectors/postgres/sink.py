"""One batch INTO POSTGRES: exactly once, in one transaction with its row in the ledger."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)
from pyspark.sql.window import Window

from catalog_migrate.connectors.postgres.ledger import Ledger, RefusedRows
from catalog_migrate.connectors.query import (
    OFFSET,
    PARTITION,
    QuerySpec,
    find_columns,
    has_record_positions,
    written_columns,
)
from catalog_migrate.connectors.refused_rows import (
    Refusal,
    RefusedRow,
    SinkRow,
    append_refused,
    decode_row,
    divide,
    encode_row,
    refused_error,
    sink_rows,
)
from catalog_migrate.connectors.row_values import place_in
from catalog_migrate.connectors.spark_rows import JSON_OPTIONS, json_of
from catalog_migrate.connectors.values import table_of
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import fold, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Array, Atomic, Interval, Map, Struct, parse_type

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

    from catalog_migrate.connectors.base import Batch


_CHUNK = 1000
"""Lines handed to the server at once."""
_DIVIDING = 600
"""Seconds that a transaction may wait for rows of a batch that is divided."""
_RANK = "__catalog_migrate_rank"
_INCOMING = "catalog_migrate_incoming"


class PostgresSink:
    """Writes batches of a sink into its table.

    Without KEY every row is appended. With KEY a row replaces the one of its key: of several in a
    batch the last by ORDER BY (rows of a Kafka source: by partition and offset), and none
    replaces one that ORDER BY puts behind it.

    A row that the table refuses goes to the dead letters, if the sink has a table for them, and
    with KEY the row before it takes its place. Such rows stay beside the ledger, in the transaction
    of their batch, until they are there: what is on either side is decided once.
    """

    def __init__(self, spec: QuerySpec) -> None:
        where = f"what {spec.name} reads"
        self._spec = spec
        self._target = _target_table(spec)
        self._ledger = Ledger(spec.connection, self._target)
        self._columns = written_columns(spec)
        self._key = find_columns(spec.columns, spec.external.key, where=where)
        self._order = find_columns(spec.columns, spec.external.order_by, where=where)
        if self._key and not self._order and not has_record_positions(spec):
            raise EngineFailure(
                f"sink {spec.name} has KEY but no ORDER BY: of two rows with one key in a batch it"
                " cannot tell which is the last",
                condition="ORDER_BY_MISSING",
                remedy="write KEY (…) ORDER BY (…) with a column that grows, as a time of change",
            )
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None

    def write(self, batch: Batch) -> None:
        """Enter the batch into the ledger and copy its rows, or pass over it when it is there."""
        spec = self._spec
        with self._ledger.connect(batch.query_id) as connection:
            with self._lock:
                self._connection = connection
            try:
                keeps = spec.dead_letters is not None
                self._ledger.create(connection, refused=keeps)
                if keeps:  # of a batch that an earlier runtime has committed
                    self._deliver(connection, batch.frame.sparkSession)
                refused: list[RefusedRow] = []
                with connection.transaction():
                    if self._ledger.claim(connection, batch.query_id, batch.number, spec.item_id):
                        refused = self._copy(connection, batch.frame)
                        if refused:
                            rows = tuple(map(encode_row, refused))
                            found = RefusedRows(batch.query_id, batch.number, rows)
                            self._ledger.keep_refused(connection, found, spec.item_id)
                if refused:
                    self._deliver(connection, batch.frame.sparkSession)
            finally:
                with self._lock:
                    self._connection = None

    def deliver_refused(self, spark: SparkSession) -> None:
        """Put refused rows of an earlier run among the dead letters; before the first batch."""
        if self._spec.dead_letters is not None:
            with self._ledger.connect("") as connection:
                self._deliver(connection, spark)

    def cancel(self) -> None:
        """Break off the statement under way; its transaction is rolled back."""
        with self._lock:
            if self._connection is not None:
                self._connection.cancel_safe(timeout=2.0)

    def _deliver(self, connection: Connection[Any], spark: SparkSession) -> None:
        with connection.transaction():  # each of its own: none may wait for the end of another
            waiting = self._ledger.read_refused(connection, self._spec.item_id)
        for found in waiting:
            rows = [decode_row(text) for text in found.rows]
            append_refused(spark, self._spec, rows, found.query_id, found.batch)
            with connection.transaction():
                self._ledger.forget_refused(connection, found)

    def _copy(self, connection: Connection[Any], frame: DataFrame) -> list[RefusedRow]:
        """Copy the rows of a batch; those that the table refuses."""
        import psycopg
        from psycopg.sql import SQL, Identifier

        table = Identifier(*(part for part in table_of(self._target) if part is not None))
        names = self._target_names(connection, table)
        listed = SQL(", ").join(Identifier(names[fold(column.name)]) for column in self._columns)
        incoming = Identifier("pg_temp", _INCOMING)
        if self._key:
            connection.execute(
                SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
                .format(Identifier(_INCOMING), listed, table)
            )
            ranked = self._ranked(frame)
            frame = ranked.where(F.col(_RANK) == 1)

        def put(lines: Iterable[str]) -> None:
            with connection.transaction():
                if not self._key:
                    _send(connection, table, listed, lines)
                else:
                    _send(connection, incoming, listed, lines)
                    connection.execute(self._merge(table, incoming, listed, names))
                # what is checked at the commit would refuse all of it there
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

        try:
            put(self._lines(frame))
        except psycopg.Error as error:
            if _refusal(error, self._columns) is None:
                raise
        else:
            return []

        def try_rows(rows: Sequence[SinkRow]) -> Refusal | None:
            try:
                if self._key:
                    connection.execute(SQL("TRUNCATE {}").format(incoming))
                put(str(row.sent[0]) for row in rows)
            except psycopg.Error as error:
                refusal = _refusal(error, self._columns, rows)
                if refusal is None:
                    raise
                return refusal
            return None

        # a Spark job begins while the transaction waits
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_DIVIDING}s'")
        found = []
        for row, refusal in divide(self._rows(frame), try_rows):
            if self._spec.dead_letters is None:
                raise refused_error(self._spec, f"table {self._target}", row, refusal) from None
            found.append((row, refusal))
        refused = [row.refuse(refusal) for row, refusal in found]
        if self._key and refused:
            refused += self._before(ranked, {str(row.sent[1]) for row, _ in found}, try_rows)
        return refused

    def _before(
        self, ranked: DataFrame, keys: set[str],
        try_rows: Callable[[Sequence[SinkRow]], Refusal | None],
    ) -> Iterator[RefusedRow]:
        """Put the row before the last one of each of those keys, if it can be; the others that were
        tried."""
        key = self._whole_key()
        rows = ranked.where((F.col(_RANK) > 1) & key.isin(sorted(keys)))
        for row in self._rows(rows.orderBy(key, _RANK)):
            if row.sent[1] in keys:
                refusal = try_rows([row])
                if refusal is None:
                    keys.remove(str(row.sent[1]))
                else:
                    yield row.refuse(refusal)

    def _rows(self, frame: DataFrame) -> Iterator[SinkRow]:
        key = self._whole_key() if self._key else F.lit(None).cast("string")
        return sink_rows(frame, self._spec, [copy_line(self._columns), key])

    def _whole_key(self) -> Expression:
        """The key as text that is never NULL."""
        return json_of([column.name for column in self._key])

    def _lines(self, frame: DataFrame) -> Iterator[str]:
        lines = frame.select(copy_line(self._columns).alias("line"))
        for row in lines.toLocalIterator(prefetchPartitions=True):
            yield row[0]

    def _ranked(self, frame: DataFrame) -> DataFrame:
        """The rows with their place among those of their key, the last first."""
        order = [column.name for column in self._order]
        if not order:
            order = [PARTITION, OFFSET]
        elif has_record_positions(self._spec):
            order += [PARTITION, OFFSET]
        window = Window.partitionBy(
            *(F.col(quote_sql(column.name)) for column in self._key)
        ).orderBy(*(F.col(quote_sql(name)).desc_nulls_last() for name in order))
        return frame.withColumn(_RANK, F.row_number().over(window))

    def _merge(
        self, table: Identifier, incoming: Identifier, listed: Composed, names: dict[str, str]
    ) -> Composed:
        """The upsert. By key in a fixed order, so that two sinks on one table cannot deadlock."""
        from psycopg.sql import SQL, Identifier

        key = [Identifier(names[fold(column.name)]) for column in self._key]
        keys = SQL(", ").join(key)
        folded = {fold(column.name) for column in self._key}
        others = [
            Identifier(names[fold(column.name)])
            for column in self._columns
            if fold(column.name) not in folded
        ]
        statement = SQL(
            "INSERT INTO {} AS standing ({}) SELECT {} FROM {} ORDER BY {} ON CONFLICT ({}) DO "
        ).format(table, listed, listed, incoming, keys, keys)
        if not others:
            return statement + SQL("NOTHING")
        changes = SQL(", ").join(SQL("{} = EXCLUDED.{}").format(name, name) for name in others)
        statement += SQL("UPDATE SET {}").format(changes)
        if not self._order:
            return statement
        # A NULL comes before every value, as in the order within the batch.
        standing = self._order_row("standing", names)
        excluded = self._order_row("excluded", names)
        return statement + SQL(" WHERE (({}) <= ({})) IS NOT FALSE").format(standing, excluded)

    def _order_row(self, row: str, names: dict[str, str]) -> Composed:
        from psycopg.sql import SQL, Identifier

        parts = []
        for column in self._order:
            value = SQL("{}.{}").format(Identifier(row), Identifier(names[fold(column.name)]))
            parts.append(SQL("{} IS NOT NULL").format(value))
            # Spark orders text by its bytes; the database's own collation need not.
            is_text = column.type == "STRING" or "CHAR(" in column.type
            parts.append(SQL('{}::text COLLATE "C"').format(value) if is_text else value)
        return SQL(", ").join(parts)

    def _target_names(self, connection: Connection[Any], table: Identifier) -> dict[str, str]:
        """Our columns' folded names to the table's own, which may be written in another case."""
        there = _columns_of(connection, table)
        names: dict[str, str] = {}
        missing = []
        for column in self._columns:
            candidates = [name for name in there if fold(name) == fold(column.name)]
            if column.name in candidates:
                names[fold(column.name)] = column.name
            elif len(candidates) == 1:
                names[fold(column.name)] = candidates[0]
            else:
                missing.append(column.name)
        if missing:
            raise EngineFailure(
                f"table {self._target} has no column {', '.join(missing)}",
                condition="UNDEFINED_COLUMN",
                remedy=f"ALTER TABLE {self._target} ADD COLUMN … in the database",
            )
        return names


def _columns_of(connection: Connection[Any], table: Identifier) -> Sequence[str]:
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum",
        (table.as_string(connection),),
    )
    return [row[0] for row in rows]


_OF_A_ROW = re.compile(r"22|23|44000|54000|P0001")
"""How SQLSTATEs begin that are about values of a row: what they cannot be, constraints, the check
of a view, an entry that no index can hold, what a trigger refuses."""
_WANTS_OTHERS = "23503"


def _refusal(
    error: psycopg.Error, columns: Sequence[Column], rows: Sequence[SinkRow] = ()
) -> Refusal | None:
    """What the server says of rows; None where it says something else."""
    state = error.sqlstate or ""
    if _OF_A_ROW.match(state) is None:
        return None
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", type(error).__name__).lower()
    column = place_in(error).get("column")
    if column is None and len(rows) == 1:  # a NUL is refused before the line is split
        fields = str(rows[0].sent[0]).split("\t")
        column = next(
            (each.name for each, field in zip(columns, fields, strict=True) if "\0" in field), None
        )
    constraint = error.diag.constraint_name
    named = f", constraint {constraint}" if constraint is not None else ""
    text = (error.diag.message_primary or "").replace("\0", "")
    return Refusal(f"{words} ({state}{named})", text, column, again=state == _WANTS_OTHERS)


def _send(
    connection: Connection[Any], table: Identifier, listed: Composed, lines: Iterable[str]
) -> None:
    """COPY the lines into a table."""
    from psycopg.sql import SQL

    statement = SQL("COPY {} ({}) FROM STDIN").format(table, listed)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == _CHUNK:
                copy.write("\n".join(chunk) + "\n")
                chunk.clear()
        if chunk:
            copy.write("\n".join(chunk) + "\n")


_AS_CAST = frozenset({
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN",
})  # fmt: skip
_NULL = "\\N"


def copy_line(columns: Sequence[Column]) -> Expression:
    """One line, without its end: fields separated by tabs, NULL as ``\\N``."""
    fields = [F.coalesce(_field(column), F.lit(_NULL)) for column in columns]
    return F.concat_ws("\t", *fields)


def _field(column: Column) -> Expression:
    """One value as PostgreSQL reads it; NULL stays NULL.

    Timestamps carry UTC's offset; arrays, maps, structs and variants are JSON (for columns of type
    json, jsonb or text); floats print so that they read back to the same bits.
    """
    value = F.col(quote_sql(column.name))
    tree = parse_type(column.type)
    if isinstance(tree, Array | Map | Struct):
        return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
    if isinstance(tree, Interval):
        raise EngineFailure(
            f"column {column.name} is {column.type}: intervals cannot be written to POSTGRES",
            remedy="send a table without it",
        )
    if isinstance(tree, Atomic):
        if tree.name in ("DATE", "TIMESTAMP_NTZ"):
            return _moment(value.cast("string"))
        if tree.name in _AS_CAST:
            return value.cast("string")
        if tree.name == "BINARY":
            # the backslash of \x is escaped, as every one is
            return F.concat(F.lit("\\\\x"), F.lower(F.hex(value)))
        if tree.name == "TIMESTAMP":
            return _moment(F.concat(value.cast("string"), F.lit("+00")))
        if tree.name == "VARIANT":
            return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
        if tree.name == "VOID":
            return F.lit(None).cast("string")
    return _escaped(value.cast("string"))


def _moment(text: Expression) -> Expression:
    """A date or time of Spark, whose years have a sign outside of 0 to 9999: -43 is 44 BC."""
    year = F.regexp_extract(text, r"^-?(\d+)", 1).cast("int") + 1
    before = F.concat(
        F.lpad(year.cast("string"), 4, "0"), F.regexp_replace(text, r"^-?\d+", ""), F.lit(" BC")
    )
    return (
        F.when(text.startswith("+"), F.substring(text, 2, 1000))
        .when(text.startswith("-") | text.startswith("0000"), before).otherwise(text)
    )


def _escaped(text: Expression) -> Expression:
    for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = F.replace(text, F.lit(plain), F.lit(escaped))
    return text


def _target_table(spec: QuerySpec) -> str:
    """The table that a POSTGRES sink writes to."""
    table = spec.external.options.get("TABLE")
    if not isinstance(table, str):
        raise EngineFailure(f"{spec.kind} {spec.name} has no TABLE", remedy="SET (TABLE = '…')")
    return table
