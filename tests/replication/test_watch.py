"""DDL under a source on a real server: which holds it and with what cause, and which goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from catalog_migrate.connectors.postgres import survey
from catalog_migrate.connectors.postgres.preflight import survey_findings
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.postgres.watch import OpenServer, Watcher, has_older_rows
from catalog_migrate.errors import ChangesMissing
from tests.services.upstream import Upstream

if TYPE_CHECKING:
    import psycopg

    from tests.services.postgres import PostgresServer

TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, v text, n int)"
ROWS = "INSERT INTO {t} SELECT i, 'v', i FROM generate_series(1, 9) AS i"
FULL = "ALTER TABLE {t} REPLICA IDENTITY FULL"
PARTS = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v text, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (100) TO (200)",
    "INSERT INTO {t} SELECT i, 'v', i FROM generate_series(0, 199) AS i",
)
ROOT = "FOR TABLE {t} WITH (publish_via_partition_root = true)"
THIRD = "FOR VALUES FROM (200) TO (300)"
ALL = "insert, update, delete, truncate"


class Case(NamedTuple):
    """DDL, and the cause that a mirror and that every change are held for; None: it goes on."""

    ddl: tuple[str, ...]
    mirror: str | None = None
    changes: str | None = None
    before: tuple[str, ...] = (TABLE, ROWS)
    publication: str = "FOR TABLE {t}"


def both(
    cause: str, *ddl: str, before: tuple[str, ...] = (TABLE, ROWS),
    publication: str = "FOR TABLE {t}",
) -> Case:
    return Case(ddl, cause, cause, before, publication)


def rows_only(
    cause: str, *ddl: str, before: tuple[str, ...] = (TABLE, ROWS),
    publication: str = "FOR TABLE {t}",
) -> Case:
    """No change is missing, but rows differ."""
    return Case(ddl, cause, None, before, publication)


def goes_on(
    *ddl: str, before: tuple[str, ...] = (TABLE, ROWS), publication: str = "FOR TABLE {t}"
) -> Case:
    return Case(ddl, None, None, before, publication)


CASES = {
    # what never loses a change
    "grant": goes_on("GRANT SELECT ON {t} TO PUBLIC", "GRANT SELECT (v) ON {t} TO PUBLIC"),
    "index": goes_on("CREATE INDEX ON {t} (n)", "CREATE UNIQUE INDEX ON {t} (n)"),
    "analyze": goes_on("ANALYZE {t}", "VACUUM {t}"),
    "vacuum full": goes_on("VACUUM FULL {t}", "CLUSTER {t} USING {t}_pkey", "REINDEX TABLE {t}"),
    "vacuum full and a default": goes_on("VACUUM FULL {t}", "ALTER TABLE {t} ALTER n SET DEFAULT 1",
                                         "ALTER TABLE {t} ALTER n SET STATISTICS 10",
                                         "ALTER TABLE {t} ALTER n SET NOT NULL"),
    "reindex concurrently": goes_on("REINDEX TABLE CONCURRENTLY {t}"),
    "reindex concurrently, full": goes_on("REINDEX TABLE CONCURRENTLY {t}",
                                          before=(TABLE, ROWS, FULL)),
    "another table published": goes_on("CREATE TABLE {t}_o (id int PRIMARY KEY)",
                                       "ALTER PUBLICATION p_{t} ADD TABLE {t}_o",
                                       "ALTER PUBLICATION p_{t} DROP TABLE {t}_o"),
    "all listed again": goes_on("CREATE TABLE {t}_o (id int PRIMARY KEY)",
                                "ALTER PUBLICATION p_{t} SET TABLE {t}, {t}_o"),
    "owner of the publication": goes_on("ALTER PUBLICATION p_{t} OWNER TO CURRENT_USER",
                                        "COMMENT ON PUBLICATION p_{t} IS 'x'"),
    "trigger": goes_on("CREATE TRIGGER g BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION"
                       " suppress_redundant_updates_trigger()"),
    "policies": goes_on("ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
                        "ALTER TABLE {t} FORCE ROW LEVEL SECURITY",
                        "CREATE POLICY p ON {t} USING (id < 2)"),
    "column added": goes_on("ALTER TABLE {t} ADD COLUMN x int DEFAULT 7"),
    "column added with a rewrite": goes_on("ALTER TABLE {t} ADD COLUMN x float DEFAULT random()"),
    "defaults of old rows written": goes_on(
        "VACUUM FULL {t}", before=(TABLE, ROWS, "ALTER TABLE {t} ADD COLUMN x int DEFAULT 7")),
    "defaults written for another column": goes_on(
        "ALTER TABLE {t} ADD COLUMN y float DEFAULT random()",
        before=(TABLE, ROWS, "ALTER TABLE {t} ADD COLUMN x int DEFAULT 7")),
    "column dropped or renamed": goes_on("ALTER TABLE {t} DROP COLUMN n",
                                         "ALTER TABLE {t} RENAME COLUMN v TO w"),
    "longer varchar": goes_on("ALTER TABLE {t} ALTER c TYPE varchar(20)",
                              before=("CREATE TABLE {t} (id int PRIMARY KEY, c varchar(10))",)),
    "identity full and back": goes_on(FULL, "ALTER TABLE {t} REPLICA IDENTITY DEFAULT"),
    "key again under default": goes_on("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
                                       "ALTER TABLE {t} ADD PRIMARY KEY (id)"),
    "schema published beside it": goes_on("ALTER PUBLICATION p_{t} ADD TABLES IN SCHEMA public"),
    "one membership of two": goes_on(
        "ALTER PUBLICATION p_{t} DROP TABLE {t}",
        publication="FOR TABLE {t}, TABLES IN SCHEMA public"),
    "renamed and back": goes_on("ALTER TABLE {t} RENAME TO {t}_x",
                                "ALTER TABLE {t}_x RENAME TO {t}"),
    "truncated": goes_on("TRUNCATE {t}"),
    # tables
    "recreated": both("another table than before: it was dropped", "DROP TABLE {t}", TABLE),
    "recreated, all tables": both("another table than before: it was dropped", "DROP TABLE {t}",
                                  TABLE, publication="FOR ALL TABLES"),
    "dropped": both("it was dropped", "DROP TABLE {t}"),
    "renamed": both("it was renamed, and is public.{t}_x now", "ALTER TABLE {t} RENAME TO {t}_x"),
    "moved": both("it was renamed, and is s_{t}.{t} now", "CREATE SCHEMA s_{t}",
                  "ALTER TABLE {t} SET SCHEMA s_{t}"),
    "swapped": both("it was renamed and one of its name created, the one of before is public.{t}_o",
                    "CREATE TABLE {t}_o (id int PRIMARY KEY, v text, n int)",
                    "ALTER TABLE {t} RENAME TO {t}_x", "ALTER TABLE {t}_o RENAME TO {t}",
                    "ALTER TABLE {t}_x RENAME TO {t}_o", publication="FOR ALL TABLES"),
    "unlogged": both("it is unlogged", "ALTER TABLE {t} SET UNLOGGED",
                     publication="FOR ALL TABLES"),
    "unlogged and logged": both("it was rewritten: unlogged, and logged again",
                                "ALTER TABLE {t} SET UNLOGGED", "ALTER TABLE {t} SET LOGGED",
                                publication="FOR ALL TABLES"),
    "rewritten, all tables": goes_on("VACUUM FULL {t}", "CLUSTER {t} USING {t}_pkey",
                                     "ALTER TABLE {t} ADD COLUMN x float DEFAULT random()",
                                     "TRUNCATE {t}", publication="FOR ALL TABLES"),
    # publications
    "unpublished": both("publication p_{t} does not hold it any more",
                        "ALTER PUBLICATION p_{t} DROP TABLE {t}",
                        publication="FOR TABLE {t}, other"),
    "unpublished and back": both("it was dropped from publication p_{t} and added again",
                                 "ALTER PUBLICATION p_{t} DROP TABLE {t}",
                                 "ALTER PUBLICATION p_{t} ADD TABLE {t}",
                                 publication="FOR TABLE {t}, other"),
    "publication dropped": both("publication p_{t} is missing", "DROP PUBLICATION p_{t}"),
    "publication again": both("publication p_{t} was dropped and created again",
                              "DROP PUBLICATION p_{t}", "CREATE PUBLICATION p_{t} FOR TABLE {t}"),
    "publication renamed and back": both("publication p_{t} was altered, and altered back",
                                         "ALTER PUBLICATION p_{t} RENAME TO q_{t}",
                                         "ALTER PUBLICATION q_{t} RENAME TO p_{t}"),
    "publish narrowed": both("publication p_{t} does not publish update, delete, truncate",
                             "ALTER PUBLICATION p_{t} SET (publish = 'insert')"),
    "publish narrowed and back": both("publication p_{t} was altered, and altered back",
                                      "ALTER PUBLICATION p_{t} SET (publish = 'insert')",
                                      f"ALTER PUBLICATION p_{{t}} SET (publish = '{ALL}')"),
    "publish widened": Case(("ALTER PUBLICATION p_{t} SET (publish = 'insert, update')",),
                            publication="FOR TABLE {t} WITH (publish = 'insert')"),
    "filter added": both("gives other rows of it than before: now WHERE (id > 3), before all rows",
                         "ALTER PUBLICATION p_{t} SET TABLE {t} WHERE (id > 3)"),
    "filter added and removed": both("its filter or list of columns was altered, and altered back",
                                     "ALTER PUBLICATION p_{t} SET TABLE {t} WHERE (id > 3)",
                                     "ALTER PUBLICATION p_{t} SET TABLE {t}"),
    "filter of a schema": both("now all rows, before WHERE (id > 3)",
                               "ALTER PUBLICATION p_{t} ADD TABLES IN SCHEMA public",
                               publication="FOR TABLE {t} WHERE (id > 3)"),
    "schema unpublished and back": both("it was dropped from publication p_{t} and added again",
                                        "ALTER PUBLICATION p_{t} DROP TABLES IN SCHEMA public",
                                        "ALTER PUBLICATION p_{t} ADD TABLES IN SCHEMA public",
                                        publication="FOR TABLES IN SCHEMA public"),
    "columns listed and back": both("list of columns was altered, and altered back",
                                    "ALTER PUBLICATION p_{t} SET TABLE {t} (id, v)",
                                    "ALTER PUBLICATION p_{t} SET TABLE {t}"),
    # keys
    "key dropped, full": rows_only("its key (id) is not unique any more",
                                   "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
                                   before=(TABLE, ROWS, FULL)),
    "key dropped": rows_only("its key (id) is not unique any more",
                             "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", FULL),
    "key again, full": rows_only("its key (id) was dropped, and added again",
                                 "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
                                 "ALTER TABLE {t} ADD PRIMARY KEY (id)",
                                 before=(TABLE, ROWS, FULL)),
    "key again, full meanwhile": rows_only("its key (id) was dropped, and added again",
                                           "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", FULL,
                                           "ALTER TABLE {t} ADD PRIMARY KEY (id)",
                                           "ALTER TABLE {t} REPLICA IDENTITY DEFAULT"),
    "another key": rows_only("its key (id) is not unique any more",
                             "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
                             "ALTER TABLE {t} ADD PRIMARY KEY (id, n)"),
    "identity by an index, again": goes_on(
        "REINDEX INDEX CONCURRENTLY {t}_i", before=(
            "CREATE TABLE {t} (id int NOT NULL, v text)", "CREATE UNIQUE INDEX {t}_i ON {t} (id)",
            "ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_i")),
    "identity's index dropped": rows_only(
        "its key (id) is not unique any more", "DROP INDEX {t}_i", before=(
            "CREATE TABLE {t} (id int NOT NULL, v text)", "CREATE UNIQUE INDEX {t}_i ON {t} (id)",
            "ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_i")),
    # columns
    "column again": rows_only("column v is another column than before",
                              "ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v text"),
    "columns swapped": rows_only("column v is another column than before",
                                 "ALTER TABLE {t} RENAME v TO x", "ALTER TABLE {t} RENAME w TO v",
                                 "ALTER TABLE {t} RENAME x TO w",
                                 before=("CREATE TABLE {t} (id int PRIMARY KEY, v text, w text)",)),
    "retyped": rows_only("column n is bigint now, and was integer",
                         "ALTER TABLE {t} ALTER n TYPE bigint"),
    "retyped and back": rows_only("column n was given another type",
                                  "ALTER TABLE {t} ALTER n TYPE bigint",
                                  "ALTER TABLE {t} ALTER n TYPE int USING n + 1"),
    "rewritten in its type": rows_only("column n was given another type",
                                       "ALTER TABLE {t} ALTER n TYPE int USING n + 1",
                                       "GRANT SELECT ON {t} TO PUBLIC"),
    "rewritten with its default": rows_only(
        "column x was given another type", "ALTER TABLE {t} ALTER x TYPE int USING x + 1",
        before=(TABLE, ROWS, "ALTER TABLE {t} ADD COLUMN x int DEFAULT 7")),
    "expression": rows_only("column g is generated by another expression",
                            "ALTER TABLE {t} ALTER g SET EXPRESSION AS (id * 3)",
                            before=("CREATE TABLE {t} (id int PRIMARY KEY, g int GENERATED ALWAYS"
                                    " AS (id * 2) STORED)",),
                            publication="FOR TABLE {t} WITH (publish_generated_columns = stored)"),
    "label renamed": rows_only("column e has another text for a label of its enumeration",
                               "ALTER TYPE e_{t} RENAME VALUE 'a' TO 'x'",
                               before=("CREATE TYPE e_{t} AS ENUM ('a', 'b')",
                                       "CREATE TABLE {t} (id int PRIMARY KEY, e e_{t})")),
    "label added": goes_on("ALTER TYPE e_{t} ADD VALUE 'c'",
                           before=("CREATE TYPE e_{t} AS ENUM ('a', 'b')",
                                   "CREATE TABLE {t} (id int PRIMARY KEY, e e_{t})")),
    # partitions
    "partition created": goes_on(f"CREATE TABLE {{t}}_3 PARTITION OF {{t}} {THIRD}",
                                 "INSERT INTO {t} VALUES (250, 'v', 1)", before=PARTS,
                                 publication=ROOT),
    "partition attached empty": goes_on("CREATE TABLE {t}_3 (LIKE {t} INCLUDING ALL)",
                                        f"ALTER TABLE {{t}} ATTACH PARTITION {{t}}_3 {THIRD}",
                                        "INSERT INTO {t} VALUES (250, 'v', 1)", before=PARTS,
                                        publication=ROOT),
    "partition attached": both("partition public.{t}_3 was attached with rows",
                               "CREATE TABLE {t}_3 (LIKE {t} INCLUDING ALL)",
                               "INSERT INTO {t}_3 VALUES (250, 'v', 1)",
                               f"ALTER TABLE {{t}} ATTACH PARTITION {{t}}_3 {THIRD}",
                               before=PARTS, publication=ROOT),
    "partition of a partition": both(
        "partition public.{t}_31 was attached with rows",
        "CREATE TABLE {t}_3 (LIKE {t} INCLUDING ALL) PARTITION BY RANGE (id)",
        "CREATE TABLE {t}_31 PARTITION OF {t}_3 FOR VALUES FROM (200) TO (300)",
        "INSERT INTO {t}_3 VALUES (250, 'v', 1)",
        f"ALTER TABLE {{t}} ATTACH PARTITION {{t}}_3 {THIRD}",
        before=PARTS, publication=ROOT),
    "partition detached": rows_only("its partition public.{t}_1 was detached or dropped",
                                    "ALTER TABLE {t} DETACH PARTITION {t}_1",
                                    before=PARTS, publication=ROOT),
    "partition dropped": rows_only("its partition public.{t}_1 was detached or dropped",
                                   "DROP TABLE {t}_1", before=PARTS, publication=ROOT),
    "partition detached and back": both(
        "its partition public.{t}_1 was detached, and attached again",
        "ALTER TABLE {t} DETACH PARTITION {t}_1",
        "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (0) TO (100)",
        before=PARTS, publication=ROOT),
    "partition truncated": both("its partition public.{t}_1 was truncated", "TRUNCATE {t}_1",
                                before=PARTS, publication=ROOT),
    "only partition truncated": both("its partition public.{t}_1 was truncated", "TRUNCATE {t}_1",
                                     "INSERT INTO {t} VALUES (1, 'v', 1)",
                                     before=PARTS[:2], publication=ROOT),
    "root truncated": goes_on("TRUNCATE {t}", before=PARTS, publication=ROOT),
    "root truncated, with one partition": goes_on("TRUNCATE {t}", before=PARTS[:2],
                                                  publication=ROOT),
    "partition vacuumed": goes_on("VACUUM FULL {t}_1", "CLUSTER {t}_2 USING {t}_2_pkey",
                                  "GRANT SELECT ON {t}_1 TO PUBLIC", "CREATE INDEX ON {t} (n)",
                                  before=PARTS, publication=ROOT),
    "column added to partitions": goes_on("ALTER TABLE {t} ADD COLUMN x float DEFAULT random()",
                                          before=PARTS, publication=ROOT),
    "partitions retyped": rows_only("column n was given another type",
                                    "ALTER TABLE {t} ALTER n TYPE int USING n + 1",
                                    before=PARTS, publication=ROOT),
    "partitions by their own names": both(
        "publication p_{t} does not hold it any more",
        "ALTER PUBLICATION p_{t} SET (publish_via_partition_root = false)",
        before=PARTS, publication=ROOT),
    "by their own names and back": both(
        "publication p_{t} was altered, and altered back",
        "ALTER PUBLICATION p_{t} SET (publish_via_partition_root = false)",
        "ALTER PUBLICATION p_{t} SET (publish_via_partition_root = true)",
        before=PARTS, publication=ROOT),
    "partition unlogged": both("partition public.{t}_3 is unlogged",
                               f"CREATE UNLOGGED TABLE {{t}}_3 PARTITION OF {{t}} {THIRD}",
                               before=PARTS, publication=ROOT),
    "partition unlogged and logged": both(
        "its partition public.{t}_1 was rewritten: unlogged, and logged again",
        "ALTER TABLE {t}_1 SET UNLOGGED", "ALTER TABLE {t}_1 SET LOGGED",
        before=PARTS, publication=ROOT),
    "became a partition": both(
        "publication p_{t} does not hold it any more",
        "CREATE TABLE {t}_r (LIKE {t} INCLUDING ALL) PARTITION BY RANGE (id)",
        "ALTER TABLE {t}_r ATTACH PARTITION {t} FOR VALUES FROM (0) TO (100)",
        publication="FOR ALL TABLES WITH (publish_via_partition_root = true)"),
    # tables that inherit
    "inherited from": rows_only("public.{t}_c inherits from it",
                                "CREATE TABLE {t}_c () INHERITS ({t})"),
    "inherited from and back": goes_on("CREATE TABLE {t}_c () INHERITS ({t})",
                                       "ALTER TABLE {t}_c NO INHERIT {t}"),
    "inherits": goes_on("CREATE TABLE {t}_p (id int)", "ALTER TABLE {t} INHERIT {t}_p"),
}  # fmt: skip


class Database(Upstream):
    """One database for all cases, each with tables of its own, and a session for its statements."""

    def __init__(self, postgres: PostgresServer) -> None:
        super().__init__(postgres)
        self.sql(f"ALTER ROLE {self.role} SUPERUSER", owner=True)
        self.session = postgres.connect(self.role, self.database)
        self.run("CREATE TABLE other (id int PRIMARY KEY)")
        self.numbers = itertools.count(1)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[Database]:
    """Where the cases are played."""
    made = Database(postgres)
    with made.session:
        yield made
    made.close()


@pytest.fixture(scope="module")
def opened(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """The session that looks."""
    with session(database.connection) as connection:
        yield connection


class Watched:
    """A table ``t`` under a publication ``p_t``, with a slot, and how it was at first."""

    def __init__(self, database: Database, opened: psycopg.Connection[Any], case: Case) -> None:
        self.database, self.opened = database, opened
        self.t = f"t{next(database.numbers)}"
        self.sql(*case.before, f"CREATE PUBLICATION p_{{t}} {case.publication}")
        self.slot = database.slot(self.t)
        if case.before[0] == PARTS[0]:  # there the log is asked
            database.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")
        found = self.survey()
        (table,) = found.tables
        assert survey.survey_from(found.json()) == found
        self.watch = survey.Watch(
            self.slot, f"p_{self.t}", survey.names_of([self.t]),
            {table.name: tuple(each.name for each in table.columns)}, found,
        )

    def sql(self, *statements: str) -> None:
        self.database.run(*(each.replace("{t}", self.t) for each in statements))

    def survey(self) -> survey.Survey:
        names = survey.names_of([self.t])
        return survey.read_survey(self.opened, f"p_{self.t}", names).survey

    def is_fine(self, format_: str) -> bool:
        """Whether its changes can be read, as it is now."""
        watch = self.watch
        found = survey.read_survey(self.opened, watch.publication, watch.names)
        return not survey_findings(
            found, watch.names, watch.publication, format_, "source",
            self.opened.info.server_version,
        )

    def is_resumed(self, watch: survey.Watch) -> bool:
        """Whether a source that an operator resumes now runs."""
        seen = msgspec.structs.replace(self.survey(), fingerprint="")
        try:
            self.look(Watcher(msgspec.structs.replace(watch, recorded=seen)))
        except ChangesMissing:
            return False
        return True

    def look(self, watcher: Watcher, catalog: str = "") -> str:
        position = Position(1, 1, "7000", catalog)
        return watcher.look(OpenServer(self.opened, self.database.connection), position)

    def close(self) -> None:
        self.sql("DROP PUBLICATION IF EXISTS p_{t}")
        self.database.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            f" WHERE slot_name = '{self.slot}'"
        )


@pytest.mark.parametrize("name", CASES)
def test_ddl(database: Database, opened: psycopg.Connection[Any], name: str) -> None:
    """What may have lost a change has its cause, undone or not, and no longer once an operator has
    resumed from it; nothing else has one, and it is what counts from then on."""
    case = CASES[name]
    watched = Watched(database, opened, case)
    try:
        recorded = watched.watch.recorded
        assert watched.look(Watcher(watched.watch)) == recorded.fingerprint
        watched.sql(*case.ddl)
        for format_, cause in (("MIRROR", case.mirror), ("CHANGES", case.changes)):
            watcher = Watcher(msgspec.structs.replace(watched.watch, format=format_))
            if cause is None:
                now = watched.look(watcher)
                assert watched.look(watcher) == now == watcher.watch.recorded.fingerprint
                continue
            with pytest.raises(ChangesMissing) as caught:
                watched.look(watcher)
            assert cause.replace("{t}", watched.t) in caught.value.message
            assert caught.value.data["table"] == f"public.{watched.t}"
            assert all("SOURCE {source}" in each for each in caught.value.data["statements"])
            assert watched.is_resumed(watcher.watch) == watched.is_fine(format_)
    finally:
        watched.close()


def test_a_column_that_came_back_between_two_looks(
    database: Database, opened: psycopg.Connection[Any]
) -> None:
    """Dropped, looked at, and added again without a change of a row: it is another column, also to
    a later start, which goes by what is on record."""
    watched = Watched(database, opened, goes_on())
    try:
        watcher = Watcher(msgspec.structs.replace(watched.watch, format="MIRROR"))
        watched.sql("ALTER TABLE {t} DROP COLUMN v")
        watched.look(watcher)
        kept = survey.survey_from(watcher.watch.recorded.json())
        assert kept is not None
        watched.sql("GRANT SELECT ON {t} TO PUBLIC")
        watched.look(watcher)
        watched.sql("ALTER TABLE {t} ADD COLUMN v text")
        later = Watcher(msgspec.structs.replace(watcher.watch, recorded=kept))
        for each in (watcher, later):
            with pytest.raises(ChangesMissing, match="column v is another column") as caught:
                watched.look(each)
            assert caught.value.data["fingerprint"] == watched.survey().fingerprint
    finally:
        watched.close()


def test_rows_of_a_partition_that_may_not_be_read(upstream: Upstream) -> None:
    """They are read by the name of the table, as is usual for who reads changes; without a right on
    that either, there may be some."""
    upstream.sql(
        *(each.replace("{t}", "t") for each in PARTS),
        "CREATE TABLE t_3 (LIKE t INCLUDING ALL)", f"ALTER TABLE t ATTACH PARTITION t_3 {THIRD}",
        "INSERT INTO t VALUES (250, 'v', 1)",
        "CREATE TABLE t_4 (LIKE t INCLUDING ALL)", "INSERT INTO t_4 VALUES (350, 'v', 1)",
        "ALTER TABLE t ATTACH PARTITION t_4 FOR VALUES FROM (300) TO (400)", owner=True,
    )

    def older() -> dict[str, bool]:
        with session(upstream.connection) as opened:
            (table,) = survey.read_survey(opened, "p", survey.names_of(["t"])).survey.tables
            return {
                each.name: has_older_rows(opened, table.name, each.name, each.attached)
                for each in table.descendants
            }

    assert older() == dict.fromkeys(("public.t_1", "public.t_2", "public.t_3", "public.t_4"), True)
    upstream.sql(f"GRANT SELECT ON t TO {upstream.role}", owner=True)
    assert older() == {
        "public.t_1": False, "public.t_2": False, "public.t_3": False, "public.t_4": True,
    }
