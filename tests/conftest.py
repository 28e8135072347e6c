"""Fixtures of the whole suite: one Spark session, broker and server a run, and places and names."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from catalog_migrate.engine.spark.jars import prefer_short_runs, pyspark_version
from catalog_migrate.engine.spark.object_stores.settings import S3_PYSPARK
from tests.services import spark_classes
from tests.stories import STORIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster
    from tests.services.metastore import HiveMetastore
    from tests.services.object_store import ObjectStore
    from tests.services.postgres import PostgresServer
    from tests.services.spark_cluster import SparkCluster
    from tests.services.spark_connect import SparkConnect
    from tests.services.store_proxy import StoreProxy
    from tests.services.upstream import Upstream

_numbers = itertools.count(1)

KEY_ID, SECRET = "MARKED-KEY-ID", "MARKED-SECRET"
"""The login of the object store, which is shown nowhere."""

HAS_S3 = pyspark_version() in S3_PYSPARK
"""Whether the Spark that is installed may have rows on S3; its tests are skipped where not."""

# Every process that a test starts inherits it.
prefer_short_runs(os.environ)
# A JVM has some fifty threads, and malloc would give most of them an arena of their own.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", spark_classes.submit_arguments())
# Up to four of these JVMs live at once. One that serves a whole run holds up to 500 MiB of plans.
os.environ.setdefault("SPARK_DRIVER_MEMORY", "1280m")

# How long one example takes says something about the machine, and about what else runs on it.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

pytest_plugins = ["tests.measurement"]

# Each group runs on one worker, which has what it needs: Spark with Kafka and PostgreSQL, Spark
# alone, Kafka and PostgreSQL alone.
_GROUPS = ("streams", "spark", "servers", "browser")
_SPARK = frozenset({"spark", "spark_connect", "connect_server"})
_SERVERS = frozenset({"kafka", "kafka_other", "postgres", "metastore"})
_FIXTURES_OF_MARKS: dict[str, frozenset[str]] = {
    "services": frozenset({
        "kafka", "kafka_other", "postgres", "metastore", "object_store", "spark_connect",
        "connect_server",
    }),
    "spark": frozenset({"spark"}),
    "browser": frozenset({"browser"}),
}
_JVM = frozenset({
    "spark", "spark_connect", "connect_server", "kafka", "kafka_other", "metastore",
})
_SLOW = ("spark", "services", "crash")


def pytest_configure(config: pytest.Config) -> None:
    """What processes leave in the temporary directory goes with the run, a killed JVM's included.

    Directories of tests (``tmp_path``) stay where pytest has them, and as long.
    """
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    directory = tempfile.mkdtemp(prefix="catalog-migrate-tests-")
    os.chmod(directory, 0o755)  # PostgreSQL refuses to run as root: its account must get in
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = directory
    os.environ["SPARK_SUBMIT_OPTS"] = f"-Djava.io.tmpdir={directory} {spark_classes.mapped()}"
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long series (`soak`) as well")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Each test gets its worker, and the marks of what it asks for: servers, a JVM.

    What takes long comes first, so that the end of a run is short tests on both workers.
    """
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        callspec = getattr(item, "callspec", None)
        # a contract suite names the implementation that it runs on by a parameter
        named = {} if callspec is None else callspec.params
        used = fixtures | set(map(str, named.values()))
        story = item.nodeid in STORIES.values()
        if story:
            item.add_marker("story")
        group = _group_of(used, story)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        for mark, servers in _FIXTURES_OF_MARKS.items():
            if fixtures & servers:
                item.add_marker(mark)
        if any(item.get_closest_marker(mark) for mark in _FIXTURES_OF_MARKS) and (
            used & _JVM or item.get_closest_marker("spark") is not None
        ):
            item.add_marker("jvm")
        if not HAS_S3 and "object_store" in used and item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.skip("the Hadoop of this Spark is too old for S3"))
    if not config.getoption("--soak"):
        config.hook.pytest_deselected(items=[one for one in items if _is_soak(one)])
        items[:] = [one for one in items if not _is_soak(one)]
    yield  # tests are chosen by their marks, and shuffled
    items.sort(key=_turn)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Without its groups a run would start Spark and servers in each worker, and say nothing."""
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError("this pytest-xdist does not group tests with this pytest")


def _is_soak(item: pytest.Item) -> bool:
    return item.get_closest_marker("soak") is not None


def _group_of(fixtures: frozenset[str], story: bool) -> str | None:
    if fixtures & _SPARK:
        if story and "spark" in fixtures:  # the stories of a run have one session
            return "streams"
        return "streams" if fixtures & {*_SERVERS, "queries"} else "spark"
    if "kafka_other" in fixtures:  # a broker that one worker has is not started in another
        return "streams"
    if "browser" in fixtures:
        return "browser"
    return "servers" if fixtures & _SERVERS else None


def _turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return _GROUPS.index(group.args[0])
    return len(_GROUPS) + (not any(item.get_closest_marker(name) for name in _SLOW))


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster | None]:
    """The cluster under the session of a run, of SPARK_WORKERS workers; None without any."""
    workers = int(os.environ.get("SPARK_WORKERS", "0"))
    if not workers:
        yield None
        return
    from tests.services.spark_cluster import SparkCluster

    with SparkCluster(tmp_path_factory.mktemp("spark-cluster"), workers=workers) as cluster:
        yield cluster


@pytest.fixture
def workers(spark_cluster: SparkCluster | None) -> SparkCluster:
    """The cluster, for tests that end one of its workers."""
    if spark_cluster is None:
        pytest.skip("the session works in its own JVM: make soak, part cluster, has workers")
    return spark_cluster


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, spark_cluster: SparkCluster | None
) -> Iterator[SparkSession]:
    """The one real Spark session of a run: in-memory names, Delta, jars for S3; local, or on the
    run's cluster.

    Without those jars on a minor whose Hadoop is too old for it.
    """
    from catalog_migrate.engine.spark.session import local_session
    from catalog_migrate.store.address import Storage

    session = local_session(
        warehouse_dir=str(tmp_path_factory.mktemp("spark-warehouse")),
        addresses=["s3://any"] if HAS_S3 else [],
        storage=Storage({"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}),
        conf=None if spark_cluster is None else spark_cluster.conf,
    )
    yield session
    session.stop()


@pytest.fixture
def spark_on_s3(spark: SparkSession, object_store: ObjectStore) -> SparkSession:
    """The session of the run, which reaches the run's object store."""
    from catalog_migrate.engine.spark.object_stores.settings import hadoop_settings
    from catalog_migrate.engine.spark.session import hand_over
    from catalog_migrate.store.address import Storage

    hand_over(spark.sparkContext, hadoop_settings(Storage(object_store.options)))
    return spark


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """The one Spark Connect server of a run; a test has schemas and catalogs of its own."""
    from tests.services.spark_connect import SparkConnect

    with SparkConnect(tmp_path_factory.mktemp("spark-connect")) as server:
        yield server


