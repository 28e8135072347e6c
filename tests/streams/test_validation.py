"""VALIDATE SOURCE on a real server, against mirrors that are kept without Spark."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.cli.main import main
from catalog_migrate.connectors.postgres.comparison import Look, Rows
from catalog_migrate.errors import (
    CatalogMigrateError,
    RefusedStatement,
    SourceDiffers,
    SourceNotCompared,
)
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.statements import ResetSplits, Unsafe
from catalog_migrate.streams.ddl import validation
from catalog_migrate.streams.ddl.validation import (
    PROGRESS,
    ComparedBucket,
    ComparedTable,
    Progress,
    _Kept,
    find_differences,
)
from catalog_migrate.streams.runtime.ports import Ports
from tests.services.mirror import Follower

if TYPE_CHECKING:
    from tests.services.upstream import Upstream

pytestmark = pytest.mark.services


class Mirrored:
    """A catalog with a mirror ``m`` of some tables of a database."""

    def __init__(self, upstream: Upstream, directory: Path) -> None:
        self.upstream, self.directory = upstream, directory
        self.word = directory / "word"
        self.word.write_text(upstream.password)
        self.word.chmod(0o600)
        self.catalog = Catalog.create(directory / "catalog")
        self.progress: list[str] = []
        self.run("CREATE CLUSTER main")
        self.run(f"CREATE SECRET pw AS 'file:{self.word}'")
        self.run(
            f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {upstream.server.port},"
            f" DATABASE '{upstream.database}', USER '{upstream.role}', PASSWORD SECRET pw,"
            " SSL MODE 'disable')"
        )

    def run(self, sql: str) -> Any:
        return self.catalog.execute(sql, on_progress=self.progress.append)[0]

    def mirror(self, tables: str, more: str = "", publication: str = "") -> Follower:
        """The source, its snapshot taken."""
        self.upstream.sql(f"CREATE PUBLICATION p {publication or 'FOR ALL TABLES'}", owner=True)
        self.run(
            "CREATE SOURCE m IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p',"
            f" TABLES ({tables})) FORMAT MIRROR {more}"
        )
        made = Follower(self.catalog, "m")
        made.begin()
        return made

    def compared(self, more: str = "") -> dict[str, tuple[int, int, int]]:
        """(equal rows, buckets, rows that changed at every look) by table."""
        rows = self.run(f"VALIDATE SOURCE m {more}").rows
        assert rows.columns == (
            "table", "upstream", "equal_rows", "buckets", "changing_rows", "lsn"
        )
        return {row[0]: row[2:5] for row in rows.values}

    def kept(self) -> list[Path]:
        """Files in which comparisons have left how far they are."""
        return list(self.directory.glob(f"**/validation/{PROGRESS}"))


@pytest.fixture
def mirrored(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirrored:
    """One that has nothing yet."""
    monkeypatch.setattr(validation, "_PAUSE", 0.05)
    return Mirrored(upstream, tmp_path)


@contextmanager
def running(*acts: Callable[[], None]) -> Iterator[None]:
    """Acts that go on beside the block; what one of them raises is raised behind it."""
    failures: list[BaseException] = []

    def caught(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=caught, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60)
        if failures:
            raise failures[0]


def test_every_kind_of_table_and_every_difference(mirrored: Mirrored) -> None:
    """Equal are mapped names, generated columns that are not published, partitions, rows that a
    filter leaves out or that inherit, and rows that were deleted and stay; of what
    differs each table and bucket is named, with the statement that copies these tables again."""
    upstream = mirrored.upstream
    upstream.sql(
        "CREATE TABLE plain (id int PRIMARY KEY, v text,"
        " g int GENERATED ALWAYS AS (id + 1) STORED)",
        "INSERT INTO plain SELECT n, 'v' || n FROM generate_series(1, 500) AS n",
        "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (plain)",
        "INSERT INTO child VALUES (1, 'other')",
        "CREATE TABLE filtered (id int PRIMARY KEY, v text)",
        "INSERT INTO filtered SELECT n, 'v' FROM generate_series(1, 50) AS n",
        "CREATE TABLE parts (id bigint, day int, v text, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parts_2 PARTITION OF parts DEFAULT",
        "INSERT INTO parts SELECT n, n % 20, 'v' FROM generate_series(1, 100) AS n",
        "CREATE TABLE few (n numeric(10,2), b boolean, PRIMARY KEY (n, b))",
        "INSERT INTO few VALUES (0, true), (0, false), (1.5, true), (-3, false)",
    )
    follower = mirrored.mirror(
        "plain AS shop.renamed, child, filtered, parts, few", "WITH (SOFT DELETES = true)",
        "FOR TABLE plain, filtered WHERE (id > 25), parts, few"
        " WITH (publish_via_partition_root = true)",
    )
    upstream.sql(
        "ANALYZE", "DELETE FROM ONLY plain WHERE id <= 10",
        "UPDATE parts SET day = 3 WHERE id = 17",
        "DELETE FROM few WHERE n = 0 AND b", "UPDATE filtered SET id = -1 WHERE id = 30",
    )
    follower.go_on()
    assert mirrored.compared("WITH (BUCKET ROWS = 120)") == {
        "shop.renamed": (490, 5, 0), "default.filtered": (24, 1, 0), "default.parts": (100, 1, 0),
        "default.few": (3, 1, 0), "default.child": (1, 1, 0),
    }
    assert mirrored.compared() == {
        "shop.renamed": (490, 1, 0), "default.filtered": (24, 1, 0), "default.parts": (100, 1, 0),
        "default.few": (3, 1, 0), "default.child": (1, 1, 0),
    }
    assert mirrored.kept() == []

    plain = follower.rows["public.plain"]
    lost = plain.pop(("20",))
    plain[("21",)] = (("21", "spoilt"), *plain[("21",)][1:])
    plain[("9000",)] = (("9000", "too many"), *lost[1:])
    plain[("11",)] = (*plain[("11",)][:2], lost[2] or _ages_ago())
    follower.rows["public.parts"].pop(("17", "3"))
    follower.write("public.plain")
    follower.write("public.parts")
    with pytest.raises(SourceDiffers) as caught:
        mirrored.run("VALIDATE SOURCE m WITH (BUCKET ROWS = 120)")
    error = caught.value
    assert error.exit_code == 8
    assert error.message.startswith(
        "source default.m is not what its tables are upstream: 5 rows differ in public.plain,"
        " public.parts;"
    )
    first, second = error.differences
    assert first.startswith(
        "public.plain, here shop.renamed: 2 missing here, 1 not upstream, 1 with other values;"
        " bucket "
    )
    assert first.endswith(" of 5")
    assert second.startswith("public.parts, here default.parts: 1 missing here; bucket 0 at ")
    remedy = parse_one(str(error.remedy))
    assert isinstance(remedy, Unsafe)
    assert remedy.actions == (ResetSplits(("public.plain", "public.parts")),)
    assert remedy.reason == "5 rows differ"
    assert "spoilt" not in str(error)
    assert mirrored.kept() == []


def _ages_ago() -> Any:
    from datetime import datetime, timezone

    return datetime(2020, 1, 1, tzinfo=timezone.utc)


def test_writers_and_a_reader_that_lags(mirrored: Mirrored) -> None:
    """Rows that change, go and come back under the comparison are no differences, however far the
    mirror is behind; a row that is wrong among them is one; one that changes at every look is
    counted."""
    upstream = mirrored.upstream
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, large text)",
        "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT n, 0, repeat('x', 3000) FROM generate_series(1, 400) AS n",
    )
    follower = mirrored.mirror("t")
    release = follower.hold_lease()
    ended = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with upstream.server.connect(upstream.role, upstream.database) as connection:
            while not ended.is_set():
                row = chance.randrange(1, 400)
                connection.execute(chance.choice((
                    f"UPDATE t SET v = v + 1 WHERE id = {row}",
                    f"DELETE FROM t WHERE id = {row}",
                    f"INSERT INTO t VALUES ({row}, 0, 'back') ON CONFLICT DO NOTHING",
                    f"UPDATE t SET id = id + 1000 WHERE id = {row} AND NOT EXISTS"
                    f" (SELECT FROM t WHERE id = {row + 1000})",
                    "UPDATE t SET v = v + 1 WHERE id = 400",
                )).encode())
                ended.wait(0.02)

    acts = [lambda seed=seed: write(seed) for seed in range(3)]
    with running(*acts, lambda: follower.follow(ended, 0.1)):
        try:
            rows, buckets, changing = mirrored.compared("WITH (BUCKET ROWS = 200)")["default.t"]
            assert changing < 50 < rows
            assert buckets >= 2
        finally:
            ended.set()
    follower.go_on()
    rows_there = upstream.sql("SELECT count(*) FROM t")[0][0]
    assert mirrored.compared() == {"default.t": (rows_there, 1, 0)}
    upstream.sql("INSERT INTO t VALUES (9999, 1, 'still')")
    follower.go_on()
    follower.rows["public.t"].pop(("9999",))
    follower.write("public.t")
    ended.clear()
    with running(*acts, lambda: follower.follow(ended, 0.1)):
        try:
            with pytest.raises(SourceDiffers, match=r"1 rows differ in public\.t"):
                mirrored.run("VALIDATE SOURCE m")
        finally:
            ended.set()
    release()


def test_what_cannot_be_told(mirrored: Mirrored) -> None:
    """A mirror that is behind and does not move is not called different, nor equal: what keeps it
    is named, and the next call goes on with the buckets that are not decided. Policies that hide
    rows, other sources and settings are refused with what to do."""
    upstream = mirrored.upstream
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 200) AS n",
    )
    with pytest.raises(CatalogMigrateError):
        mirrored.run("VALIDATE SOURCE m")
    follower = mirrored.mirror("t")
    upstream.sql("UPDATE t SET v = 'new' WHERE id = 1")
    with pytest.raises(SourceNotCompared, match="no runtime of its cluster is alive") as caught:
        mirrored.run("VALIDATE SOURCE m WITH (BUCKET ROWS = 50)")
    assert caught.value.exit_code == 1
    (kept,) = mirrored.kept()
    progress = msgspec.json.decode(kept.read_bytes(), type=Progress)
    assert len(progress.tables["public.t"].done) == 3
    mirrored.run("PAUSE SOURCE m REASON 'a test'")
    with pytest.raises(SourceNotCompared, match="a test"):
        mirrored.run("VALIDATE SOURCE m WITH (BUCKET ROWS = 50)")
    assert "source default.m: goes on, 3 buckets were compared before" in mirrored.progress
    follower.go_on()
    assert mirrored.compared("WITH (BUCKET ROWS = 50)") == {"default.t": (200, 4, 0)}
    assert mirrored.kept() == []

    upstream.sql(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "CREATE POLICY few ON t USING (id < 5)",
    )
    with pytest.raises(CatalogMigrateError, match="row-level security") as refused:
        mirrored.run("VALIDATE SOURCE m")
    assert "BYPASSRLS" in str(refused.value.remedy)
    upstream.sql("ALTER TABLE t DISABLE ROW LEVEL SECURITY")
    for text, word in (
        ("VALIDATE SOURCE m WITH (ROWS = 5)", "no setting ROWS"),
        ("VALIDATE SOURCE m WITH (BUCKET ROWS = 0)", "BUCKET ROWS is '0'"),
    ):
        with pytest.raises(RefusedStatement, match=word):
            mirrored.run(text)
    mirrored.run(
        "CREATE SOURCE c IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p',"
        " TABLES (t AS changes)) FORMAT CHANGES"
    )
    for text in ("VALIDATE SOURCE c", "EXPLAIN VALIDATE SOURCE c"):
        with pytest.raises(RefusedStatement, match="FORMAT CHANGES") as refused:
            mirrored.run(text)
        assert "FORMAT MIRROR" in str(refused.value.remedy)
    assert mirrored.run("EXPLAIN VALIDATE SOURCE m").summary.startswith("compares public.t")
    mirrored.run("DROP SOURCE m")
    assert mirrored.kept() == []


def test_how_long_progress_counts(tmp_path: Path) -> None:
    """For a day since it was written last, however long ago the comparison began."""
    now = 0.0
    clock = cast("Any", SimpleNamespace(wall=lambda: now, monotonic=time.monotonic))
    spec = cast("Any", SimpleNamespace(checkpoint=f"{tmp_path}/m/checkpoint"))
    state = cast("Any", SimpleNamespace(streams={}))
    for number in range(4):
        kept = _Kept.take(spec, 100, clock, state, "i1")
        assert kept.compared == number
        done = tuple(ComparedBucket(each, 1, 100) for each in range(number + 1))
        kept._replace("public.t", ComparedTable("s1", (), 9, done))
        kept.save()
        now += 20 * 3600
    now += 5 * 3600
    assert _Kept.take(spec, 100, clock, state, "i1").compared == 0


def test_rows_that_are_there_twice() -> None:
    """A row differs as well by how often it is there; the others of its bucket do not."""
    there = Look(1, 2, rows(1, 1, 2, 3))
    assert find_differences(there, rows(3, 2, 1, 1)) == {}
    assert set(find_differences(there, rows(1, 2, 3, 3))) == {1, 3}
    assert set(find_differences(there, rows())) == {1, 2, 3}
    assert set(find_differences(Look(1, 2, rows()), rows(4, 4))) == {4}


def rows(*keys: int) -> Rows:
    """Rows by their keys."""
    return Rows(*(np.array(keys, kind) for kind in (np.uint64, np.uint64, np.int64)))


def test_a_source_that_is_dropped_meanwhile() -> None:
    """Its mirror is not waited for, and the reason is said."""
    comparison = validation._Comparison(
        "i9", cast("Any", None), lambda: cast("Any", SimpleNamespace(items={})), Ports(),
        SystemClock(), print, 1,
    )
    assert comparison._find_standstill(0.0) == "it was dropped"


def test_killed_and_gone_on_with(
    mirrored: Mirrored, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comparison that is killed goes on where it was, at the command line, which ends with 8 for
    rows that differ and 0 for none; a second one beside it takes over from the first."""
    upstream = mirrored.upstream
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 3000) AS n",
    )
    follower = mirrored.mirror("t")
    command = ["sql", "--catalog", str(mirrored.directory / "catalog"), "--format", "json", "-c"]
    slow = "VALIDATE SOURCE m WITH (BUCKET ROWS = 100, ROWS PER SECOND = 600)"
    fast = "VALIDATE SOURCE m WITH (BUCKET ROWS = 100)"

    def done() -> int:
        found = [msgspec.json.decode(each.read_bytes(), type=Progress) for each in mirrored.kept()]
        return sum(len(table.done) for each in found for table in each.tables.values())

    process = subprocess.Popen(
        [sys.executable, "-m", "catalog_migrate.cli.main", *command, slow],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        while done() < 3:
            time.sleep(0.02)
            assert process.poll() is None, process.communicate()
    finally:
        process.kill()
        process.communicate()
    before = done()
    assert 3 <= before < 30
    assert main([*command, fast]) == 0
    printed = capsys.readouterr()
    assert f"goes on, {before} buckets were compared before" in printed.err
    (row,) = json.loads(printed.out)
    assert (row["table"], row["equal_rows"], row["buckets"]) == ("default.t", 3000, 30)

    follower.rows["public.t"].pop(("77",))
    follower.write("public.t")
    assert main([*command, fast]) == 8
    printed = capsys.readouterr()
    assert "CM0788" in printed.err
    remedy = "ALTER SOURCE default.m UNSAFE RESET SPLITS ('public.t') REASON '1 rows differ';"
    assert remedy in printed.err

    first: list[BaseException] = []

    def compare() -> None:
        try:
            Catalog.open(mirrored.directory / "catalog", mode="write").execute(slow)
        except SourceNotCompared as error:
            first.append(error)

    with running(compare):
        while not done():
            time.sleep(0.01)
        with pytest.raises(SourceDiffers):
            mirrored.run(fast)
    assert "another VALIDATE SOURCE" in str(first[0])
