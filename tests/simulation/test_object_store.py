"""The simulated object store, and what the product's client makes of its answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from obstore.exceptions import GenericError

from catalog_migrate.errors import StoreFailure
from catalog_migrate.store.object_store import ObjectStore
from tests.simulation.crashes import SimulatedCrash
from tests.simulation.object_store import (
    ADDRESS,
    Bucket,
    Conflict,
    InFlight,
    ReplyLost,
    SlowDown,
)


def once(call: str, said: Callable[[], BaseException]) -> Callable[[str], None]:
    """Says something of the first request that begins so."""
    left = [said]

    def heard(request: str) -> None:
        if left and request.startswith(f"store: {call}"):
            raise left.pop()()

    return heard


@pytest.mark.parametrize("again", [True, False])
def test_a_put_whose_reply_was_lost_was_made(again: bool) -> None:
    """Sent again or given up: the bytes are there, and one's own."""
    for replaces in (False, True):
        bucket = Bucket(once("put.done", lambda: ReplyLost(again=again)))
        store = bucket.store(ADDRESS)
        if replaces:
            bucket.objects["one"] = b"before"
            assert store.put_if_match("one", b"mine", store.read_tagged("one")[1])
        else:
            assert store.put_if_absent("one", b"mine")
        assert store.read("one") == b"mine"


def test_a_put_that_another_replaced_before_its_reply_came() -> None:
    """Nobody can tell any more whose it was: it counts as another's."""

    def heard(request: str) -> None:
        if request.startswith("store: put.done") and bucket.objects["one"] == b"mine":
            bucket.objects["one"] = b"theirs"
            raise ReplyLost(again=True)

    bucket = Bucket(heard)
    assert not bucket.store(ADDRESS).put_if_absent("one", b"mine")


@pytest.mark.parametrize("list_all", [
    lambda store: [*store.names("d")], lambda store: [*store.names("d", "a")],
    lambda store: [name.rpartition("/")[2] for name in store.tree("d")],
    lambda store: ["b"] * store.exists("d/"),
])
def test_a_listing_that_breaks_off_is_asked_for_again(
    list_all: Callable[[ObjectStore], list[str]]
) -> None:
    """Once, as no client of S3 does by itself; another failure is told at once."""
    broken = GenericError("Error getting list response body: request or response body error")
    bucket = Bucket(once("list", lambda: broken))
    bucket.objects["d/b"] = b"1"
    assert list_all(bucket.store(ADDRESS)) == ["b"]
    bucket.heard = once("list", SlowDown)
    with pytest.raises(StoreFailure):
        list_all(bucket.store(ADDRESS))


def test_a_conflict_that_comes_to_nothing() -> None:
    """409 is no word on what is there: the request is sent again, as S3 asks for."""
    bucket = Bucket(once("put", Conflict))
    assert bucket.store(ADDRESS).put_if_absent("one", b"mine")
    assert bucket.objects == {"one": b"mine"}


def test_conflicts_without_end() -> None:
    """They are an error, which says that nothing was put, and no other's object."""

    def heard(request: str) -> None:
        if request.startswith("store: put"):
            raise Conflict

    bucket = Bucket(heard)
    bucket.objects["two"] = b"before"
    store = bucket.store(ADDRESS)
    tag = store.read_tagged("two")[1]
    with pytest.raises(StoreFailure, match="10 times for requests that came to nothing"):
        store.put_if_absent("one", b"mine")
    with pytest.raises(StoreFailure, match="10 times for requests that came to nothing"):
        store.put_if_match("two", b"mine", tag)
    assert bucket.objects == {"two": b"before"}


def test_a_store_that_is_throttling() -> None:
    """The error says what to do; nothing was carried out."""
    bucket = Bucket(once("put", SlowDown))
    with pytest.raises(StoreFailure, match="SlowDown") as found:
        bucket.store(ADDRESS).put_if_absent("one", b"mine")
    assert "try again later" in (found.value.remedy or "")
    assert not bucket.objects


def test_a_request_that_its_process_does_not_live_to_see() -> None:
    """It is carried out in its time, on the condition that it was sent with."""
    bucket = Bucket(once("put", lambda: InFlight(5.0)))
    with pytest.raises(SimulatedCrash):
        bucket.store(ADDRESS).put_if_absent("one", b"mine")
    assert bucket.arrive(4.0) == []
    assert bucket.store(ADDRESS).put_if_absent("one", b"theirs")
    assert bucket.arrive(5.0) == ["put one"]
    assert bucket.objects == {"one": b"theirs"}


def test_a_listing_sees_what_comes_between_its_pages() -> None:
    """Behind the page that it has; what came before that is not seen."""

    def heard(request: str) -> None:
        asked.append(request)
        if len(asked) == 2:
            bucket.objects |= {"a": b"-", "z": b"-"}

    asked: list[str] = []
    bucket = Bucket(heard, page=2)
    bucket.objects |= dict.fromkeys("bcde", b"-")
    assert sorted(bucket.store(ADDRESS).tree()) == list("bcdez")
    assert asked == ["store: list "] * 3
