"""Users' views by the thousand on a shared metastore: found and bound, and a start beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench import generated
from bench.measure import Cost, Measure, paired
from bench.spark import Bench, release_of
from catalog_migrate.api import Catalog
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.users.examination import examine
from catalog_migrate.users.settings import UserSettings
from tests.services.metastore import HiveMetastore
from tests.services.postgres import PostgresServer

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

VIEWS = int(os.environ.get("USERS_VIEWS", "10000"))
"""Views of users in all: ``make bench ONLY=users USERS_VIEWS=2000``."""
READERS = VIEWS // 20
SCHEMAS = 20
THREADS = 4
ROUNDS = 3
_FIRST = 1_000_000
"""Ids of rows in the metastore that Hive does not reach here."""
_MARK = 424242
"""The number in a view's text by which its copies differ."""
_ROOT = f"{generated.SCHEMA}.t00000"
_TEXTS = {
    "table": f"SELECT c0, c1, upper(c2) AS name FROM {_ROOT} WHERE c0 > {_MARK}",
    "star": f"SELECT * FROM {generated.SCHEMA}.v00001 WHERE c0 > {_MARK}",
    "join": (
        f"WITH big AS (SELECT * FROM {generated.SCHEMA}.v00002 WHERE c1 > {_MARK}) SELECT a.c0,"
        f" sum(b.c1) AS total FROM {_ROOT} AS a JOIN big AS b ON a.c0 = b.c0 GROUP BY a.c0"
    ),
    "other": f"SELECT id, upper(name) AS name FROM lab.base WHERE id > {_MARK}",
}
"""Views that are copied; all but the last read ours."""
_SPREAD = {"table": READERS // 2, "star": READERS // 4, "join": READERS - READERS // 2 - (
    READERS // 4), "other": VIEWS - READERS}


def measures(directory: Path) -> Iterator[Measure]:
    """Both in one session on a metastore of its own."""
    home = directory / "users-metastore"
    home.mkdir()
    with (
        PostgresServer(directory / "users-postgres") as postgres,
        HiveMetastore(home, postgres) as metastore,
    ):
        spark = local_session(
            str(directory / "users-spark"),
            conf={
                "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": metastore.address,
            },
        )
        try:
            bench = UsersBench(spark, str(directory / "users"))
            bench.start_first()
            with postgres.connect(database=metastore.database) as connection:
                bench.make_views(connection)
            yield bench.found_and_bound()
            yield bench.nothing_to_do()
        finally:
            spark.stop()


class UsersBench(Bench):
    """A release in force, a migration of it, and the views of users over both."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        super().__init__(spark, directory)
        self.here = self.place()
        self.schemas = [f"users_{number:02}" for number in range(SCHEMAS)]
        self.before = release_of("1.0", generated.objects(4, 4, reached=4))
        self.after = release_of("2.0", generated.objects(4, 4, reached=4, widened=True))

    def start_first(self) -> None:
        """Bring the release in that the views are made over."""
        self.start(self.here, self.before)

    def make_views(self, metastore: psycopg.Connection[tuple[object, ...]]) -> None:
        """One view of each kind by Spark, all others as copies of its rows in the metastore.

        Spark takes 20 to 100 ms to create one there, which is not what is measured.
        """
        self.spark.sql("CREATE SCHEMA lab")
        self.spark.sql("CREATE TABLE lab.base (id BIGINT, name STRING) USING parquet")
        for schema in self.schemas:
            self.spark.sql(f"CREATE SCHEMA {schema}")
        first = _FIRST
        for kind, text in _TEXTS.items():
            self.spark.sql(f"CREATE VIEW lab.{kind} AS {text}")
            _copy_view(metastore, f"lab.{kind}", self.schemas, _SPREAD[kind], first)
            self.spark.sql(f"DROP VIEW lab.{kind}")
            first += _SPREAD[kind]

    def found_and_bound(self) -> Measure:
        """What a start or ``plan --bind`` finds out of users' views, against listing them."""
        engine = SparkEngine(self.spark, threads=THREADS)
        catalog = Catalog.open(f"{self.here}/catalog")
        migration = catalog.migration(self.after)
        settings = UserSettings(threads=THREADS)
        outcomes: list[int] = []

        def ours() -> Cost:
            def act() -> None:
                found = examine(engine, catalog.state(), migration, settings)
                outcomes.append(len(found.users))

            return self.timed(act)

        def bare() -> Cost:
            def list_one(schema: str) -> int:
                shown = self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect()
                return len(shown)

            def act() -> None:
                with ThreadPoolExecutor(THREADS) as pool:
                    listed = sum(pool.map(list_one, self.schemas))
                assert listed == VIEWS, listed

            return self.timed(act)

        mine, base = paired(ours, bare, rounds=ROUNDS)
        assert set(outcomes) == {READERS}, outcomes
        return Measure(
            f"{VIEWS:,} users' views on a shared metastore of which {READERS:,} read ours, found"
            " and bound", mine,
            f"`SHOW TABLE EXTENDED` of the {SCHEMAS} schemas on as many threads", base,
            "≤ 1.50× bare", mine.wall <= 1.5 * base.wall, f"{THREADS} threads",
        )

    def nothing_to_do(self) -> Measure:
        """A start of the release in force, with all of these views and with none looked at."""

        def start(users: UserSettings) -> Cost:
            return self.timed(lambda: self.start(self.here, self.before, users=users))

        mine, base = paired(
            lambda: start(UserSettings()), lambda: start(UserSettings(exclude=("*",))), rounds=9
        )
        return Measure(
            f"start with nothing to do beside {VIEWS:,} users' views", mine,
            "the same with none of them looked at", base, "+ 0 (≤ 1.10×)",
            mine.wall <= 1.1 * base.wall,
        )


# -- copies of a view in the metastore's own tables --------------------------------------------

_TABLES = {
    # table: the column by which the view's rows are found, and those that get the copy's id
    "CDS": ("CD_ID", ("CD_ID",)),
    "COLUMNS_V2": ("CD_ID", ("CD_ID",)),
    "SERDES": ("SERDE_ID", ("SERDE_ID",)),
    "SERDE_PARAMS": ("SERDE_ID", ("SERDE_ID",)),
    "SDS": ("SD_ID", ("SD_ID", "CD_ID", "SERDE_ID")),
    "TBLS": ("TBL_ID", ("TBL_ID", "SD_ID")),
    "TABLE_PARAMS": ("TBL_ID", ("TBL_ID",)),
}
"""What Hive keeps of a view, a row that is referred to before those that refer to it."""


def _copy_view(
    metastore: psycopg.Connection[tuple[object, ...]], name: str, schemas: list[str], count: int,
    first: int,
) -> None:
    """Give ``schemas`` in turn so many copies of a view, with ids from ``first`` on."""
    schema, _, view = name.partition(".")
    row = metastore.execute(
        'SELECT t."TBL_ID", s."SD_ID", s."CD_ID", s."SERDE_ID" FROM "TBLS" t JOIN "SDS" s USING'
        ' ("SD_ID") JOIN "DBS" d USING ("DB_ID") WHERE d."NAME" = %s AND t."TBL_NAME" = %s',
        [schema, view],
    ).fetchone()
    assert row is not None
    ids = dict(zip(("TBL_ID", "SD_ID", "CD_ID", "SERDE_ID"), row, strict=True))
    for table, (key, numbered) in _TABLES.items():
        changed: dict[str, str] = dict.fromkeys(numbered, f"{first} + n")
        if table == "TBLS":
            databases = ", ".join(f"'{each}'" for each in schemas)
            chosen = f"(ARRAY[{databases}])[1 + mod(n, {len(schemas)})]"
            changed["DB_ID"] = f'(SELECT "DB_ID" FROM "DBS" WHERE "NAME" = {chosen})'
            changed["TBL_NAME"] = f"'{view}_' || n"
            for text in ("VIEW_EXPANDED_TEXT", "VIEW_ORIGINAL_TEXT"):
                changed[text] = f"replace(\"{text}\", '{_MARK}', n::text)"
        _copy_rows(metastore, table, key, ids[key], changed, count)


def _copy_rows(
    metastore: psycopg.Connection[tuple[object, ...]], table: str, key: str, value: object,
    changed: Mapping[str, str], count: int,
) -> None:
    """Copy the rows of a table with ``key = value``, ``n`` in what is changed being the number."""
    found = metastore.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s", [table]
    ).fetchall()
    columns = [str(each) for (each,) in found]
    items = ", ".join(changed.get(each, f'"{each}"') for each in columns)
    names = ", ".join(f'"{each}"' for each in columns)
    statement = (
        f'INSERT INTO "{table}" ({names}) SELECT {items} FROM "{table}",'
        f' generate_series(0, {count - 1}) AS n WHERE "{key}" = %s'
    )
    metastore.execute(statement.encode(), [value])
