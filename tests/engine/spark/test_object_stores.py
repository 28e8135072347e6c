"""Spark on an object store: its commits lose nothing, its checkpoints fence, its secrets stay."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from catalog_migrate.api import Catalog
from catalog_migrate.api.doctor import safe_commits, says
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.config import load
from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.log import commit_name
from catalog_migrate.delta.table import load_table, write_rows
from catalog_migrate.engine.spark.jars import pyspark_version
from catalog_migrate.engine.spark.object_stores.commit_safety import (
    SparkCommit,
    log_store,
    race_session,
)
from catalog_migrate.engine.spark.object_stores.settings import (
    CHECKPOINT_MANAGER,
    LOG_STORE,
    MANAGED_BY,
    S3_PYSPARK,
    hadoop_settings,
)
from catalog_migrate.engine.spark.session import hand_over
from catalog_migrate.errors import PrepareFailed, UnsafeCommits, UnsuitableSession
from catalog_migrate.hook import bootstrap
from catalog_migrate.migrations.options import BootstrapOptions
from catalog_migrate.migrations.safe_commits import (
    remember,
    require_safe_commits,
    rows_addresses,
)
from catalog_migrate.model.findings import Finding, run_check
from catalog_migrate.release.loader import load_texts
from catalog_migrate.store import store_at
from catalog_migrate.store.address import Storage
from catalog_migrate.streams.spark import sources
from catalog_migrate.streams.spark.engine import SparkQueries
from tests.services.store_proxy import StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.object_store import ObjectStore

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        pyspark_version() not in S3_PYSPARK, reason="the Hadoop of this Spark is too old for S3"
    ),
]

STOCK = "io.delta.storage.S3SingleDriverLogStore"
HADOOP = {"4.1.1": "3.4.2"}.get(pyspark_version(), "3.5.0")
MARKED = ("MARKED-KEY-ID", "MARKED-SECRET")


@contextmanager
def committing_with(spark: SparkSession, name: str, scheme: str = "s3a") -> Iterator[None]:
    """The session commits with another LogStore meanwhile, as if it had been built so."""
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(f"spark.delta.logStore.{scheme}.impl", name)
    try:
        yield
    finally:
        conf.set(f"spark.delta.logStore.{scheme}.impl", LOG_STORE)


def storage_of(store: ObjectStore) -> Storage:
    return Storage(store.options)


class TestCommits:
    """A session's LogStore raced against delta-rs."""

    def test_ours_is_refused_where_a_commit_is(
        self, spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
    ) -> None:
        """By both schemes one of each two commits goes through; nothing of the race stays."""
        for address in (f"{bucket}/w", f"{bucket.replace('s3:', 's3a:')}/w"):
            used = race_session(spark_on_s3, address, storage_of(object_store))
            assert (used.name, used.hadoop) == (LOG_STORE, HADOOP)
            assert used.place == address.removesuffix("/w")
        assert "<Key>" not in object_store.objects(bucket.removeprefix("s3://"))

    def test_the_one_of_delta_writes_over_others(
        self, spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
    ) -> None:
        """It is caught by its deed; the message says what can be lost, and how it is set."""
        address = bucket.replace("s3:", "s3a:")
        with committing_with(spark_on_s3, STOCK), pytest.raises(UnsafeCommits) as raised:
            race_session(spark_on_s3, address, storage_of(object_store))
        assert raised.value.message == (
            f"this session commits to {address} with {STOCK} (Hadoop {HADOOP}), which was seen to"
            " write over a commit that another process had made: rows that their writer was told"
            " are in the table would be lost"
        )
        assert raised.value.remedy is not None
        assert f"set spark.delta.logStore.s3a.impl to {LOG_STORE}" in raised.value.remedy
        assert "<Key>" not in object_store.objects(bucket.removeprefix("s3://"))

    def test_what_was_raced_is_remembered(
        self, spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
    ) -> None:
        """Once for a LogStore, a version of Hadoop and a bucket; another LogStore is raced anew."""
        storage = storage_of(object_store)
        log = open_log(f"{bucket}/c", storage)
        state = create_catalog(log, warehouse=f"{bucket}/w")
        used = require_safe_commits(spark_on_s3, f"{bucket}/w", storage=storage, state=state)
        assert used is not None
        remember(log, used)
        remember(log, used)
        state = read_state(log)
        assert state.config[f"safe_commits {bucket} {LOG_STORE} Hadoop {HADOOP}"].value == "raced"
        nobody = Storage({**object_store.options, "aws_endpoint_url": "http://127.0.0.1:1"})
        assert require_safe_commits(
            spark_on_s3, f"{bucket}/w", storage=nobody, state=state
        ) is None
        with committing_with(spark_on_s3, STOCK, "s3"):
            with pytest.raises(UnsafeCommits):
                require_safe_commits(spark_on_s3, f"{bucket}/w", storage=storage, state=state)
            listed = BootstrapOptions(safe_log_stores=(STOCK,))
            assert require_safe_commits(
                spark_on_s3, f"{bucket}/w", storage=nobody, options=listed
            ) is None
            said: list[str] = []
            assert require_safe_commits(
                spark_on_s3, f"{bucket}/w", storage=storage, state=state,
                options=BootstrapOptions(require_safe_commits=False), on_note=said.append,
            ) is None
            assert re.match("this session commits to s3://.* which was seen to write over", said[0])

    def test_each_bucket_and_scheme_with_rows_is_looked_at(self) -> None:
        """An adopted table is committed to by the LogStore of its own scheme."""
        shards = dict.fromkeys(["s/t/1", "s3a://a/x/t", "s3a://a/y/u", "s3://b/v", "s3://a/w/z"])
        state: Any = SimpleNamespace(shards=shards)
        assert rows_addresses("s3://a/w", state) == ("s3://a/w", "s3a://a/x", "s3://b")
        assert rows_addresses("/w", state) == ("/w", "s3a://a/x", "s3://b", "s3://a/w")
        assert rows_addresses("/w", None) == ("/w",)

    def test_a_local_disk_is_not_looked_at(self, spark: SparkSession, tmp_path: Path) -> None:
        """Nothing is raced, and nothing asked of Spark."""
        assert require_safe_commits(None, str(tmp_path)) is None  # type: ignore[arg-type]

    def test_doctor_races_the_session_at_hand(
        self, spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
    ) -> None:
        """Safe or not, it says with what the session commits to the warehouse."""
        env = {"CATALOG_MIGRATE__CATALOG__WAREHOUSE": f"{bucket}/w", **{
            f"CATALOG_MIGRATE__STORAGE_OPTIONS__{name.upper()}": value
            for name, value in object_store.options.items()
        }}

        def found() -> Finding:
            check = says("spark", partial(safe_commits, spark_on_s3))
            return run_check(check, load(env=env), "spark")[0]

        raced = f"; its commits to {bucket} with {LOG_STORE} write over no other's"
        assert found().message == raced
        with committing_with(spark_on_s3, STOCK, "s3"):
            told = found()
            assert not told.ok
            assert told.message.startswith(f"this session commits to {bucket} with {STOCK}")
            env["CATALOG_MIGRATE__STORAGE__REQUIRE_SAFE_COMMITS"] = "false"
            told = found()
            assert told.ok
            lost = "would be lost (and storage.require_safe_commits is false)"
            assert told.message.endswith(lost)
            env["CATALOG_MIGRATE__STORAGE__SAFE_LOG_STORES"] = f"x.Y, {STOCK}"
            assert found().message == "; its LogStore is one of storage.safe_log_stores"

    def test_over_spark_connect(self) -> None:
        """A session without a JVM at hand does not tell; the error says what then."""
        with pytest.raises(UnsuitableSession, match="over Spark Connect does not tell how") as one:
            require_safe_commits(object(), "s3://b/w")  # type: ignore[arg-type]
        assert one.value.remedy is not None
        assert "storage.require_safe_commits = false" in one.value.remedy

    def test_a_class_that_is_not_there(self, spark_on_s3: SparkSession, bucket: str) -> None:
        """A LogStore that is not on the class path is told as a session that cannot commit."""
        with (
            committing_with(spark_on_s3, "no.such.LogStore", "s3"),
            pytest.raises(UnsuitableSession, match=r"cannot commit to s3://.*no\.such\.LogStore"),
        ):
            log_store(spark_on_s3, bucket)


