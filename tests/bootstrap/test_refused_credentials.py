"""Credentials that a store refuses, on one that looks whose they are, and what they may do.

The store of the other tests takes any secret; that of :mod:`tests.services.strict_store` compares
signatures, tokens and clocks, and reads policies. What a start makes of each answer of S3 is told
without it by ``tests/catalog/test_bad_store.py``.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.object_stores.settings import hadoop_settings
from catalog_migrate.engine.spark.session import hand_over
from catalog_migrate.errors import CatalogMigrateError, StoreFailure, UnsuitableSession
from catalog_migrate.hook import BootstrapReport, bootstrap
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.store.address import Storage
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from tests.services.strict_store import StrictStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.model.progress import Progress

pytestmark = [pytest.mark.soak, pytest.mark.services]

ONE = "CREATE TABLE {s}.t (id BIGINT, qty STRING);"
TWO = "CREATE TABLE {s}.t (id BIGINT, qty INT USING CAST(qty AS INT));"
UNKNOWN = "the store does not know these keys"
MAY_NOT = "have these credentials list the bucket, and get, put and delete"


@pytest.fixture(scope="module")
def strict_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictStore]:
    with StrictStore(tmp_path_factory.mktemp("strict-store")) as store:
        yield store


@pytest.fixture(autouse=True)
def _its_clock_is_right(strict_store: StrictStore) -> Iterator[None]:
    yield
    strict_store.set_clock(ahead=0.0)


# -- what is wrong with them -----------------------------------------------------------------------


def wrong_secret(store: StrictStore) -> dict[str, str]:
    return {**store.user(), "aws_secret_access_key": "of-somebody-else"}


def unknown_key(store: StrictStore) -> dict[str, str]:
    return {**store.user(), "aws_access_key_id": "AKIANOBODYHASIT"}


def removed_key(store: StrictStore) -> dict[str, str]:
    options = store.user()
    store.remove_key(options)
    return options


def expired_token(store: StrictStore) -> dict[str, str]:
    options = store.session(30)
    store.set_clock(ahead=60.0)
    return options


def token_of_another(store: StrictStore) -> dict[str, str]:
    return {
        **store.session(900), "aws_session_token": store.session(900)["aws_session_token"]
    }


def slow_clock(store: StrictStore) -> dict[str, str]:
    """This machine's clock is twenty minutes behind the store's."""
    options = store.user()
    store.set_clock(ahead=1200.0)
    return options


def may_not_list(store: StrictStore) -> dict[str, str]:
    return store.user("s3:ListBucket")


def may_not_read(store: StrictStore) -> dict[str, str]:
    return store.user("s3:GetObject")


def may_not_put(store: StrictStore) -> dict[str, str]:
    return store.user("s3:PutObject")


def may_not_delete(store: StrictStore) -> dict[str, str]:
    return store.user("s3:DeleteObject")


class Later(SystemClock):
    """Eight days from now: the retention of what was replaced is over."""

    def wall(self) -> float:
        return super().wall() + 8 * 86_400.0


Wrong = Callable[[StrictStore], dict[str, str]]

WRONG: Mapping[Wrong, str] = {
    wrong_secret: UNKNOWN,
    unknown_key: UNKNOWN,
    removed_key: UNKNOWN,
    token_of_another: UNKNOWN,
    expired_token: "the credentials have expired: get new ones",
    slow_clock: "set the clock of this machine",
    may_not_list: MAY_NOT,
    may_not_read: MAY_NOT,
    may_not_put: MAY_NOT,
    may_not_delete: MAY_NOT,
}
"""What is wrong, and how the remedy begins."""


def each_wrong(*others: Wrong) -> pytest.MarkDecorator:
    """All of them but some."""
    return pytest.mark.parametrize(("wrong", "remedy"), [
        pytest.param(*each, id=each[0].__name__)
        for each in WRONG.items() if each[0] not in others
    ])


class Shop:
    """A catalog and its rows in a bucket of the strict store; :attr:`right` may do everything."""

    def __init__(self, store: StrictStore, bucket: str, schema: str) -> None:
        self.store = store
        self.bucket = bucket
        self.schema = schema
        self.catalog = f"{bucket}/catalog"
        self.rows = f"{bucket.replace('s3:', 's3a:')}/rows"
        self.right = dict(store.options)
        self.engine = SimulatedEngine(persistent=True)

    def release(self, name: str, text: str) -> Release:
        return load_texts([("a.sql", text.replace("{s}", self.schema))], name=name)

    def objects(self) -> list[str]:
        """Keys of the whole bucket."""
        self.store.set_clock(ahead=0.0)
        return re.findall(
            "<Key>(.*?)</Key>", self.store.objects(self.bucket.removeprefix("s3://"))
        )


@pytest.fixture
def shop(strict_store: StrictStore, schema_name: str) -> Shop:
    return Shop(strict_store, strict_store.bucket(f"strict-{schema_name}"), schema_name)


def require_told(
    error: CatalogMigrateError, address: str, remedy: str, options: Mapping[str, str]
) -> None:
    """It names the address and what to do, and no credential in it or in what it came from."""
    assert address in error.message
    assert error.remedy is not None
    assert remedy in error.remedy, error
    everything = "".join(traceback.format_exception(error)) + repr(error.data)
    secrets = [value for name, value in options.items() if "key" in name or "token" in name]
    assert [one for one in secrets if one in everything] == []


class TestOurRequests:
    """delta-rs' and our own; no Spark is asked."""

    def start(self, shop: Shop, text: str, options: Mapping[str, str]) -> BootstrapReport:
        log = open_log(shop.catalog, Storage({**options, "max_retries": "1"}))
        name = {ONE: "1", TWO: "2"}[text]
        return migrate(
            shop.engine, log, shop.release(name, text), warehouse=shop.rows, clock=SystemClock(),
            holder="test",
        )

    @each_wrong()
    def test_at_the_first_start(self, shop: Shop, wrong: Wrong, remedy: str) -> None:
        """Not one object is left; with the right ones the same start goes through."""
        options = wrong(shop.store)
        with pytest.raises(StoreFailure) as found:
            self.start(shop, ONE, options)
        require_told(found.value, shop.bucket, remedy, options)
        assert shop.objects() == []
        assert self.start(shop, ONE, shop.right).outcome == "initialized"

    @each_wrong(may_not_delete)
    def test_on_a_catalog_that_is_there(self, shop: Shop, wrong: Wrong, remedy: str) -> None:
        """Release 1 stays in force, and nothing of it is touched."""
        assert self.start(shop, ONE, shop.right).outcome == "initialized"
        before = shop.objects()
        options = wrong(shop.store)
        with pytest.raises(CatalogMigrateError) as found:
            self.start(shop, TWO, options)
        require_told(found.value, shop.bucket, remedy, options)
        assert shop.objects() == before
        assert self.start(shop, TWO, shop.right).outcome == "migrated"

    def test_another_bucket(self, shop: Shop) -> None:
        """One that is not there is told by its name."""
        shop.catalog = "s3://nobody-made-this-one/catalog"
        with pytest.raises(StoreFailure) as found:
            self.start(shop, ONE, shop.right)
        require_told(found.value, shop.catalog, "make the bucket, or correct", shop.right)


