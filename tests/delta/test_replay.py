"""Tables on S3: what they are is told by few requests, and as delta-rs tells it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType, Table

from catalog_migrate.delta.log import commit_name, find_log_problem
from catalog_migrate.delta.seal import fence, is_sealed, seal, seal_properties
from catalog_migrate.delta.table import (
    commit_transactions,
    delete_table,
    form_of,
    load_table,
    shard_version,
    table_size,
    view_table,
    write_rows,
)
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, StoreFailure
from catalog_migrate.model.objects import Column
from catalog_migrate.store.address import Storage, remember, storage_of
from catalog_migrate.store.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.services.store_proxy import StoreProxy

pytestmark = pytest.mark.services

APP = "catalog_migrate/x"
COLUMNS = (Column(name="id", type="BIGINT", nullable=False), Column(name="note", type="STRING"))


def _rows(*ids: int) -> Any:
    return Table.from_pydict({
        "id": Array(list(ids), DataType.int64()),
        "note": Array([str(each) for each in ids], DataType.string()),
    })


def _spec(path: str, columns: tuple[Column, ...] = COLUMNS, **more: Any) -> ShardSpec:
    return ShardSpec(path=path, columns=columns, **more)


@pytest.fixture
def table(bucket: str, store_proxy: StoreProxy) -> str:
    """An empty table; what is asked of it goes through the proxy."""
    remember(bucket, Storage(store_proxy.options))
    address = f"{bucket}/rows/s/t/1"
    Shards(None).create_shard(_spec(address))
    return address


@pytest.fixture
def asked(store_proxy: StoreProxy) -> Callable[[], list[str]]:
    """What was asked since the last call: LIST or the method of each request."""
    seen = 0

    def since() -> list[str]:
        nonlocal seen
        every = store_proxy.seen
        new, seen = every[seen:], len(every)
        return ["LIST" if "list-type" in each.path else each.method for each in new]

    return since


def test_a_shard_is_made_by_three_requests(
    table: str, asked: Callable[[], list[str]]
) -> None:
    """A look, and each file of the log once; a second time it is looked at, and left."""
    assert asked() == ["LIST", "PUT", "PUT"]
    Shards(None).create_shard(_spec(table))
    assert shard_version(table) == 0
    with pytest.raises(EngineFailure, match="another table is there"):
        Shards(None).create_shard(_spec(table, COLUMNS[:1]))


def test_questions_cost_a_listing(table: str, asked: Callable[[], list[str]]) -> None:
    """A commit is read once, whatever is asked, by whomever."""
    write_rows(load_table(table), _rows(1, 2))
    asked()
    assert table_size(view_table(table))[0] == 2
    assert asked() == ["LIST", "GET", "GET"]
    assert seal_properties(table)["delta.appendOnly"] is None
    assert not is_sealed(table)
    assert asked() == ["LIST", "LIST"]
    assert table_size(view_table(table, version=1))[0] == 2
    assert asked() == []
    write_rows(load_table(table), _rows(3))
    asked()
    assert table_size(view_table(table))[0] == 3
    assert asked() == ["LIST", "GET"]


def test_it_is_as_delta_rs_tells_it(table: str) -> None:
    """Form, rows, bytes and transactions, after appends, a deletion, properties, a checkpoint."""
    def same() -> None:
        ours, theirs = view_table(table), load_table(table)
        assert ours.version() == theirs.version()
        assert form_of(ours) == form_of(theirs)
        assert table_size(ours) == table_size(theirs)
        assert ours.transaction_version(APP) == theirs.transaction_version(APP)

    same()
    write_rows(load_table(table), _rows(1, 2))
    write_rows(load_table(table), _rows(3))
    same()
    load_table(table).delete("id = 3")
    commit_transactions(load_table(table), {APP: 7})
    same()
    load_table(table).alter.set_table_properties(
        {"delta.appendOnly": "true"}, raise_if_not_exists=False
    )
    same()
    load_table(table).create_checkpoint()
    write_rows(load_table(table), _rows(4))
    same()


def test_an_earlier_commit_that_was_overwritten(table: str) -> None:
    """It is read again, although later ones are known: an unsafe LogStore overwrites any."""
    write_rows(load_table(table), _rows(1, 2))
    write_rows(load_table(table), _rows(3))
    assert table_size(view_table(table))[0] == 3
    log = ObjectStore(table, storage_of(table))
    lines = log.read(commit_name(1)).splitlines(keepends=True)
    log.delete(commit_name(1))
    assert log.put_if_absent(commit_name(1), b"".join(x for x in lines if b'"add"' not in x))
    write_rows(load_table(table), _rows(4))
    assert table_size(view_table(table)) == table_size(load_table(table))
    assert table_size(view_table(table))[0] == 2


def test_a_store_that_does_not_answer(table: str, store_proxy: StoreProxy) -> None:
    """It is said as what it is: not that the table is gone, with the code of stores."""
    store_proxy.next("AccessDenied", times=-1)
    with pytest.raises(StoreFailure, match="403 Forbidden"):
        find_log_problem(table)
    with pytest.raises(StoreFailure), failing("read the table"):
        ObjectStore(table, storage_of(table)).read(commit_name(0))


def test_another_table_at_the_same_address(table: str) -> None:
    """It is not taken for the one that was there: by us removed, or by others."""
    write_rows(load_table(table), _rows(1, 2))
    assert table_size(view_table(table))[0] == 2
    delete_table(table)
    assert shard_version(table) is None
    with pytest.raises(EngineFailure, match="no table"):
        view_table(table)
    Shards(None).create_shard(_spec(table, COLUMNS[:1]))
    write_rows(load_table(table), _rows(5).select(["id"]))
    assert table_size(view_table(table))[0] == 1


class TestSeal:
    def test_it_goes_behind_what_came(self, table: str) -> None:
        """Rows that were appended, and rows that were deleted."""
        write_rows(load_table(table), _rows(1, 2))
        write_rows(load_table(table), _rows(3))
        load_table(table).delete("id = 3")
        assert seal(table, follows=1, app_id=APP, epoch=3) == 4
        assert is_sealed(table)
        assert view_table(table).transaction_version(APP) == 3
        theirs = load_table(table)
        assert form_of(theirs) == form_of(view_table(table))
        with pytest.raises(Exception, match="validation check failed"):
            write_rows(theirs, _rows(9))

    def test_an_answer_that_was_lost(self, table: str, store_proxy: StoreProxy) -> None:
        """It is one commit."""
        store_proxy.next("cut", conditional=True)
        assert seal(table, follows=0, app_id=APP, epoch=3) == 1
        assert store_proxy.pending == 0
        assert shard_version(table) == 1

    def test_it_loses_to_what_it_may_not_follow(self, table: str) -> None:
        """Another schema, and the fence of a later holder."""
        load_table(table).alter.set_table_properties({"a.b": "c"}, raise_if_not_exists=False)
        with pytest.raises(EngineFailure, match="metadata changed") as changed:
            seal(table, follows=0, app_id=APP, epoch=3)
        assert changed.value.condition == "SEAL_CONFLICT"
        fence(table, APP, 4)
        with pytest.raises(EngineFailure, match="above 3 has fenced it") as fenced:
            seal(table, follows=1, app_id=APP, epoch=3)
        assert fenced.value.condition == "SEAL_CONFLICT"
        assert not is_sealed(table)


class TestEvolve:
    def test_without_spark(self, table: str, asked: Callable[[], list[str]]) -> None:
        """Columns at the end, comments and properties are worked out on this machine."""
        write_rows(load_table(table), _rows(1))
        columns = (
            COLUMNS[0], Column(name="note", type="STRING", comment="said"),
            Column(name="more", type="INT"),
        )
        asked()
        Shards(None).evolve(table, columns, _spec(table, columns, comment="a table"))
        made = asked()
        assert made.count("PUT") == 1
        assert len(made) <= 7
        assert [(c.name, c.comment) for c in Shards(None).shard_columns(table)] == [
            ("id", None), ("note", "said"), ("more", None)
        ]
        assert load_table(table).metadata().description == "a table"
        assert table_size(view_table(table))[0] == 1

    def test_what_spark_is_needed_for(self, table: str) -> None:
        """It is asked for, and the table stays as it was."""
        columns = (COLUMNS[0], Column(name="new", type="INT"), COLUMNS[1])
        with pytest.raises(EngineFailure, match="needs a Spark session"):
            Shards(None).evolve(table, columns, _spec(table, columns))
        assert shard_version(table) == 0
