"""Catalog and rows on S3 (the server of the tests): times, and requests that the server counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from bench import generated
from bench.measure import Cost, Measure, middle, paired
from bench.spark import Bench, create_table
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.release import Release
from catalog_migrate.store.address import Storage, remember
from tests.services.object_store import ObjectStore

TABLES = 40
"""Of the migration whose requests are counted."""
ROWS = 1_000_000
REQUESTS = 25
"""The target: so many a table."""
_BUCKET = "bench"


def measures(directory: Path) -> Iterator[Measure]:
    """All of them in one session and one bucket."""
    with ObjectStore(directory) as store:
        address, storage = store.bucket(_BUCKET), Storage(store.options)
        session = local_session(
            warehouse_dir=str(directory / "spark-s3"), addresses=[address], storage=storage
        )
        try:
            remember(address, storage)
            bench = _OnS3(Bench(session, address, storage), store)
            yield bench.unchanged()
            yield bench.bench.first_apply(0.3, where=", on S3")
            yield bench.copy()
            yield from bench.migrations()
        finally:
            session.stop()


class _OnS3:
    """The session's bench, and the server that counts."""

    def __init__(self, bench: Bench, store: ObjectStore) -> None:
        self.bench = bench
        self._store = store

    def counted(self, act: Callable[[], object]) -> tuple[Cost, int]:
        """What an act costs, and its requests for the bucket."""
        before = len(self._store.requests(_BUCKET))
        cost = self.bench.timed(act)
        return cost, len(self._store.requests(_BUCKET)) - before

    def unchanged(self) -> Measure:
        """A start with nothing to do, all names there."""
        bench, release = self.bench, _release("1.0", generated.objects(100, 900))
        place = bench.place()
        bench.clear()
        bench.start(place, release)
        requests: list[int] = []

        def ours() -> Cost:
            cost, number = self.counted(lambda: bench.start(place, release))
            requests.append(number)
            return cost

        def bare() -> Cost:
            listing = f"SHOW TABLE EXTENDED IN {generated.SCHEMA} LIKE '*'"
            return bench.timed(lambda: bench.spark.sql(listing).collect())

        mine, base = paired(ours, bare, rounds=5)
        return Measure(
            "start with nothing changed, 1,000 objects, catalog on S3, warm session", mine,
            "`SHOW TABLE EXTENDED`", base, "≤ 0.60 s, ≤ 10 requests",
            mine.wall <= 0.6 and max(requests) <= 10, f"{max(requests)} requests",
        )

    def copy(self) -> Measure:
        """The rows of a table into another one of other types, as a migration copies them."""
        bench = self.bench
        table = _wider(generated.table("rows"), "rows")
        place = bench.place()
        bench.clear()
        bench.issue(bench.schema(), [create_table(generated.table("source"), place)])
        columns = ", ".join(f"CAST({_made(c)} AS {c.type}) AS {c.name}" for c in table.columns)
        bench.spark.sql(
            f"INSERT INTO {generated.SCHEMA}.source SELECT {columns} FROM range({ROWS})"
        )
        engine = SparkEngine(bench.spark)
        projection = [(column.name, column.name) for column in table.columns]

        def target() -> tuple[str, str]:
            to = bench.place()
            bench.spark.sql(f"DROP TABLE IF EXISTS {generated.SCHEMA}.rows")
            bench.spark.sql(create_table(table, to))
            return f"{generated.SCHEMA}.rows", f"{to}/rows"

        def ours() -> Cost:
            _, path = target()
            source = f"{place}/source"
            version = engine.shard_version(source)
            assert version is not None
            return bench.timed(lambda: engine.copy_rows(source, version, path, projection))

        def bare() -> Cost:
            name, _ = target()
            items = ", ".join(expression for _, expression in projection)
            return bench.timed(lambda: bench.spark.sql(
                f"INSERT INTO {name} SELECT {items} FROM {generated.SCHEMA}.source"
            ))

        mine, base = paired(ours, bare, rounds=5)
        return Measure(
            f"copy of {ROWS:,} rows on S3", mine, "INSERT … SELECT", base, "≤ 1.10× bare",
            mine.wall <= 1.10 * base.wall,
        )

    def migrations(self) -> Iterator[Measure]:
        """Every table gets a column, in place; then every table is copied."""
        bench, place = self.bench, self.bench.place()
        tables = [generated.table(f"t{n:05}") for n in range(TABLES)]
        longer = [_longer(table) for table in tables]
        wider = [_wider(table, table.name) for table in longer]
        bench.clear()
        bench.start(place, _release("1.0", tables))
        names = [f"{generated.SCHEMA}.{table.name}" for table in tables]
        bench.issue([f"INSERT INTO {name} (c0) SELECT id FROM range(0, 2, 1, 1)" for name in names])
        evolved = self.counted(lambda: bench.start(place, _release("2.0", longer)))
        copied = self.counted(lambda: bench.start(place, _release("3.0", wider)))
        state = read_state(open_log(f"{place}/catalog", bench.storage))
        paths = [
            f"{place}/warehouse/{state.items[mapping.item_id].shard}"
            for mapping in state.mappings.values()
        ]
        other = bench.place()
        bench.clear()
        bench.issue(bench.schema(), [create_table(table, other) for table in tables])
        altered = self.counted(lambda: bench.issue(
            [f"ALTER TABLE {name} ADD COLUMN more STRING" for name in names]
        ))
        inserted = self.counted(lambda: bench.issue([
            f"INSERT INTO {name} SELECT {', '.join(c.name for c in table.columns)}"
            f" FROM delta.`{path}`"
            for name, table, path in zip(names, longer, paths, strict=True)
        ]))
        yield _requests("a column is added to", evolved, "ALTER TABLE … ADD COLUMN", altered)
        yield _requests("rows are copied of", copied, "INSERT … SELECT", inserted)


def _requests(
    what: str, ours: tuple[Cost, int], baseline: str, bare: tuple[Cost, int]
) -> Measure:
    """A row of requests; times are those of one run each."""
    mine, base = (number / TABLES for _, number in (ours, bare))
    return Measure(
        f"migration in which {what} {TABLES} tables, on S3", _single(ours[0]), baseline,
        _single(bare[0]), f"≤ {REQUESTS} requests a table", mine <= REQUESTS,
        f"{mine:.1f} requests a table, the bare statements {base:.1f}",
    )


def _single(cost: Cost) -> Cost:
    return replace(middle([cost]), best=0.0)


def _release(name: str, definitions: Sequence[ObjectDefinition]) -> Release:
    return load_manifest(generated.manifest(name, definitions), name=name)


def _longer(table: ObjectDefinition) -> ObjectDefinition:
    return _with(table, (*table.columns, Column(name="more", type="STRING")))


def _wider(table: ObjectDefinition, name: str) -> ObjectDefinition:
    wide = generated.table(name, widened=True).columns
    return _with(table, (*wide, *table.columns[len(wide):]))


def _with(table: ObjectDefinition, columns: Sequence[Column]) -> ObjectDefinition:
    return msgspec.structs.replace(table, columns=tuple(columns))


def _made(column: Column) -> str:
    special = {"DATE": "current_date()", "TIMESTAMP": "current_timestamp()"}
    return special.get(column.type, "id % 100")
