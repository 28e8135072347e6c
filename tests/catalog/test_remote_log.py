"""The log on an object store: proven on a server, silent about options, refused where unsafe."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.catalog.records import ConfigRecord
from catalog_migrate.delta import race, table
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogNotFound,
    CatalogWriteRefused,
    NotACatalog,
    StoreFailure,
    UsageError,
)
from catalog_migrate.release.loader import load_texts
from catalog_migrate.store import address, store_at
from catalog_migrate.store.address import Storage
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from tests.decisions import Changes, commit

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore


@pytest.mark.services
class TestOnAServer:
    """What needs a store that answers."""

    def test_an_upgrade(self, bucket: str, object_store: ObjectStore) -> None:
        """A whole start and an upgrade, the second by another process that opens the log anew."""
        engine = SimulatedEngine(persistent=True)
        for name, text in (("1", "a INT"), ("2", "a INT, b INT")):
            report = migrate(
                engine, open_log(f"{bucket}/c", Storage(object_store.options)),
                load_texts([("t.sql", f"CREATE TABLE s.t ({text});")], name=name),
                warehouse="/w", clock=SystemClock(), holder=name,
            )
        assert report.outcome == "migrated"
        assert read_state(open_log(f"{bucket}/c", Storage(object_store.options))).serial == 2

    def test_nothing_is_there(self, bucket: str, object_store: ObjectStore) -> None:
        """An empty place is no catalog, and looking writes nothing."""
        with pytest.raises(CatalogNotFound, match=f"{bucket}/c"):
            read_state(open_log(f"{bucket}/c", Storage(object_store.options)))
        assert "<Key>" not in object_store.objects(bucket.removeprefix("s3://"))

    def test_another_table(self, bucket: str, object_store: ObjectStore) -> None:
        """A Delta table with other columns is not a catalog."""
        from arro3.core import Array, DataType, Table
        from deltalake import write_deltalake

        rows = Table.from_pydict({"x": Array([1], DataType.int32())})
        write_deltalake(f"{bucket}/c/log", rows, storage_options=dict(object_store.options))
        with pytest.raises(NotACatalog, match="a table with the columns x"):
            read_state(open_log(f"{bucket}/c", Storage(object_store.options)))

    def test_the_store_refuses_the_second_of_two_commits(
        self, bucket: str, object_store: ObjectStore
    ) -> None:
        """doctor's race on the very store; nothing of it stays there."""
        race.race(bucket, Storage(object_store.options))
        assert "<Key>" not in object_store.objects(bucket.removeprefix("s3://"))

    def test_a_start_without_changes_asks_little(
        self, bucket: str, object_store: ObjectStore
    ) -> None:
        """The state is kept as one object, so that the commits before need not be read."""
        engine = SimulatedEngine(persistent=True)
        name = bucket.removeprefix("s3://")
        text = "".join(
            f"CREATE TABLE s.t{n} (a INT); CREATE VIEW s.v{n} (a INT) AS SELECT a FROM s.t{n};"
            for n in range(100)
        )
        release = load_texts([("t.sql", text)], name="1")
        outcomes = []
        for _ in range(2):
            before = len(object_store.requests(name))
            outcomes.append(migrate(
                engine, open_log(f"{bucket}/c", Storage(object_store.options)), release,
                warehouse=f"{bucket}/rows", clock=SystemClock(), holder="1",
            ).outcome)
        assert outcomes == ["initialized", "unchanged"]
        asked = object_store.requests(name)[before:]
        assert 0 < len(asked) <= 10
        assert {method for method, _ in asked} == {"GET"}
        kept = read_state(open_log(f"{bucket}/c", Storage(object_store.options)))
        store_at(f"{bucket}/c", Storage(object_store.options)).delete("states")
        read = read_state(open_log(f"{bucket}/c", Storage(object_store.options)))
        assert (kept.version, kept.raw) == (read.version, read.raw)

    def test_a_state_of_another_log_is_not_taken(
        self, bucket: str, object_store: ObjectStore
    ) -> None:
        """Nor one that is damaged: then the log itself is read."""
        def opened() -> CatalogLog:
            return open_log(f"{bucket}/c", Storage(object_store.options))

        def made() -> str:
            log = opened()
            lineage = create_catalog(log, warehouse="w").lineage
            log.keep_state()
            return lineage

        store = store_at(f"{bucket}/c", Storage(object_store.options))
        first = made()
        assert read_state(opened()).lineage == first
        store.delete("log")
        second = made()
        assert read_state(opened()).lineage == second != first
        (kept,) = store.names("states")
        store.delete(f"states/{kept}")
        store.put_if_absent(f"states/{kept}", b"x")
        assert read_state(opened()).lineage == second

    def test_one_state_is_kept(self, bucket: str, object_store: ObjectStore) -> None:
        """That of the newest version, in place of the one before; what a start left of a probe
        does not stand in the way."""
        storage = Storage(object_store.options)
        store = store_at(f"{bucket}/c", storage)
        store.put_if_absent("probe-1", b"")
        store.put_if_absent("doctor-1/_delta_log/0.json", b"")
        create_catalog(open_log(f"{bucket}/c", storage), warehouse="w")
        for number in range(3):
            log = open_log(f"{bucket}/c", storage)
            changes = Changes()
            changes.put("config", f"note {number}", ConfigRecord(value="x"))
            commit(log, lambda _, made=changes: made, kind="note")
            log.keep_state()
            assert len(list(store.names("states"))) == 1

    @pytest.mark.parametrize("wrong", ["bucket", "address"])
    def test_no_option_is_told(
        self, object_store: ObjectStore, bucket: str, wrong: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Errors of the store come with text, cause and traceback that hold no option's value."""
        options = {**object_store.options, "max_retries": "0"}
        if wrong == "address":
            options["aws_endpoint_url"] = "http://127.0.0.1:1/MARKED-ENDPOINT"
        place = f"{bucket}/c" if wrong == "address" else "s3://no-such-bucket/c"
        log = open_log(place, Storage(options))
        told = [repr(Storage(options)), repr(vars(log))]
        with caplog.at_level(logging.DEBUG):
            for act in (
                lambda: read_state(log), lambda: create_catalog(log, warehouse="w"),
                lambda: log.renew("migration", "1"), lambda: race.race(place, Storage(options)),
            ):
                with pytest.raises((StoreFailure, CatalogMigrateError)) as caught:
                    act()
                told += [
                    str(caught.value), repr(caught.value.data),
                    "".join(traceback.format_exception(caught.value)),
                ]
        text = "\n".join([*told, caplog.text])
        assert "MARKED" not in text
        assert "CM0230" in text


def test_what_gives_up_put_if_absent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an option in any spelling and as a variable; false is no harm."""
    for options in (
        {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, {"allow_unsafe_rename": "1"},
        {"aws_conditional_put": "disabled"}, {"conditional_put": "DISABLED"},
    ):
        with pytest.raises(UsageError, match="gives up put-if-absent"):
            open_log("s3://bucket/c", Storage(options))
    open_log("s3://bucket/c", Storage({"aws_s3_allow_unsafe_rename": "false"}))
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(UsageError, match="aws_s3_allow_unsafe_rename"):
        open_log("s3://bucket/c")


def test_a_login_in_the_address_is_refused_without_telling_it() -> None:
    """Addresses are shown everywhere."""
    with pytest.raises(UsageError) as caught:
        open_log("s3://MARKED:MARKED@bucket/c")
    assert "MARKED" not in str(caught.value)


def test_hiding_leaves_words_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, logins and signatures go; ``true`` and numbers stay in the sentences they are in."""
    storage = Storage({"a": "true", "b": "12", "key": "s3cr3t", "longer": "s3cr3t-and-more"})
    assert storage.hidden("is it true at 12? s3cr3t-and-more, s3cr3t") == (
        "is it true at 12? ***, ***"
    )
    assert storage.hidden("https://u:p@host/x?sig=abc&y=1") == "https://***@host/x?sig=***&y=1"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-outside")
    assert storage.hidden("from-outside") == "***"
    assert repr(storage) == "Storage(a, b, key, longer)"


def test_the_race_leaves_no_directory_behind(tmp_path: Path) -> None:
    """A catalog that is not there yet has its place tried, and the place is as before."""
    race.race(str(tmp_path / "not" / "yet"))
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_lets_both_through_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that take the next free version instead of theirs all succeed: the race says so."""
    from deltalake import CommitProperties

    monkeypatch.setattr(table, "at_this_version", lambda *_: CommitProperties(max_commit_retries=9))
    with pytest.raises(CatalogWriteRefused, match="2 succeeded instead of one"):
        race.race(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.services
def test_a_command_asks_for_the_rows_before_it_starts_spark(
    bucket: str, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A usage error, told within a moment."""
    from catalog_migrate.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    Path("catalog_migrate.toml").unlink()
    for name, value in object_store.options.items():
        monkeypatch.setenv(f"CATALOG_MIGRATE__STORAGE_OPTIONS__{name.upper()}", value)
    assert main(["bootstrap", "--catalog", f"{bucket}/c", "--release", "release"]) == 64
    said = capsys.readouterr().err
    assert "where are the rows kept" in said
    assert "starting Spark" not in said


@pytest.mark.services
def test_rows_are_reached_by_the_options_of_their_own_catalog(
    bucket: str, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process was given others before, for other stores."""
    from catalog_migrate.api import Catalog

    others = {
        f"s3://other-{number}": Storage({**object_store.options, "aws_region": f"r-{number}"})
        for number in range(2)
    }
    monkeypatch.setattr(address, "_given", others)
    catalog = Catalog.create(
        tmp_path / "catalog", f"{bucket}/rows", storage_options=object_store.options
    )
    assert catalog.state().setting("warehouse") == f"{bucket}/rows"
    assert address.storage_of(f"{bucket}/rows/s/t").options() == object_store.options


@pytest.mark.spark
@pytest.mark.services
def test_a_real_start_with_the_catalog_on_a_store(
    spark: Any, bucket: str, object_store: ObjectStore, tmp_path: Path, schema_name: str
) -> None:
    """Spark keeps the rows in a directory, the catalog is on the store; a second start follows."""
    from catalog_migrate.api import Catalog
    from catalog_migrate.hook import bootstrap

    release = load_texts([("t.sql", f"CREATE TABLE {schema_name}.t (a INT);")], name="1")
    options = dict(object_store.options)
    with pytest.raises(UsageError, match="where are the rows kept"):
        bootstrap(spark, release=release, catalog=f"{bucket}/c", storage_options=options)
    for outcome in ("initialized", "unchanged"):
        report = bootstrap(
            spark, release=release, catalog=f"{bucket}/c", warehouse=tmp_path / "rows",
            storage_options=options,
        )
        assert report.outcome == outcome
    spark.sql(f"INSERT INTO {schema_name}.t VALUES (7)")
    assert [row.a for row in spark.table(f"{schema_name}.t").collect()] == [7]
    shown = Catalog.open(f"{bucket}/c", storage_options=options).show(f"{schema_name}.t")
    assert shown["location"].startswith(str(tmp_path / "rows"))
