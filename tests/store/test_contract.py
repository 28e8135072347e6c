"""The contract of a store, for a directory, for S3 and for the simulated object store alike."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.errors import PrerequisiteMissing, StoreFailure
from catalog_migrate.store import RememberedStore, Store, is_seen, store_at
from catalog_migrate.store.address import Storage, remember
from tests.simulation.object_store import ADDRESS, Bucket

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore


@pytest.fixture(params=[
    "local", "remembered", "simulated", pytest.param("s3", marks=pytest.mark.services)
])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store with one object in it, ``folder/one``, put there by other means than ours."""
    if request.param == "simulated":
        bucket = Bucket(page=3)
        bucket.objects["below/folder/one"] = b"first"
        return bucket.store(f"{ADDRESS}/below")
    if request.param != "s3":
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder/one").write_bytes(b"first")
        on_disk = store_at(str(tmp_path))
        return on_disk if request.param == "local" else RememberedStore(on_disk)
    from deltalake._internal import DeltaFileSystemHandler

    address = f"{request.getfixturevalue('bucket')}/below"
    options = dict(request.getfixturevalue("object_store").options)
    out = DeltaFileSystemHandler(address, options).open_output_stream("folder/one")
    out.write(b"first")
    out.close()
    return store_at(address, Storage(options))


class TestTree:
    def test_many_at_once(self, store: Store) -> None:
        """Put with their folders, listed by whole names, read; more than are asked for at once."""
        contents = {f"tree/{n % 3}/{n}": b"%d" % n for n in range(40)}
        store.put_all({**contents, "top": b"t"})
        assert set(store.tree()) == {*contents, "top", "folder/one"}
        assert set(store.tree("tree")) == set(contents)
        assert set(store.tree("tree/1/")) == {name for name in contents if name[5] == "1"}
        assert list(store.tree("other")) == []
        assert store.read_all(contents) == contents
        store.put_all({"top": b"again"})
        assert store.read("top") == b"again"
        with pytest.raises(FileNotFoundError):
            store.read_all(["top", "other"])

    def test_a_folder_may_be_there(self, store: Store) -> None:
        """With those above it, and durably; an object store has none."""
        for _ in range(2):
            store.make_folder("a/b", above=True, durable=True)
        assert store.put_if_absent("a/b/c", b"")
        store.delete("a", durable=True)
        assert not store.exists("a/b/c")

    def test_the_marks_of_hadoop_are_no_names(
        self, bucket: str, object_store: ObjectStore
    ) -> None:
        """An object without bytes, whose name ends with a slash, marks a folder."""
        store = store_at(f"{bucket}/below", Storage(object_store.options))
        store.put_all({"offsets/0": b"v1"})
        for folder in ("", "/offsets", "/commits"):
            object_store.mark_folder(f"{store.address}{folder}")
        assert set(store.tree()) == {"offsets/0"}
        assert sorted(store.names()) == ["commits", "offsets"]
        assert [*store.names("offsets"), *store.names("commits")] == ["0"]


class TestReading:
    def test_what_is_there(self, store: Store) -> None:
        """All bytes, their number, and the names in a folder."""
        assert store.read("folder/one") == b"first"
        assert store.size("folder/one") == 5
        assert store.exists("folder/one")
        assert store.exists("folder/")
        assert list(store.names("folder")) == ["one"]
        assert list(store.names()) == ["folder"]
        assert store.place("folder/one") == f"{store.address}/folder/one"

    def test_what_is_not_there(self, store: Store) -> None:
        """FileNotFoundError for bytes, and no more than a no for a question."""
        for name in ("two", "folder/two"):
            with pytest.raises(FileNotFoundError):
                store.read(name)
            with pytest.raises(FileNotFoundError):
                store.size(name)
            assert not store.exists(name)
        assert not store.exists("folder/one/")
        assert not store.exists("other/")


