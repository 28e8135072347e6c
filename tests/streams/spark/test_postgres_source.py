"""The writer of PostgreSQL changes against a plain model of the tables upstream.

``WRITER_SEEDS=n`` tries so many random histories; the suite takes a few.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from catalog_migrate.connectors.postgres.pgoutput import Change
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import EngineFailure, UnfitValue
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External, UpstreamColumn, UpstreamTable
from catalog_migrate.streams.catalog.upstream_tables import TRANSACTION_COLUMNS, our_columns

from .conftest import Workshop

if TYPE_CHECKING:
    from catalog_migrate.streams.spark.postgres_source import ChangesWriter

pytestmark = pytest.mark.spark

SEEDS = int(os.environ.get("WRITER_SEEDS", "1"))
COLUMNS = (
    ("id", 23, "INT"), ("part", 25, "STRING"), ("amount", 1700, "DECIMAL(10,2)"),
    ("data", 17, "BINARY"), ("at", 1184, "TIMESTAMP"), ("doc", 3802, "STRING"),
    ("tags", 1009, "STRING"), ("rate", 701, "DOUBLE"), ("large", 25, "STRING"),
    ("large2", 25, "STRING"),
)
KEY = ("id", "part")
KEYS = (0, 1)
LARGE = (8, 9)
VALUES: dict[int, tuple[str | None, ...]] = {
    2: ("1.50", "-99999999.99", "NaN", None),
    3: ("\\x", "\\x00ff10", None),
    4: ("2024-02-29 12:00:00.123456+00", "infinity", "-infinity", "1900-01-01 00:00:00+00", None),
    5: ('{"a": [1, null]}', "null", None),
    6: ("{1,NULL,3}", '{"a,b","\\"q\\"",""}', "{}", None),
    7: ("NaN", "Infinity", "1e-07", None),
}
Row = tuple[str | None, ...]


class Model:
    """A table upstream: what is done to it, and what its server would send of that.

    While it is ``simple`` there is no TRUNCATE, and every value is sent.
    """

    def __init__(self, name: str, chance: random.Random, *, full: bool) -> None:
        self.name, self.chance, self.full = name, chance, full
        self.rows: dict[Row, Row] = {}
        self.large, self.simple = 0, False

    def value(self, place: int) -> str | None:
        if place in LARGE:
            self.large += 1
            return f"{self.large} " + "x" * 20
        return self.chance.choice(VALUES[place])

    def row(self, key: Row) -> Row:
        return (*key, *(self.value(place) for place in range(2, len(COLUMNS))))

    def any_key(self) -> Row:
        return str(self.chance.randrange(4)), self.chance.choice("ab")

    def change(self) -> tuple[str, Row | None, Row | None, tuple[int, ...]]:
        """Do something; (operation, before, after, unchanged) as it is sent."""
        if self.chance.random() < 0.03 and not self.simple:
            self.rows.clear()
            return "truncate", None, None, ()
        key = self.any_key()
        old = self.rows.get(key)
        if old is None:
            self.rows[key] = new = self.row(key)
            return "insert", None, new, ()
        if self.chance.random() < 0.3:
            del self.rows[key]
            return "delete", old if self.full else key_only(old), None, ()
        target = self.any_key() if self.chance.random() < 0.4 else key
        if target in self.rows:
            target = key
        changed = {place for place in range(2, len(COLUMNS)) if self.chance.random() < 0.4}
        if self.simple:
            changed |= set(LARGE)
        new = tuple(
            target[place] if place in KEYS
            else self.value(place) if place in changed else old[place]
            for place in range(len(COLUMNS))
        )
        del self.rows[key]
        self.rows[target] = new
        if self.full:
            return "update", old, new, ()
        unsent = tuple(place for place in LARGE if place not in changed)
        sent = tuple(None if place in unsent else new[place] for place in range(len(COLUMNS)))
        return "update", None if target == key else key_only(old), sent, unsent


def ours(name: str) -> str:
    """What a column of upstream is called here."""
    return name if name.startswith("_") else f"our {name}"


def of_key(row: Row) -> Row:
    return tuple(row[place] for place in KEYS)


def key_only(row: Row) -> Row:
    return tuple(value if place in KEYS else None for place, value in enumerate(row))


class Mirrors:
    """Tables that one source writes, beside their models."""

    def __init__(self, workshop: Workshop, *models: Model, soft: bool = False) -> None:
        from catalog_migrate.streams.spark.sources import query_session

        self.spark, self.models = query_session(workshop.spark), models
        settings = {"SOFT DELETES": "true"} if soft else {}
        external = External(connector="POSTGRES", format="MIRROR", settings=settings)
        tables = []
        for model in models:
            upstream = UpstreamTable(
                f"public.{model.name}", model.name,
                tuple(
                    UpstreamColumn(name, oid, -1, type_, column_id=number)
                    for number, (name, oid, type_) in enumerate(COLUMNS, 1)
                ), KEY,
            )
            # in the order and under the names that a release has given them since
            numbered = [
                (number, msgspec.structs.replace(each, name=ours(each.name)))
                for number, each in enumerate(our_columns(upstream, external), 1)
            ]
            ids, columns = zip(*reversed(numbered), strict=True)
            tables.append(OutputTable(
                upstream, ItemName("s", model.name), columns, ids,
                workshop.shard(model.name, columns),
            ))
        self.spec = QuerySpec(
            item_id="i1", name=ItemName("s", "s"), kind="source", external=external,
            columns=TRANSACTION_COLUMNS, connection={},
            shard=workshop.shard("transactions", TRANSACTION_COLUMNS),
            checkpoint=str(workshop.directory / "checkpoint"), tables=tuple(tables),
        )
        self.lsn, self.batch = 100, 0

    @property
    def writer(self) -> ChangesWriter:
        from catalog_migrate.streams.spark.postgres_source import ChangesWriter

        return ChangesWriter(self.spec)

    def made(self, transactions: int, size: int) -> list[Change]:
        """Changes of so many transactions over all tables."""
        found = []
        for _ in range(transactions):
            self.lsn += 10
            for sequence in range(self.models[0].chance.randrange(1, size)):
                model = self.models[0].chance.choice(self.models)
                operation, before, after, unsent = model.change()
                found.append(Change(
                    f"public.{model.name}", operation, self.lsn, sequence, self.lsn,  # type: ignore[arg-type]
                    self.lsn * 1_000_000, before, after, unsent,
                ))
        return found

    def of_one(
        self, *changes: tuple[str, Row | None, Row | None, tuple[int, ...]]
    ) -> list[Change]:
        """Changes of the first table in one transaction."""
        self.lsn += 10
        return [
            Change(
                f"public.{self.models[0].name}", operation, self.lsn, sequence, self.lsn,  # type: ignore[arg-type]
                self.lsn * 1_000_000, before, after, unsent,
            )
            for sequence, (operation, before, after, unsent) in enumerate(changes)
        ]

    def write(self, changes: list[Change], *, again: bool = False) -> None:
        import pyarrow as pa

        from catalog_migrate.connectors.base import Batch
        from catalog_migrate.connectors.postgres.pgoutput import Summary, arrow_batch

        self.batch += not again
        summary = Summary()
        summary.add(changes, 1)
        table = pa.Table.from_batches([arrow_batch(changes), summary.batch()])
        self.writer.write(Batch(self.spark.createDataFrame(table), self.batch, "query"))

    def engines(self) -> list[object]:
        """Who wrote the newest version of each mirror."""
        return [
            load_table(table.shard).history(1)[0].get("engineInfo")
            for table in self.spec.tables
        ]

    @staticmethod
    def found(table: OutputTable) -> Counter[Any]:
        """Rows of a mirror as Python values."""
        rows = load_table(table.shard).to_pyarrow_table().to_pylist()
        return Counter(tuple(shown(row[ours(name)]) for name, _, _ in COLUMNS) for row in rows)

    def require_equal(self, what: str) -> None:
        for table, model in zip(self.spec.tables, self.models, strict=True):
            wanted = Counter(map(expected, model.rows.values()))
            assert self.found(table) == wanted, f"{what}: {model.name}"


def moved(row: Row, key: Row) -> Row:
    """A row under another key, as it is sent without its large values."""
    return (*key, *(None if place in LARGE else row[place] for place in range(2, len(COLUMNS))))


def expected(row: Row) -> tuple[Any, ...]:
    """A row of the model as our types hold it."""
    return tuple(
        shown(None if text is None else _READ.get(type_, str)(text))
        for text, (_, _, type_) in zip(row, COLUMNS, strict=True)
    )


def shown(value: Any) -> Any:
    """NaN equals itself as text."""
    return str(value) if isinstance(value, float) else value


def _moment(text: str) -> datetime:
    if text in ("infinity", "-infinity"):
        return (datetime.max if text == "infinity" else datetime.min).replace(tzinfo=UTC)
    return datetime.fromisoformat(text)


_READ: dict[str, Any] = {
    "INT": int, "DOUBLE": float, "TIMESTAMP": _moment,
    "DECIMAL(10,2)": lambda text: None if text == "NaN" else Decimal(text),
    "BINARY": lambda text: bytes.fromhex(text[2:]),
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_mirrors_are_their_tables(workshop: Workshop, seed: int) -> None:
    """Key changes, TRUNCATE, values that were not sent, rows that come back, batches written twice
    and changes that are older than the rows: after each batch the mirrors are the tables."""
    chance = random.Random(seed)
    mirrors = Mirrors(
        workshop, Model("by_key", chance, full=False), Model("whole", chance, full=True)
    )
    first = mirrors.made(12, 6)
    mirrors.write(first)
    mirrors.require_equal("first batch")
    for model in mirrors.models:
        model.simple = True
    second = mirrors.made(8, 5)
    mirrors.write(second)
    mirrors.require_equal("second batch")
    assert all("delta-rs" in str(each) for each in mirrors.engines()), "as there is nothing else"
    mirrors.write(second, again=True)
    mirrors.require_equal("written twice")
    for model in mirrors.models:
        model.simple = False
    mirrors.write(mirrors.made(8, 5))
    mirrors.require_equal("third batch")


def test_deleted_rows_stay_and_rows_move_whole(workshop: Workshop) -> None:
    """Soft deletes keep a row as it was, until it comes back; a row that gets another key takes
    along what was not sent again, from where it was last, and a batch that is written again finds
    nothing to do. What no change and no row has is an error, never NULL."""
    mirrors = Mirrors(workshop, Model("kept", random.Random(1), full=False), soft=True)
    (table,), (model,) = mirrors.spec.tables, mirrors.models
    one, two, three = rows = [model.row((str(number), "a")) for number in range(3)]
    mirrors.write(mirrors.of_one(*(("insert", None, row, ()) for row in rows)))
    back = model.row(of_key(two))
    mirrors.write(
        mirrors.of_one(*(("delete", key_only(row), None, ()) for row in (one, two)))
        + mirrors.of_one(("insert", None, back, ()))
    )
    rows_now = load_table(table.shard).to_pyarrow_table().to_pylist()
    assert {row["our id"]: row["_deleted"] and row["_deleted"].timestamp() for row in rows_now} == {
        0: 120, 1: None, 2: None,
    }
    assert mirrors.found(table) == Counter(map(expected, (one, back, three)))

    # two and three change places, over a key of which a deleted row is kept
    first, other = of_key(one), ("7", "z")
    swap = mirrors.of_one(
        ("update", key_only(back), moved(back, first), LARGE),
        ("update", key_only(three), moved(three, of_key(two)), LARGE),
        ("update", None, (*of_key(two), *three[2:8], "sent", None), (9,)),
        ("update", key_only(moved(back, first)), moved(back, of_key(three)), LARGE),
        ("insert", None, one, ()),
        ("update", key_only(one), moved(one, other), LARGE),
    )
    mirrors.write(swap)
    mirrors.write(swap, again=True)
    alive = (
        (*of_key(two), *three[2:8], "sent", three[9]), (*of_key(three), *back[2:]),
        (*other, *one[2:]),
    )
    assert mirrors.found(table) == Counter(map(expected, (one, *alive)))
    never = mirrors.of_one(("insert", None, (*("5", "a"), *one[2:9], None), (9,)))
    require_refused(mirrors, never, one)  # by a row filter

    mirrors.write(mirrors.of_one(("truncate", None, None, ())))
    rows_now = load_table(table.shard).to_pyarrow_table().to_pylist()
    # with the time of the TRUNCATE's commit, and what was deleted before with its own
    assert {row["our id"]: row["_deleted"].timestamp() for row in rows_now} == {
        0: 120, 1: mirrors.lsn, 2: mirrors.lsn, 7: mirrors.lsn,
    }


@pytest.mark.soak
def test_a_value_that_was_never_sent(workshop: Workshop) -> None:
    """What no change and no row has is never NULL. What the mirror has already of a moved row is
    not asked for."""
    mirrors = Mirrors(workshop, Model("partly", random.Random(3), full=False))
    (table,), (model,) = mirrors.spec.tables, mirrors.models
    row = model.row(("1", "a"))
    mirrors.write(mirrors.of_one(("insert", None, row, ())))
    to_two = mirrors.of_one(("update", key_only(row), moved(row, ("2", "b")), LARGE))
    mirrors.write(to_two)
    mirrors.write(to_two)  # the position was set back: another batch has it again
    assert mirrors.found(table) == Counter([expected((*("2", "b"), *row[2:]))])
    for changes in (
        (("insert", None, (*row[:9], None), (9,)),),  # by a row filter
        (("update", key_only(model.row(("5", "a"))), moved(row, ("6", "a")), LARGE),),
    ):
        require_refused(mirrors, mirrors.of_one(*changes), row)  # type: ignore[arg-type]


def require_refused(mirrors: Mirrors, changes: list[Change], row: Row) -> None:
    """The error names table, column and the hash of the key, and no value of the row."""
    with pytest.raises(UnfitValue, match="sent") as refused:
        mirrors.write(changes)
    error = refused.value
    assert (error.data["table"], error.data["column"]) in {
        (f"public.{mirrors.models[0].name}", name) for name in ("large", "large2")
    }
    assert str(error.data["key"]) in error.message
    assert "RESET SPLITS" in error.data["statements"][0]
    assert "REPLICA IDENTITY FULL" in str(error.remedy)
    assert not {value for value in row if value and len(value) > 3 and value in error.message}


def test_another_snapshot_over_a_mirror(workshop: Workshop) -> None:
    """It becomes what the snapshot is, whatever stood there, and once; with soft deletes rows that
    are gone are marked, and come back by changes of the new log, whose LSNs may be smaller."""
    import pyarrow as pa

    from catalog_migrate.connectors.postgres.pgoutput import snapshot_batch
    from catalog_migrate.connectors.postgres.types import Position
    from catalog_migrate.streams.spark.postgres_source import load

    mirrors = Mirrors(workshop, Model("anew", random.Random(2), full=False), soft=True)
    (table,), (model,) = mirrors.spec.tables, mirrors.models
    gone, kept, new = (model.row((str(number), "a")) for number in range(3))
    mirrors.write(mirrors.of_one(*(("insert", None, row, ()) for row in (gone, kept))))
    other = model.row(of_key(kept))
    at = Position(50, 1, "another")
    batch = snapshot_batch("public.anew", at.lsn, 0, 0, [*other, *new], len(COLUMNS))
    rows = mirrors.spark.createDataFrame(pa.Table.from_batches([batch]))
    spec = replace(mirrors.spec, snapshot_number=2)
    for _ in range(2):
        load(rows, spec, table, at)
        found = load_table(table.shard).to_pyarrow_table().to_pylist()
        assert {row["our id"]: (row["_lsn"], row["_deleted"] is None) for row in found} == {
            0: (50, False), 1: (50, True), 2: (50, True),
        }
    assert load_table(table.shard).version() == 2
    assert mirrors.found(table) == Counter(map(expected, (gone, other, new)))
    mirrors.lsn = 50
    mirrors.write(mirrors.of_one(("insert", None, gone, ()), ("delete", key_only(new), None, ())))
    found = load_table(table.shard).to_pyarrow_table().to_pylist()
    assert {row["our id"]: row["_deleted"] is None for row in found} == {0: True, 1: True, 2: False}


def test_keys_that_are_left_to_spark(tmp_path: Path) -> None:
    """delta-rs would put both rows of one key into the mirror, and not find one that is NULL."""
    import pyarrow as pa
    from deltalake import Transaction

    from catalog_migrate.delta.table import write_rows
    from catalog_migrate.streams.spark.postgres_source import _merge_rows

    upstream = UpstreamTable(
        "public.t", "t", (UpstreamColumn("id", 20, -1, "BIGINT", column_id=1),), ("id",)
    )
    columns = our_columns(upstream, External(connector="POSTGRES", format="MIRROR"))
    table = OutputTable(upstream, ItemName("s", "t"), columns, (1, 2), str(tmp_path))
    for key in (1, 7):
        target = load_table(table.shard) if key > 1 else table.shard
        write_rows(target, pa.table({"id": [key], "_lsn": [1]}))

    def merge(*found: int | None) -> None:
        rows = pa.table({
            "id": pa.array(found, pa.int64()), "_lsn": [2] * len(found),
            "_committed": pa.nulls(len(found), pa.timestamp("us", "UTC")),
            "_gone": [key == 5 for key in found],
        })
        opened = load_table(table.shard)
        _merge_rows(opened, rows, transaction=Transaction("q", 1), table=table, soft=False)

    for bad in ((3, 3), (None, 4)):
        with pytest.raises(EngineFailure, match="is NULL, or two rows have it"):
            merge(*bad)
    assert load_table(table.shard).version() == 1
    merge(1, 3, 5)
    assert load_table(table.shard).transaction_version("q") == 1
    found = load_table(table.shard).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["_lsn"]) for row in found) == [(1, 2), (3, 2), (7, 1)]