@pytest.mark.spark
class TestSpark:
    """A session whose credentials are not those that the catalog is opened with."""

    @pytest.fixture(autouse=True)
    def _names(self, spark: SparkSession, shop: Shop) -> Iterator[None]:
        self.spark = spark
        yield
        self.spark.sql(f"DROP DATABASE IF EXISTS `{shop.schema}` CASCADE")

    def start(
        self, shop: Shop, text: str, *, ours: Mapping[str, str], sparks: Mapping[str, str],
        **given: Any,
    ) -> BootstrapReport:
        """A start of a process that was given these options."""
        self.log_in(sparks)
        return bootstrap(
            self.spark, release=shop.release({ONE: "1", TWO: "2"}[text], text),
            catalog=shop.catalog, warehouse=shop.rows,
            storage_options={**ours, "max_retries": "1"}, **given,
        )

    def log_in(self, options: Mapping[str, str]) -> None:
        """Have the session reach the store by these options, as one that starts now does."""
        hand_over(self.spark.sparkContext, {
            **hadoop_settings(Storage(options)), "fs.s3a.attempts.maximum": "1",
            "fs.s3a.retry.limit": "1",
        })
        jvm: Any = self.spark.sparkContext._jvm
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # each keeps those that it was opened with

    def with_a_row(self, shop: Shop) -> None:
        """Release 1 with a row."""
        assert self.start(shop, ONE, ours=shop.right, sparks=shop.right).outcome == "initialized"
        self.spark.sql(f"INSERT INTO {shop.schema}.t VALUES (1, '007')")

    def rows(self, shop: Shop) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.table(f"{shop.schema}.t").collect()]

    @each_wrong(slow_clock, may_not_delete)  # the clock is ours too; Spark deletes nothing
    def test_a_session_with_wrong_ones(self, shop: Shop, wrong: Wrong, remedy: str) -> None:
        """It is unsuitable, which is found before a catalog is made; a right one goes through."""
        options = wrong(shop.store)
        with pytest.raises(UnsuitableSession) as found:
            self.start(shop, ONE, ours=shop.right, sparks=options)
        if wrong is may_not_read:  # refused to a HEAD, whose answer has no body that says why
            remedy = "list the bucket, and get, put and delete"
        require_told(found.value, shop.rows, remedy, options)
        assert shop.objects() == []
        assert self.start(shop, ONE, ours=shop.right, sparks=shop.right).outcome == "initialized"

    @pytest.mark.parametrize(
        ("wrong", "remedy"),
        [
            (wrong_secret, "correct these keys, or have them list the bucket, and get"),
            (expired_token, "get new credentials if these have expired"),
            (may_not_put, MAY_NOT),
        ],
    )
    def test_a_session_whose_commits_were_raced(
        self, shop: Shop, wrong: Wrong, remedy: str
    ) -> None:
        """It is not looked at again: the copy fails, and the next start goes through."""
        self.with_a_row(shop)
        options = wrong(shop.store)
        with pytest.raises(CatalogMigrateError) as found:
            self.start(shop, TWO, ours=shop.right, sparks=options)
        require_told(found.value, f"{shop.rows}/", remedy, options)
        shop.store.set_clock(ahead=0.0)
        done = self.start(shop, TWO, ours=shop.right, sparks=shop.right)
        assert (done.outcome, done.rows_copied) == ("migrated", 1)
        assert self.rows(shop) == [(1, 7)]

    def test_they_expire_in_the_middle(self, shop: Shop) -> None:
        """A start whose token ends while it copies says so; one with a new token finishes it."""
        self.with_a_row(shop)
        options = shop.store.session(600)

        def expire(progress: Progress) -> None:
            if progress.phase == "copy rows":
                shop.store.set_clock(ahead=700.0)

        with pytest.raises(CatalogMigrateError) as found:
            self.start(shop, TWO, ours=options, sparks=options, on_progress=expire)
        require_told(found.value, shop.schema, "the credentials have expired", options)
        shop.store.set_clock(ahead=0.0)
        new = shop.store.session(3600)
        shop.store.set_clock(ahead=700.0)
        assert self.start(shop, TWO, ours=new, sparks=new).outcome in ("migrated", "resumed")
        assert self.rows(shop) == [(1, 7)]

    def test_nothing_can_be_removed_any_more(self, shop: Shop) -> None:
        """The right to delete was taken away: an upgrade goes through, and a start whose turn it is
        to remove what was replaced says what it may not."""
        self.with_a_row(shop)
        options = shop.store.user("s3:DeleteObject")
        assert self.start(shop, TWO, ours=options, sparks=options).outcome == "migrated"
        assert self.rows(shop) == [(1, 7)]
        before = shop.objects()
        with pytest.raises(CatalogMigrateError) as found:
            self.remove_what_was_replaced(shop, options)
        require_told(found.value, f"{shop.rows}/", MAY_NOT, options)
        assert {*before} <= {*shop.objects()}
        self.log_in(shop.right)
        self.remove_what_was_replaced(shop, shop.right)
        assert not {*before} <= {*shop.objects()}
        assert self.rows(shop) == [(1, 7)]

    def remove_what_was_replaced(self, shop: Shop, options: Mapping[str, str]) -> None:
        migrate(
            SparkEngine(self.spark), open_log(shop.catalog, Storage(options)),
            shop.release("2", TWO), warehouse=None, clock=Later(), holder="later",
        )