def test_what_may_not_be_looked_at_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog behind a directory of another user is not made anew."""
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("catalog_migrate.store.local.os.stat", refused)
    with pytest.raises(PermissionError):
        store_at(str(tmp_path)).exists("c")
    assert not is_seen(str(tmp_path))
    monkeypatch.undo()
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert not store_at(str(tmp_path)).exists("round")


def test_what_was_read_is_read_once(tmp_path: Path) -> None:
    """Up to the next change through the same store; that nothing was there is remembered too."""
    known, other = RememberedStore(store_at(str(tmp_path))), store_at(str(tmp_path))
    other.put_if_absent("one", b"1")
    assert (known.read("one"), known.names()) == (b"1", ("one",))
    with pytest.raises(FileNotFoundError):
        known.read("two")
    other.put_if_match("one", b"2", other.read_tagged("one")[1])
    other.put_if_absent("two", b"2")
    assert (known.read("one"), known.names()) == (b"1", ("one",))
    with pytest.raises(FileNotFoundError):
        known.read("two")
    assert not known.put_if_match("one", b"3", known.read_tagged("one")[1])
    assert (known.read("one"), known.read("two"), len(list(known.names()))) == (b"2", b"2", 2)


class TestDeleting:
    def test_an_object(self, store: Store) -> None:
        """It is gone; again is no error."""
        store.delete("folder/one")
        assert not store.exists("folder/one")
        store.delete("folder/one")

    def test_everything(self, store: Store) -> None:
        """A folder goes with what is in it."""
        store.delete("folder")
        assert not store.exists("folder/")
        store.delete()
        assert not store.exists("folder/one")


class TestPutting:
    @pytest.mark.parametrize("durable", [True, False])
    def test_where_nothing_is(self, store: Store, durable: bool) -> None:
        """The bytes are there whole, and nothing else is."""
        assert store.put_if_absent("folder/two", b"second", durable=durable)
        assert store.read("folder/two") == b"second"
        assert sorted(store.names("folder")) == ["one", "two"]

    def test_where_something_is(self, store: Store) -> None:
        """What is there stays as it is."""
        assert not store.put_if_absent("folder/one", b"second")
        assert store.read("folder/one") == b"first"
        assert list(store.names("folder")) == ["one"]

    def test_of_many_at_once_one_wins(self, store: Store) -> None:
        """Whoever was told so has its bytes there."""
        won: list[bytes] = []
        line = threading.Barrier(8)

        def put(data: bytes) -> None:
            line.wait()
            if store.put_if_absent("folder/two", data):
                won.append(data)

        threads = [threading.Thread(target=put, args=(b"%d" % n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [store.read("folder/two")]

    def test_a_local_folder_is_not_made(self, tmp_path: Path) -> None:
        """A table whose directory was removed is not made again by a late commit."""
        store = store_at(str(tmp_path))
        with pytest.raises(FileNotFoundError):
            store.put_if_absent("other/two", b"second")
        assert not store.exists("other/")
        store.make_folder("other/deep", above=True)
        assert store.put_if_absent("other/deep/two", b"second")


class TestReplacing:
    @pytest.mark.parametrize("durable", [True, False])
    def test_what_was_read(self, store: Store, durable: bool) -> None:
        """The bytes are there whole, and nothing else is."""
        data, tag = store.read_tagged("folder/one")
        assert data == b"first"
        assert store.put_if_match("folder/one", b"second", tag, durable=durable)
        assert store.read("folder/one") == b"second"
        assert list(store.names("folder")) == ["one"]

    def test_what_another_has_replaced(self, store: Store) -> None:
        """What is there stays; what is not there is not made."""
        _, tag = store.read_tagged("folder/one")
        assert store.put_if_match("folder/one", b"second", tag)
        assert not store.put_if_match("folder/one", b"third", tag)
        assert store.read("folder/one") == b"second"
        store.delete("folder/one")
        assert not store.put_if_match("folder/one", b"third", tag)
        assert not store.exists("folder/one")
        with pytest.raises(FileNotFoundError):
            store.read_tagged("folder/one")

    def test_of_many_at_once_one_wins(self, store: Store) -> None:
        """Whoever was told so has its bytes there."""
        _, tag = store.read_tagged("folder/one")
        won: list[bytes] = []
        line = threading.Barrier(8)

        def put(data: bytes) -> None:
            line.wait()
            if store.put_if_match("folder/one", data, tag):
                won.append(data)

        threads = [threading.Thread(target=put, args=(b"%d" % n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [store.read("folder/one")]


@pytest.mark.services
class TestObjectStore:
    def test_an_answer_that_was_lost(self, bucket: str, object_store: ObjectStore) -> None:
        """Bytes that are one's own are there by the request whose answer did not come."""
        store = store_at(bucket, Storage(object_store.options))
        assert store.put_if_absent("one", b"mine")
        _, tag = store.read_tagged("one")
        assert store.put_if_absent("one", b"mine")
        assert store.put_if_match("one", b"again", tag)
        assert store.put_if_match("one", b"again", tag)
        assert not store.put_if_absent("one", b"theirs")

    def test_s3a_is_the_same_store(self, bucket: str, object_store: ObjectStore) -> None:
        """Options that were given for one are found for both, and delta-rs' own passed over."""
        given = {**object_store.options, "aws_s3_locking_provider": "x", "AWS_TIMEOUT": "30 s"}
        remember(f"{bucket}/catalog", Storage(given))
        assert store_at(bucket).put_if_absent("a/b=2e/one", b"x")
        assert store_at(bucket.replace("s3:", "s3a:")).read("a/b=2e/one") == b"x"
        assert list(store_at(f"{bucket}/a/").names()) == ["b=2e"]

    def test_nothing_is_moved(self, bucket: str, object_store: ObjectStore) -> None:
        """A rename would be a copy of each object."""
        with pytest.raises(StoreFailure, match="moves nothing at once"):
            store_at(bucket, Storage(object_store.options)).move("a", "b")

    def test_a_store_that_says_no(self, bucket: str, object_store: ObjectStore) -> None:
        """The error names the address, and no option."""
        store = store_at("s3://no-such-bucket/w", Storage(object_store.options))
        for ask in (
            lambda: list(store.names()), lambda: store.read("x"), lambda: store.exists("x/"),
            lambda: store.put_if_absent("x", b"y"), lambda: store.put_if_match("x", b"y", "z"),
        ):
            with pytest.raises(StoreFailure, match="s3://no-such-bucket/w") as found:
                ask()
            for value in ("MARKED-KEY-ID", "MARKED-SECRET"):
                assert value not in f"{found.value}{found.value.__cause__!r}{store!r}"


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is needed until something is asked of an object store."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    store = store_at("s3://bucket/w")
    with pytest.raises(PrerequisiteMissing, match="obstore") as found:
        store.exists("x")
    assert found.value.remedy == "pip install 'catalog_migrate[s3]'"