def test_no_option_is_shown(
    spark_on_s3: SparkSession, object_store: ObjectStore, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Keys are in no command line, setting, event log or debug log, though Spark has them."""
    context = spark_on_s3.sparkContext
    jvm, sc = context._jvm, context._jsc.sc()
    with caplog.at_level(logging.DEBUG):
        hand_over(context, {"fs.s3a.secret.key": MARKED[1], "fs.s3a.access.key": MARKED[0]})
    conf = context._jsc.getConf()
    conf.set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    events = tmp_path / "events"
    events.mkdir()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "marked", jvm.scala.Option.empty(), jvm.java.net.URI(events.as_uri()), conf
    )
    listener.start()
    sc.addSparkListener(listener)
    (tmp_path / "any").touch()
    context.addFile(str(tmp_path / "any"))  # tells of the whole environment again
    sc.listenerBus().waitUntilEmpty()
    sc.removeSparkListener(listener)
    listener.stop()
    logged = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert '"fs.s3a.secret.key":"*********(redacted)"' in logged
    shown = [
        logged, caplog.text, str(context.getConf().getAll()),
        str(spark_on_s3.sql("SET").collect()), str(spark_on_s3.sql("SET -v").collect()),
    ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shown.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it has ended
    assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == MARKED[1]
    assert [text for text in shown for each in MARKED if each in text] == []


class TestNetwork:
    """A network that loses answers, and a server that is busy."""

    @pytest.fixture
    def proxy(
        self, spark: SparkSession, object_store: ObjectStore, tmp_path: Path
    ) -> Iterator[StoreProxy]:
        with StoreProxy(object_store, tmp_path) as proxy:
            hand_over(spark.sparkContext, hadoop_settings(Storage(proxy.options)))
            yield proxy

    def put(self, spark: SparkSession, address: str, text: str) -> str | None:
        """A commit by the LogStore; None, or the class of the error that refused it."""
        jvm, hadoop = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
        lines = jvm.java.util.ArrayList()
        lines.add(text)
        store = jvm.catalogmigrate.ConditionalPutLogStore(hadoop)
        try:
            store.write(jvm.org.apache.hadoop.fs.Path(address), lines.iterator(), False, hadoop)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return None

    @pytest.mark.parametrize("fault", ["cut", "SlowDown"])
    def test_a_commit_is_made_once(
        self, spark: SparkSession, proxy: StoreProxy, bucket: str, fault: str
    ) -> None:
        """The PUT is repeated; refused by its own object it has gone through, by another's not."""
        proxy.next(fault, conditional=True)
        assert self.put(spark, f"{bucket}/one", "mine") is None
        assert proxy.pending == 0
        assert len([each for each in proxy.seen if each.is_conditional_put]) == 2
        # the same bytes: what tells writers apart is no content
        proxy.next(fault, conditional=True)
        assert self.put(spark, f"{bucket}/one", "mine") == (
            "java.nio.file.FileAlreadyExistsException"
        )

    def test_a_batch_is_written_once(
        self, spark: SparkSession, proxy: StoreProxy, bucket: str
    ) -> None:
        """A checkpoint file whose answer was lost is this driver's; another has it no more."""
        jvm, hadoop = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
        path = jvm.org.apache.hadoop.fs.Path(f"{bucket}/checkpoint/commits/0")
        manager = jvm.catalogmigrate.ConditionalPutCheckpointFileManager(path, hadoop)
        proxy.next("cut", conditional=True)
        for _ in range(2):
            stream = manager.createAtomic(path, False)
            stream.write(1)
            if proxy.pending:
                stream.close()
                assert not proxy.pending
                continue
            with pytest.raises(Py4JJavaError, match=r"hadoop\.fs\.FileAlreadyExistsException"):
                stream.close()


class TestCheckpoints:
    """The manager of checkpoint files."""

    def manager(self, spark: SparkSession, address: str) -> tuple[Any, Any]:
        jvm, hadoop = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
        path = jvm.org.apache.hadoop.fs.Path(address)
        return jvm.catalogmigrate.ConditionalPutCheckpointFileManager(path, hadoop), path

    def test_one_driver_writes_a_batch(self, spark_on_s3: SparkSession, bucket: str) -> None:
        """Of eight at once one wins each file, the file is its own; the others are told."""
        manager, root = self.manager(spark_on_s3, f"{bucket}/checkpoint")
        jvm = spark_on_s3._jvm
        for number in range(5):
            path = jvm.org.apache.hadoop.fs.Path(root, str(number))
            line, won, refused = threading.Barrier(8), [], []

            def attempt(who: int) -> None:
                stream = manager.createAtomic(path, False)  # noqa: B023
                stream.write(who)
                line.wait()  # noqa: B023
                try:
                    stream.close()
                    won.append(who)  # noqa: B023
                except Exception as error:  # noqa: BLE001
                    refused.append(error.java_exception.getClass().getName())  # noqa: B023

            threads = [threading.Thread(target=attempt, args=(who,)) for who in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert refused == ["org.apache.hadoop.fs.FileAlreadyExistsException"] * 7
            assert manager.open(path).read() == won[0]

    def test_cancelled_and_overwritten(self, spark_on_s3: SparkSession, bucket: str) -> None:
        """What is cancelled is not there; a file of a state may be written over."""
        manager, root = self.manager(spark_on_s3, f"{bucket}/checkpoint")
        path = spark_on_s3._jvm.org.apache.hadoop.fs.Path(root, "0")
        for overwrite in (False, True):
            stream = manager.createAtomic(path, overwrite)
            stream.write(1)
            stream.cancel()
            stream.close()
            assert not manager.exists(path)
        for content in (1, 2):
            stream = manager.createAtomic(path, True)
            stream.write(content)
            stream.close()
            assert manager.open(path).read() == content

    def test_a_local_checkpoint_is_sparks_own(self, spark: SparkSession, tmp_path: Path) -> None:
        """On a local disk files come by rename, with their checksums beside them."""
        manager, root = self.manager(spark, str(tmp_path))
        path = spark._jvm.org.apache.hadoop.fs.Path(root, "0")
        stream = manager.createAtomic(path, False)
        stream.write(1)
        stream.close()
        assert {each.name for each in tmp_path.iterdir()} == {"0", ".0.crc"}

    def test_a_restarted_query_goes_on(
        self, spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
    ) -> None:
        """Rows, checkpoint and sink in one bucket: each row comes once, over a restart."""
        spark = spark_on_s3
        assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass") == (
            CHECKPOINT_MANAGER
        )
        for first in (0, 10):
            spark.range(first, first + 10, 1, 1).write.format("delta").mode("append").save(
                f"{bucket}/source"
            )
            query = (
                spark.readStream.format("delta").load(f"{bucket}/source").writeStream
                .format("delta").option("checkpointLocation", f"{bucket}/checkpoint")
                .trigger(availableNow=True).start(f"{bucket}/sink")
            )
            assert query.awaitTermination(60)
        rows = spark.read.format("delta").load(f"{bucket}/sink").collect()
        assert sorted(row["id"] for row in rows) == list(range(20))
        objects = object_store.objects(bucket.removeprefix("s3://"))
        assert set(re.findall(r"<Key>checkpoint/offsets/([^<]+)</Key>", objects)) == {"0", "1"}


def test_a_start_refuses_commits_that_write_over_others(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    """Nothing is written then; safe commits are raced once, and remembered by the catalog."""
    release = load_texts([("a.sql", "CREATE TABLE s3_start.t (a INT);")], name="1")
    told: list[str] = []

    def start(**options: Any) -> str:
        return bootstrap(
            spark_on_s3, release=release, catalog=tmp_path / "catalog",
            warehouse=f"{bucket.replace('s3:', 's3a:')}/w", storage_options=object_store.options,
            on_progress=lambda step: told.append(step.name), **options,
        ).outcome

    with committing_with(spark_on_s3, STOCK):
        with pytest.raises(UnsafeCommits, match="rows that their writer was told"):
            start()
        assert not open_log(str(tmp_path / "catalog")).exists()
        assert not any(store_at(bucket, storage_of(object_store)).names())
    assert start() == "initialized"
    state = read_state(open_log(str(tmp_path / "catalog")))
    (raced,) = (name for name in state.config if name.startswith("safe_commits"))
    assert LOG_STORE in raced
    assert start() == "unchanged"
    with committing_with(spark_on_s3, STOCK):
        with pytest.raises(UnsafeCommits):
            start()
        told.clear()
        assert start(require_safe_commits=False) == "unchanged"
    assert any(STOCK in said for said in told)


def test_a_seal_that_a_stock_session_writes_over_is_noticed(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, schema_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its append lands where the seal was: the upgrade ends before its commit, all rows kept.

    The append looked for its version before the seal took it. The next start has its rows.
    """
    from arro3.core import Array, DataType, Table

    def start(quantity: str) -> str:
        text = f"CREATE TABLE {schema_name}.t (id BIGINT, qty {quantity});"
        return bootstrap(
            spark_on_s3, release=load_texts([("a.sql", text)], name=quantity),
            catalog=f"{bucket}/catalog", warehouse=f"{bucket}/w",
            storage_options=object_store.options, require_safe_commits=False,
        ).outcome

    def append(number: int) -> None:
        write_rows(load_table(shard), Table.from_pydict({
            "id": Array([number], DataType.int64()), "qty": Array([str(number)], DataType.string()),
        }))

    def rows() -> list[tuple[Any, ...]]:
        return sorted(map(tuple, spark_on_s3.table(f"{schema_name}.t").collect()))

    assert start("STRING") == "initialized"
    catalog = Catalog.open(f"{bucket}/catalog", "write", storage_options=object_store.options)
    shard = catalog.show(f"{schema_name}.t")["location"]
    append(1)
    version = load_table(shard).version() + 1
    append(2)
    log = store_at(shard, storage_of(object_store))
    name = commit_name(version)
    first, rest = log.read(name).split(b"\n", 1)
    log.delete(name)  # its rows are there, and their writer is about to commit them
    held = SparkCommit(
        spark_on_s3, storage_of(object_store), f"{shard.replace('s3:', 's3a:')}/{name}",
        first + b"\n", rest,
    )
    seal = seals.seal

    def overtaken(path: str, **given: Any) -> int:
        with committing_with(spark_on_s3, STOCK):
            held.begin()
            sealed = seal(path, **given)
            assert sealed == version
            held.release()
            assert held.join()
        return sealed

    monkeypatch.setattr(seals, "seal", overtaken)
    with pytest.raises(PrepareFailed, match="written over by another writer"):
        start("INT USING CAST(qty AS INT)")
    monkeypatch.undo()
    assert rows() == [(1, "1"), (2, "2")]
    assert start("INT USING CAST(qty AS INT)") == "migrated"
    assert rows() == [(1, 1), (2, 2)]
    spark_on_s3.sql(f"DROP DATABASE `{schema_name}` CASCADE")


def test_a_runtime_refuses_what_loses_rows_and_keeps_checkpoints_that_fence(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever manager of checkpoint files the caller's session has, that of its queries stops a
    second driver; a session without our jar, or whose commits are unsafe, runs no query."""
    catalog = Catalog.create(f"{bucket}/c", f"{bucket}/w", storage_options=object_store.options)
    with committing_with(spark_on_s3, STOCK, "s3"), pytest.raises(UnsafeCommits):
        catalog.runtime(spark_on_s3)
    spark_on_s3.conf.set(MANAGED_BY, "a.manager.of.the.Caller")
    try:
        queries = catalog.runtime(spark_on_s3).engine
        assert isinstance(queries, SparkQueries)
        assert queries._spark.conf.get(MANAGED_BY) == CHECKPOINT_MANAGER
        monkeypatch.setattr(sources, "CHECKPOINT_MANAGER", "no.such.Manager")
        with pytest.raises(UnsuitableSession, match=r"no\.such\.Manager"):
            catalog.runtime(spark_on_s3)
    finally:
        spark_on_s3.conf.set(MANAGED_BY, CHECKPOINT_MANAGER)
