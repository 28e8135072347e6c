"""A catalog on S3 while the store or the network misbehaves, and a store that cannot keep one."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    NotACatalog,
    StoreFailure,
)
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.release.loader import load_texts
from catalog_migrate.store.address import Storage
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore
    from tests.services.store_proxy import StoreProxy

pytestmark = pytest.mark.services

ONE = "CREATE TABLE s.t (id BIGINT, qty STRING); CREATE VIEW s.v (id BIGINT) AS SELECT id FROM s.t;"
TWO = ONE.replace("qty STRING", "qty STRING, note STRING")
IMPATIENT = {"max_retries": "1", "retry_timeout": "2s"}


class Shop:
    """A catalog in a bucket that is reached through the proxy; the engine is simulated."""

    def __init__(self, proxy: StoreProxy, store: ObjectStore, bucket: str) -> None:
        self.proxy = proxy
        self.catalog = f"{bucket}/catalog"
        self.rows = f"{bucket}/rows"
        self._store = store
        self._bucket = bucket
        self.engine = SimulatedEngine(persistent=True)

    def start(self, text: str, **options: str) -> BootstrapReport:
        log = open_log(self.catalog, Storage({**self.proxy.options, **options}))
        name = {ONE: "1", TWO: "2"}[text]
        return migrate(
            self.engine, log, load_texts([("a.sql", text)], name=name), warehouse=self.rows,
            clock=SystemClock(), holder="test",
        )

    def commits(self) -> list[str]:
        """What each commit of the log was for, by a client that nothing is done to."""
        log = open_log(self.catalog, Storage(self._store.options))
        found = list(log.commits())
        assert max(Counter(each.commit_id for each in found).values()) == 1
        return [each.metadata["kind"] for each in found]

    def objects(self) -> str:
        return self._store.objects(self._bucket.removeprefix("s3://"))


@pytest.fixture
def shop(store_proxy: StoreProxy, object_store: ObjectStore, bucket: str) -> Shop:
    return Shop(store_proxy, object_store, bucket)


def _told(error: CatalogMigrateError) -> str:
    return f"{error}{error.__cause__!r}{error.__context__!r}"


class TestFaults:
    def test_answers_that_are_lost(self, shop: Shop) -> None:
        """Each commit is carried out and its answer cut off, in two releases: each is there once,
        and none is made that an undisturbed run does not make."""
        assert shop.start(ONE).outcome == "initialized"
        undisturbed = len(shop.commits())
        shop.proxy.next("cut", conditional=True, times=-1, each=True)
        assert shop.start(TWO).outcome == "migrated"
        cut = Counter(each.path for each in shop.proxy.seen if each.is_conditional_put)
        assert min(cut.values()) == 1 < max(cut.values())
        assert len(shop.commits()) > undisturbed
        state = read_state(open_log(shop.catalog, Storage(shop.proxy.options)))
        assert state.release_in_force("release").name == "2"  # type: ignore[union-attr]

    def test_a_store_that_is_slow(self, shop: Shop) -> None:
        """It asks to slow down, fails, and takes its time: the start waits, and is as any other."""
        shop.proxy.next("SlowDown", method="PUT", path="_delta_log", times=3)
        shop.proxy.next("InternalError", method="GET", path="list-type", times=2)
        shop.proxy.next("delay", conditional=True)
        assert shop.start(ONE).outcome == "initialized"
        assert shop.proxy.pending == 0
        assert shop.start(ONE).outcome == "unchanged"

    def test_it_lasts(self, shop: Shop) -> None:
        """A typed error says where and what to do; the next start goes on, and nothing is lost."""
        assert shop.start(ONE).outcome == "initialized"
        before = shop.commits()
        shop.proxy.next("SlowDown", times=-1)
        with pytest.raises(StoreFailure, match="try again later") as found:
            shop.start(TWO, **IMPATIENT)
        assert shop.catalog in found.value.message
        assert "MARKED" not in _told(found.value)
        shop.proxy.clear()
        assert shop.commits() == before
        shop.proxy.next("SlowDown", method="PUT", times=-1)
        with pytest.raises(CatalogMigrateError) as refused:
            shop.start(TWO, **IMPATIENT)
        assert shop.catalog in refused.value.message
        assert "MARKED" not in _told(refused.value)
        shop.proxy.clear()
        assert shop.start(TWO).outcome == "migrated"
        assert shop.commits()[-len(before):] == before


REFUSED = {
    "InvalidAccessKeyId": "the store does not know these keys",
    "SignatureDoesNotMatch": "the store does not know these keys",
    "InvalidToken": "the store does not know these keys",
    "ExpiredToken": "the credentials have expired",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "AuthorizationHeaderMalformed": "give the bucket's own region",
    "AccessDenied": "have these credentials list the bucket, and get, put and delete",
}


class TestBadInput:
    @pytest.mark.parametrize("code", sorted(REFUSED))
    def test_what_the_store_refuses(self, shop: Shop, code: str) -> None:
        """It names the address, and what to correct."""
        shop.proxy.next(code, times=-1)
        with pytest.raises(StoreFailure, match=re.escape(REFUSED[code])) as found:
            shop.start(ONE, **IMPATIENT)
        assert shop.catalog in found.value.message
        assert "MARKED" not in _told(found.value)
        assert "<Key>" not in shop.objects()

    @pytest.mark.parametrize(
        ("fault", "method", "told"),
        [
            ("AccessDenied", "POST", "does not let these credentials delete what is in it"),
            ("AccessDenied", "PUT", "does not let these credentials put where nothing is"),
            ("NotImplemented", "PUT", "does not let these credentials put where nothing is"),
            ("unconditional", "PUT", "ignores If-None-Match"),
        ],
    )
    def test_a_store_that_cannot_keep_commits(
        self, shop: Shop, fault: str, method: str, told: str
    ) -> None:
        """Found before a catalog is made; not one object is left."""
        shop.proxy.next(fault, method=method, times=-1)
        with pytest.raises(StoreFailure, match=re.escape(told)) as found:
            shop.start(ONE, **IMPATIENT)
        assert shop.catalog.rpartition("/")[0] in found.value.message
        assert "MARKED" not in _told(found.value)
        assert "<Key>" not in shop.objects()

    def test_a_store_that_lets_nobody_read(self, shop: Shop) -> None:
        """Found before a catalog is made, and what was put for it is removed."""
        shop.proxy.next("AccessDenied", method="GET", path="probe-", times=-1)
        with pytest.raises(StoreFailure, match="let these credentials read what is in it"):
            shop.start(ONE, **IMPATIENT)
        assert "<Key>" not in shop.objects()

    def test_a_right_to_write_that_was_taken_away(self, shop: Shop) -> None:
        """A commit that was refused says what these credentials lack, and is made when they may."""
        assert shop.start(ONE).outcome == "initialized"
        shop.proxy.next("AccessDenied", method="PUT", times=-1)
        with pytest.raises(CatalogWriteRefused, match=re.escape(REFUSED["AccessDenied"])) as found:
            shop.start(TWO, **IMPATIENT)
        assert shop.catalog in found.value.message
        shop.proxy.clear()
        assert shop.start(TWO).outcome == "migrated"

    def test_a_prefix_that_holds_something_else(
        self, shop: Shop, object_store: ObjectStore
    ) -> None:
        """A catalog is not made among files of others."""
        from catalog_migrate.store import store_at

        store_at(shop.catalog, Storage(object_store.options)).put_if_absent("mine.txt", b"1")
        before = shop.objects()
        with pytest.raises(NotACatalog, match=re.escape("the prefix holds 'mine.txt' and no log")):
            shop.start(ONE)
        assert shop.objects() == before
