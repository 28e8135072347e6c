"""What a RESTORE of a table does not reach: rows that sinks have sent; on tables of delta-rs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.checkpoint.codecs import DeltaPosition
from catalog_migrate.streams.positions.restore import kept_by_sink, sent_again

Stays = Callable[..., tuple[int, tuple[str, ...]]]


@pytest.fixture
def stays(tmp_path: Path) -> Stays:
    """Asks a sink of a table with 8 rows in version 0, 3 in version 1 and 2 in version 2."""
    path = str(tmp_path / "t")
    for offsets in (range(8), range(3), range(20, 22)):
        data: Any = Table.from_pydict({
            "_topic": Array(["t"] * len(offsets), type=DataType.utf8()),
            "_partition": Array([0] * len(offsets), type=DataType.int32()),
            "_offset": Array(list(offsets), type=DataType.int64()),
        })
        write_deltalake(path, data, mode="append")
    table = str(DeltaTable(path).metadata().id)

    def ask(external: External, **position: Any) -> tuple[int, tuple[str, ...]]:
        at = DeltaPosition(table, **position)
        spec = QuerySpec("i1", ItemName("s", "k"), "sink", external, (), {}, path, "/nowhere")
        return kept_by_sink(
            spec, 0, at, sent_again(path, 0, at, {("t", 0): 8}, DeltaTables()), DeltaTables()
        )

    return ask


KAFKA = External(connector="KAFKA", options={"TOPIC": "out"})
POSTGRES = External(connector="POSTGRES", options={"TABLE": "public.orders"})


class TestStaysBelow:
    """Counted by what the sink has read, not by what it sends again."""

    def test_rows_that_are_not_read_again(self, stays: Stays) -> None:
        """Rows that an operation doubled go from the table, and nothing brings them again."""
        assert stays(KAFKA, version=2) == (3, (
            "3 rows that go from the table were sent before: they stay in topic out; "
            "0 of them are sent again",
        ))

    def test_rows_of_which_some_come_again(self, stays: Stays) -> None:
        """Both numbers are told, and where the rows are."""
        assert stays(POSTGRES, version=3) == (5, (
            "5 rows that go from the table were sent before: they stay in table public.orders; "
            "2 of them are sent again",
        ))

    def test_a_key(self, stays: Stays) -> None:
        """What a key does with them is said."""
        keyed = External(connector="POSTGRES", options={"TABLE": "o"}, key=("id", "day"))
        _, (said,) = stays(keyed, version=2)
        assert "stay in table o, where the last one of each key (id, day) counts;" in said

    def test_in_the_midst_of_a_version(self, stays: Stays) -> None:
        """How much of it was sent is not known: at most all of it."""
        _, (said,) = stays(KAFKA, version=2, index=0)
        assert said.startswith("at most 5 rows that go from the table were sent before")
        assert said.endswith("at most 2 of them are sent again")

    def test_nothing_sent(self, stays: Stays) -> None:
        """A sink that stands where the table goes back to has sent nothing that goes."""
        assert stays(KAFKA, version=1) == (0, ())
