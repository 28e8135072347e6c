"""DDL upstream under running sources: a mirror is its source, or is held and says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.errors import ValidationFailed
from tests.streams.running.test_postgres_source import Bank

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.soak]


class Watched(Bank):
    """A bank whose owner alters tables and publication; ``m`` mirrors them, ``c`` keeps changes."""

    def held(self, source: str) -> HoldRecord | None:
        return next((
            hold for hold in self.catalog.state().holds.values()
            if hold.item_id == self.id(source) and hold.holder == "upstream"
        ), None)

    def await_hold(self, source: str, cause: str) -> HoldRecord:
        """The hold that a source gets, for this cause."""
        self.until(lambda: self.held(source) is not None, f"a hold of {source}")
        hold = self.held(source)
        assert hold is not None
        assert hold.code == "CM0781"
        assert cause in hold.reason
        assert hold.since
        return hold

    def carry_out(self, hold: HoldRecord) -> None:
        """Run the statements that a hold names."""
        for statement in hold.statements:
            self.run(statement, confirm=lambda _: True)

    def await_mirror(self) -> None:
        self.until(self.is_mirrored, "the mirror")
        assert self.held("m") is None

    def changes(self, operation: str) -> list[Any]:
        """The ids of the changes of a kind, of the transfers."""
        rows = self.rows("transfers_c", "id, _operation")
        return sorted(row[0] for row in rows if row[1] == operation)


@pytest.fixture
def bank(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, kafka: KafkaCluster,
    publisher: PostgresServer,
) -> Iterator[Watched]:
    """A bank with both sources, and a runtime with an open gate."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        directory: Path = tmp_path_factory.mktemp("watched")
        made = Watched(directory, spark, kafka, publisher, monkeypatch)
        made.begin()
        made.lay_out()
        for name, format_ in (("c", "CHANGES"), ("m", "MIRROR")):
            made.source_of(name, format_, f"_{name}", "WITH (TRIGGER '300 milliseconds')")
        made.start(unsafe=True)
        yield made
        made.stop()
        publisher.execute("ALTER ROLE cdc NOBYPASSRLS")
        for name in "cm":
            made.run(f"DROP SOURCE IF EXISTS {made.q(name)}")


def what_loses_nothing_goes_on(bank: Watched) -> None:
    """Grants, indexes, statistics, tables beside them, a key of the same columns, a name and back:
    no hold, no restart, and every change arrives."""
    bank.await_running(2)
    bank.transfer(1, 2, "1.25")
    bank.await_mirror()
    runs = bank.run_ids()
    bank.upstream(
        f"GRANT SELECT ON {bank.accounts} TO PUBLIC", f"CREATE INDEX ON {bank.transfers} (paid)",
        f"ANALYZE {bank.accounts}", f"CREATE TABLE {bank.name}_beside (id int PRIMARY KEY)",
        f"ALTER PUBLICATION {bank.name} ADD TABLE {bank.name}_beside",
    )
    bank.postgres.execute(f"VACUUM FULL {bank.accounts}", user="app", database="shop")
    bank.upstream(
        f"ALTER TABLE {bank.transfers} RENAME TO {bank.name}_x",
        f"INSERT INTO {bank.name}_x (paid, got, amount) VALUES (5, 6, 1)",
        f"ALTER TABLE {bank.name}_x RENAME TO {bank.transfers}",
    )
    bank.transfer(3, 4, "2")
    bank.await_mirror()
    bank.until(lambda: len(bank.changes("insert")) == 3, "every change")
    assert not bank.catalog.state().holds
    assert bank.run_ids() == runs


