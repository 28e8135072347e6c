"""The contract of a store, for a directory and for S3 alike."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from catalog_migrate.store import Store, is_seen, store_at
from catalog_migrate.store.address import Storage
from catalog_migrate.store.object_store import StoreFailure


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store with one object in it, ``folder/one``, put there by other means than ours."""
    if request.param == "local":
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder/one").write_bytes(b"first")
        return store_at(str(tmp_path))
    from deltalake._internal import DeltaFileSystemHandler

    address = f"{request.getfixturevalue('bucket')}/below"
    options = dict(request.getfixturevalue("object_store").options)
    out = DeltaFileSystemHandler(address, options).open_output_stream("folder/one")
    out.write(b"first")
    out.close()
    return store_at(address, Storage(options))


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
    @pytest.fixture(autouse=True)
    def takes_bytes(self, store: Store, request: pytest.FixtureRequest) -> None:
        """S3 has a conditional PUT, but delta-rs offers none of other bytes than its commits'."""
        if request.node.callspec.params["store"] == "s3":
            with pytest.raises(StoreFailure, match="takes only commits of delta-rs"):
                store.put_if_absent("folder/one", b"x")
            assert store.read("folder/one") == b"first"
            pytest.skip("no conditional put")

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

    def test_a_local_folder_is_not_made(self, store: Store) -> None:
        """A table whose directory was removed is not made again by a late commit."""
        with pytest.raises(FileNotFoundError):
            store.put_if_absent("other/two", b"second")
        assert not store.exists("other/")
        store.make_folder("other/deep", above=True)
        assert store.put_if_absent("other/deep/two", b"second")
