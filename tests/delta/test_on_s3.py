"""A table on an object store is read as on a disk; its options are variables of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable

from catalog_migrate.delta.files import rows_added
from catalog_migrate.delta.log import (
    find_log_problem,
    has_log,
    read_change,
    refuse_damaged_log,
)
from catalog_migrate.delta.seal import is_sealed, seal
from catalog_migrate.delta.table import (
    delete_data,
    delete_table,
    form_of,
    open_table,
    set_properties_after,
    shard_size,
    tables_below,
    write_rows,
)

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore

pytestmark = pytest.mark.services


@pytest.fixture
def table(bucket: str, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two rows in two commits, in the warehouse ``<bucket>/w``."""
    for name, value in object_store.options.items():
        monkeypatch.setenv(name.upper(), value)
    address = f"{bucket}/w/s/t/1"
    rows = Table.from_pydict({"id": Array([1], DataType.int64())})
    write_rows(address, rows)
    write_rows(open_table(address), rows)
    return address


def test_the_log_is_read(table: str) -> None:
    """What a look at it tells, and what its commits did."""
    assert has_log(table)
    assert find_log_problem(table) is None
    assert find_log_problem(table + "0") == "its log is empty"
    refuse_damaged_log(table)
    assert read_change(table, 1).adds
    assert rows_added(table, 0, 2) == 2
    assert shard_size(table)[0] == 2


def test_properties_and_the_seal_are_commits_of_delta_rs(table: str) -> None:
    """They are put where no other is, there as well."""
    assert set_properties_after(table, {"a.b": "c"}, follows=1) == 2
    assert set_properties_after(table, {"a.b": "d"}, follows=1) is None
    assert form_of(open_table(table)).configuration["a.b"] == "c"
    assert seal(table, follows=2, app_id="catalog_migrate/x", epoch=1) == 3
    assert is_sealed(table)


def test_a_warehouse_is_walked_and_tables_are_removed(table: str) -> None:
    """First the data alone, then the log."""
    warehouse = table.removesuffix("/s/t/1")
    assert tables_below(warehouse) == [table]
    delete_data(table)
    assert DeltaTable.is_deltatable(table)
    assert tables_below(warehouse) == [table]
    delete_table(table)
    assert tables_below(warehouse) == []
    delete_table(table)