def changes_that_were_not_published(bank: Watched) -> None:
    """Dropped from the publication and added again between two looks: both are held. The statement
    of the mirror's hold makes it its source again; the other goes on without what is missing."""
    bank.upstream(
        f"ALTER PUBLICATION {bank.name} DROP TABLE {bank.transfers}",
        f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (7, 8, 1)",
        f"ALTER PUBLICATION {bank.name} ADD TABLE {bank.transfers}",
    )
    for name in "cm":
        hold = bank.await_hold(name, f"dropped from publication {bank.name} and added again")
        assert hold.place["table"] == f"public.{bank.transfers}"
        assert "UNSAFE RESET SPLITS" in hold.statements[0]
    assert not bank.is_mirrored()
    bank.carry_out(bank.await_hold("m", "added again"))
    bank.run(f"RESUME SOURCE {bank.q('c')}")
    bank.upstream(f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (9, 9, 1)")
    bank.await_mirror()
    bank.until(lambda: len(bank.changes("insert")) == 4, "the change of after")


def a_key_is_dropped(bank: Watched) -> None:
    """Under REPLICA IDENTITY FULL two rows may have one key: the mirror is held, also when it is
    resumed as it is; changes go on."""
    pkey = f"{bank.accounts}_pkey"
    bank.upstream(
        f"ALTER TABLE {bank.accounts} REPLICA IDENTITY FULL",
        f"ALTER TABLE {bank.accounts} DROP CONSTRAINT {pkey}",
        f"INSERT INTO {bank.accounts} VALUES (1, 'twin', 0)",
    )
    hold = bank.await_hold("m", "its key (id) is not unique any more")
    assert "ADD PRIMARY KEY" in hold.remedy
    bank.run(f"RESUME SOURCE {bank.q('m')}")
    bank.await_hold("m", "has no key, by which MIRROR keeps rows")
    bank.upstream(
        f"DELETE FROM {bank.accounts} WHERE owner = 'twin'",
        f"ALTER TABLE {bank.accounts} ADD CONSTRAINT {pkey} PRIMARY KEY (id)",
        f"ALTER TABLE {bank.accounts} REPLICA IDENTITY DEFAULT",
    )
    bank.run(f"ALTER SOURCE {bank.q('m')} UNSAFE RESET SPLITS REASON 'key'",
             confirm=lambda _: True)
    bank.await_mirror()
    assert bank.held("c") is None


def a_table_is_created_again(bank: Watched) -> None:
    """Another table of the same name: the mirror says so, and is that one after a snapshot."""
    bank.upstream(
        f"CREATE TABLE {bank.name}_new (LIKE {bank.accounts} INCLUDING ALL)",
        f"INSERT INTO {bank.name}_new VALUES (1, 'new', 5)",
        f"DROP TABLE {bank.accounts}",
        f"ALTER TABLE {bank.name}_new RENAME TO {bank.accounts}",
        f"GRANT SELECT ON {bank.accounts} TO cdc",
        f"ALTER PUBLICATION {bank.name} ADD TABLE {bank.accounts}",
        f"INSERT INTO {bank.accounts} VALUES (9, 'new', 5)",
    )
    bank.carry_out(bank.await_hold("m", "another table than before: it was dropped"))
    bank.await_mirror()


def policies_apply(bank: Watched) -> None:
    """They hold no stream. No source is created under them, and no snapshot is taken of some rows:
    that is held until the role sees all."""
    bank.upstream(
        f"ALTER TABLE {bank.accounts} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY p ON {bank.accounts} FOR SELECT TO cdc USING (id < 3)",
        f"INSERT INTO {bank.accounts} VALUES (77, 'hidden', 1)",
    )
    bank.await_mirror()
    with pytest.raises(ValidationFailed) as caught:
        bank.source_of("r", "MIRROR", "_r")
    assert "ALTER ROLE cdc BYPASSRLS" in str(caught.value.data)
    bank.run(f"ALTER SOURCE {bank.q('m')} UNSAFE RESET SPLITS REASON 'policies'",
             confirm=lambda _: True)
    bank.until(lambda: bank.held("m") is not None, "a hold")
    hold = bank.held("m")
    assert hold is not None
    assert (hold.code, "BYPASSRLS" in hold.remedy) == ("CM0782", True)
    bank.postgres.execute("ALTER ROLE cdc BYPASSRLS")
    bank.carry_out(hold)
    bank.await_mirror()


CHAPTERS = (
    what_loses_nothing_goes_on, changes_that_were_not_published, a_key_is_dropped,
    a_table_is_created_again, policies_apply,
)


def test_ddl_upstream(bank: Watched) -> None:
    """From what loses nothing to what is held, and from each hold to an equal mirror again."""
    for chapter in CHAPTERS:
        chapter(bank)