@pytest.fixture(scope="session")
def spark_connect(connect_server: SparkConnect) -> Iterator[SparkSession]:
    """A client's session on the server, as an application has one."""
    from catalog_migrate.engine.spark.connect import remote_session

    with remote_session(connect_server.address) as session:
        yield session


@pytest.fixture(scope="module", autouse=True)
def _a_module_finds_no_names() -> Iterator[None]:
    """What a module registered in the shared session goes with it.

    Modules run in any order, and the built-in views have one name in every catalog: those of an
    earlier module would stand in the way of the next one's first start as somebody else's.
    """
    yield
    pyspark = sys.modules.get("pyspark.sql")
    session = None if pyspark is None else pyspark.SparkSession.getActiveSession()
    if session is None:
        return
    for row in session.sql("SHOW DATABASES").collect():
        if row["namespace"] != "default":
            session.sql(f"DROP DATABASE `{row['namespace']}` CASCADE")


@pytest.fixture(autouse=True)
def _nothing_temporary_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of the shared session leaves no temporary view there: every listing would show it."""
    yield
    session = request.node.funcargs.get("spark")
    if session is None:
        return
    rows = session.sql("SHOW TABLES IN default").collect()
    left = [row["tableName"] for row in rows if row["isTemporary"]]
    for name in left:
        session.catalog.dropTempView(name)
    assert not left, "temporary views left in the shared session"


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """An empty directory for shards."""
    directory = tmp_path / "warehouse"
    directory.mkdir()
    return str(directory)


@pytest.fixture
def schema_name() -> str:
    """A schema name that no other test of this run has."""
    return f"s{next(_numbers)}"


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The one S3-compatible server of a run; a test makes buckets of its own."""
    from tests.services.object_store import ObjectStore

    with ObjectStore(
        tmp_path_factory.mktemp("objects"), key=KEY_ID, secret=SECRET
    ) as store:
        yield store


@pytest.fixture(scope="session")
def _store_proxy(
    object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreProxy]:
    from tests.services.store_proxy import StoreProxy

    with StoreProxy(object_store, tmp_path_factory.mktemp("store-proxy")) as proxy:
        yield proxy


@pytest.fixture
def store_proxy(_store_proxy: StoreProxy) -> Iterator[StoreProxy]:
    """A proxy before the run's object store, without faults and without a memory."""
    _store_proxy.clear()
    yield _store_proxy
    _store_proxy.clear()


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    """The address of an empty bucket."""
    return object_store.bucket(f"bucket-{next(_numbers)}")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """The one real Kafka of a run, with the users ``app`` and ``other``, and ACLs.

    A test that stops or moves it, or changes a password, leaves it running; addresses and
    passwords are read from it when they are used, never kept.
    """
    from tests.services.kafka import KafkaCluster

    users = {"app": "first-of-app", "other": "first-of-other"}
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), users=users, acls=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A second cluster with the same users and passwords, and listeners for TLS besides.

    Started only when a test asks for it.
    """
    from tests.services.kafka import KafkaCluster

    users = {"app": "first-of-app", "other": "first-of-other"}
    directory = tmp_path_factory.mktemp("kafka-other")
    with KafkaCluster(directory, users=users, acls=True, tls=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The one real PostgreSQL of a run, with the user ``app`` and the database ``shop``.

    A test that stops or moves it, or changes a password, leaves it running.
    """
    from tests.services.postgres import PostgresServer

    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        server.create_user("app", "first-of-app")
        server.create_database("shop")
        yield server


@pytest.fixture
def upstream(postgres: PostgresServer) -> Iterator[Upstream]:
    """An empty database whose changes may be read; its slots go with the test."""
    from tests.services.upstream import Upstream

    made = Upstream(postgres)
    yield made
    made.close()


@pytest.fixture(scope="session")
def metastore(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[HiveMetastore]:
    """The one shared Hive metastore of a run, on a database of its PostgreSQL.

    A test that stops it leaves it running; it has schemas of its own.
    """
    from tests.services.metastore import HiveMetastore

    with HiveMetastore(tmp_path_factory.mktemp("metastore"), postgres) as server:
        yield server


@pytest.fixture
def topic_name() -> str:
    """A topic name that no other test of this run has; the topic is not made."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def table_name() -> str:
    """A table name that no other test of this run has; the table is not made."""
    return f"table_{next(_numbers)}"


@pytest.fixture
def user_name() -> str:
    """A user name that no other test of this run has; the user is not made."""
    return f"user_{next(_numbers)}"
