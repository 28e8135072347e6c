"""Sources on PostgreSQL: what their statement puts into the catalog, and what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.api.status import status_of
from catalog_migrate.catalog import commits
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import ColumnIds, StreamRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.connectors.postgres.types import Column, DiscoveredColumn, DiscoveredTable
from catalog_migrate.errors import (
    ConnectionFailed,
    RefusedStatement,
    SlotInUse,
    TableChanged,
    ValidationFailed,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import Column as OurColumn
from catalog_migrate.model.objects import UpstreamColumn
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.printer import render
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.query_spec import slot_of, spec_of
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_LOADED,
    adopt_upstream_columns,
    apply_discovery,
    hold_of,
    is_taken_over,
)
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import with_upstream
from catalog_migrate.streams.runtime.slots import drop_slots, slots_to_drop
from catalog_migrate.streams.upstreams.databases import ServerDatabases
from catalog_migrate.streams.upstreams.table_snapshots import tables_to_copy
from tests.decisions import Changes, commit

Now = Callable[[], State]


def upstream(name: str, *columns: tuple[str, str | None], key: tuple[str, ...] = ("id",)) -> Any:
    """A table as the server tells of it."""
    return DiscoveredTable(
        "public", name,
        tuple(DiscoveredColumn(each, "?", 20, -1, spark, False, False) for each, spark in columns),
        key, "default",
    )


ACCOUNTS = upstream("accounts", ("id", "BIGINT"), ("owner", "STRING"), ("amount", "DECIMAL(12,2)"))
EVENTS = upstream("events", ("id", "BIGINT"), ("text", "STRING"))


@pytest.fixture
def create(log: CatalogLog) -> Callable[..., Effect]:
    """Commit a CREATE SOURCE over tables of which the server has told."""

    def run(text: str, *tables: Any) -> Effect:
        statement = parse_one(text)
        assert isinstance(statement, st.CreateSource)
        effect = plan_statement(read_state(log), apply_discovery(statement, tables))
        commit(log, lambda _: effect.updates, kind="test")
        return effect

    return run


BANK = (
    "CREATE SOURCE bank FROM POSTGRES CONNECTION pg (PUBLICATION 'p',"
    " TABLES (accounts, events AS log.happened))"
)


def columns_of(state: State, table: str) -> list[str]:
    item = dependencies.find(state, "table", table).item
    return [f"{column.name} {column.type}" for column in item.definition.columns]


def test_a_table_for_each_upstream(
    setting: Any, create: Callable[..., Effect], state: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are ordinary tables that the source links to; its own has the transactions."""
    effect = create(BANK, ACCOUNTS, EVENTS)
    assert [text for text in effect.notices if text.startswith("table")] == [
        "table default.accounts was created for public.accounts",
        "table log.happened was created for public.events",
    ]
    assert any("record format of the catalog is raised to 4" in text for text in effect.notices)
    assert state().setting("format_version") == "4"
    assert columns_of(state(), "accounts")[:4] == [
        "id BIGINT", "owner STRING", "amount DECIMAL(12,2)", "_lsn BIGINT",
    ]
    assert "_before MAP<STRING, STRING>" in columns_of(state(), "log.happened")
    source = dependencies.find(state(), "source", "bank").item
    assert [column.name for column in source.definition.columns] == [
        "_lsn", "_transaction", "_committed", "changes",
    ]
    assert len(dependencies.outputs(source)) == 2
    monkeypatch.setenv("PW", "x")
    spec = spec_of(state(), dependencies.find(state(), "source", "bank").item_id)
    assert [str(each.name) for each in spec.tables] == ["default.accounts", "log.happened"]
    assert list(spec.destinations) == ["shard", "default.accounts", "log.happened"]
    assert spec.slot.startswith("catalog_migrate_")


def test_it_is_printed_back_with_the_names_of_today(
    setting: Any, create: Callable[..., Effect], state: Now
) -> None:
    create(BANK, ACCOUNTS, EVENTS)
    found = dependencies.find(state(), "source", "bank")
    text = create_statement(state(), found)
    assert "TABLES (public.accounts AS default.accounts, public.events AS log.happened)" in text
    assert "FORMAT CHANGES" in text
    assert "bank (" not in text


def test_a_mirror_has_keys(setting: Any, create: Callable[..., Effect], state: Now) -> None:
    """Its key is NOT NULL, and rows that went stay only when that is asked for."""
    text = BANK + " FORMAT MIRROR WITH (SOFT DELETES = true)"
    with pytest.raises(RefusedStatement, match=r"public\.events has no key"):
        create(text, ACCOUNTS, upstream("events", ("id", "BIGINT"), key=()))
    create(text, ACCOUNTS, EVENTS)
    assert columns_of(state(), "accounts") == [
        "id BIGINT", "owner STRING", "amount DECIMAL(12,2)", "_lsn BIGINT", "_deleted TIMESTAMP",
    ]
    table = dependencies.find(state(), "table", "accounts").item.definition
    assert [column.name for column in table.columns if not column.nullable] == ["id"]


def test_a_sink_reads_changes_and_no_mirror(
    setting: Any, create: Callable[..., Effect], do: Any
) -> None:
    create(BANK + " FORMAT MIRROR", ACCOUNTS, EVENTS)
    with pytest.raises(RefusedStatement, match="updates and deletes"):
        do("CREATE SINK x FROM accounts INTO KAFKA CONNECTION c (TOPIC 'z') FORMAT JSON")
    create(BANK.replace("bank", "b2").replace("accounts,", "accounts AS a2,").replace(
        "happened", "h2"), ACCOUNTS, EVENTS)
    do("CREATE SINK x FROM a2 INTO KAFKA CONNECTION c (TOPIC 'z') FORMAT JSON")


def test_a_table_that_is_there_is_taken_if_it_fits(
    setting: Any, create: Callable[..., Effect], state: Now
) -> None:
    """So a release may bring the table, and migrate it later; two sources never write one."""
    create(BANK, ACCOUNTS, EVENTS)
    second = BANK.replace("bank", "b2")
    with pytest.raises(RefusedStatement, match=r"source default\.bank writes it") as caught:
        create(second, ACCOUNTS, EVENTS)
    assert "AS other" in (caught.value.remedy or "")
    with pytest.raises(RefusedStatement, match="it has no column text STRING"):
        create(second.replace("accounts, events AS log.happened", "events AS accounts"), EVENTS)


@pytest.mark.parametrize(("text", "tables", "said"), [
    (BANK.replace(" TABLES (accounts, events AS log.happened)", ""), (), "names no tables"),
    (BANK + " FORMAT JSON", (ACCOUNTS, EVENTS), "FORMAT JSON is not for tables"),
    (BANK + " WITH (SOFT DELETES = true)", (ACCOUNTS, EVENTS), "is for FORMAT MIRROR"),
    (BANK.replace("SOURCE bank", "SOURCE accounts"), (ACCOUNTS, EVENTS), "the same name"),
    (BANK + " INCLUDE KEY", (ACCOUNTS, EVENTS), "INCLUDE and ON ERROR"),
    (BANK.replace("bank", "bank (id INT)"), (ACCOUNTS, EVENTS), "declares columns"),
    (BANK.replace("events AS log.happened", "accounts"), (ACCOUNTS, ACCOUNTS), "twice"),
    (BANK, (ACCOUNTS, upstream("events", ("id", None))), "there is no type for it here"),
    (BANK, (ACCOUNTS, upstream("events", ("_lsn", "BIGINT"))), "as the product's own: _lsn"),
    (BANK, (ACCOUNTS, upstream("events", ("a", "INT"), ("A", "INT"))), "differ in case only"),
])
def test_refused(
    setting: Any, create: Callable[..., Effect], text: str, tables: tuple[Any, ...], said: str,
    state: Now,
) -> None:
    """Each names what is wrong, and nothing is written."""
    before = state().version
    text = text.replace("'p',)", "'p')")
    with pytest.raises(RefusedStatement, match=said):
        create(text, *tables)
    assert state().version == before


def test_a_release_cannot_ask_the_server(setting: Any, plan: Callable[[str], Effect]) -> None:
    with pytest.raises(RefusedStatement, match="are not known") as caught:
        plan(BANK)
    assert "not by a release" in (caught.value.remedy or "")


def test_tables_are_for_postgres(setting: Any, plan: Callable[[str], Effect]) -> None:
    with pytest.raises(RefusedStatement, match="TABLES is for sources on POSTGRES"):
        plan("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 't', TABLES (a)) FORMAT JSON")


@pytest.mark.parametrize("made", [True, False])
def test_a_slot_goes_with_its_source(
    setting: Any, create: Callable[..., Effect], do: Any, log: CatalogLog, state: Now,
    tmp_path: Path, made: bool,
) -> None:
    """One that was never started has none; else it is on record until it is dropped, with why. A
    slot that no start has ``made`` is somebody else's."""
    snapshot = tmp_path / "i9" / "snapshot"
    snapshot.mkdir(parents=True)
    if made:
        (snapshot / "attempt.json").write_text("x")
    create(BANK, ACCOUNTS, EVENTS)
    do("DROP SOURCE bank")
    assert not slots_to_drop(state())
    create(BANK.replace("accounts,", "accounts AS a2,").replace("happened", "h2"), ACCOUNTS, EVENTS)
    source = dependencies.find(state(), "source", "bank").item_id
    changes = Changes()
    changes.put("stream", source, StreamRecord(checkpoint=f"{tmp_path}/i9/1"))
    commit(log, lambda _: changes, kind="test")
    slot = slot_of(state(), source)
    (effect,) = do("DROP SOURCE bank")
    assert f"its replication slot {slot} goes too, and with it what was not read yet" in (
        effect.notices
    )
    asked: list[tuple[str, str]] = []

    class Server(ServerDatabases):
        def drop_slot(  # type: ignore[override]
            self, connection: Any, name: str, *, upstream: str = "",
            confirmed_upto: int | None = None,
        ) -> bool:
            asked.append((connection["HOST"], name))
            if len(asked) == 1:
                raise SlotInUse("process 7 reads from it")
            return True

    put = partial(commits.commit, log)
    ports = Ports(databases=Server())
    drop_slots(state(), slots_to_drop(state()), ports=ports, commit=put)
    if not made:
        assert not asked
        assert not status_of(state()).slots
        return
    (text,) = status_of(state()).slots
    assert text.startswith(f"{slot} of the dropped source default.bank keeps the log")
    assert "process 7 reads from it" in text
    assert f"SELECT pg_drop_replication_slot('{slot}')" in text
    drop_slots(state(), slots_to_drop(state()), ports=ports, commit=put)
    assert not status_of(state()).slots
    assert asked == [("db.example.com", slot)] * 2
    assert not snapshot.exists()


class TestColumnsThatChange:
    """What becomes of a source when a table upstream gets other columns."""

    OLD = (Column("id", 20, key=True), Column("owner", 25), Column("amount", 1700, 786438))

    def changed(self, *new: Column, old: tuple[Column, ...] = OLD, lsn: int = 100) -> TableChanged:
        return TableChanged("it changed", table="public.accounts", old=old, new=new, lsn=lsn)

    @pytest.mark.parametrize(("new", "policies", "said"), [
        ((*OLD, Column("tag", 25)), ("evolve", "follow"), "'evolve'"),
        ((OLD[0], Column("holder", 25), OLD[2]), ("follow",), "'follow'"),
        ((OLD[0], OLD[1]), ("follow",), "'follow'"),
        ((OLD[0], Column("owner", 23), OLD[2]), (), "SHOW CREATE SOURCE s.a"),
        ((OLD[1], OLD[2]), (), "SHOW CREATE SOURCE s.a"),
        ((Column("id", 20), *OLD[1:]), (), "ALTER SOURCE s.a UNSAFE RESET SPLITS REASON"),
        ((Column("id", 20), *OLD[1:], Column("tag", 25)), (), "ALTER SOURCE s.a UNSAFE RESET"),
    ])
    def test_policies(self, new: tuple[Column, ...], policies: tuple[str, ...], said: str) -> None:
        """What each takes over; every hold names the statement that goes on."""
        error = self.changed(*new)
        taken = [each for each in ("evolve", "follow", "hold", "ignore")
                 if is_taken_over(error, each)]  # type: ignore[arg-type]
        assert tuple(taken) == policies
        assert said in hold_of(error, "s.a").statements[0]

    def test_a_commit_takes_columns_over(
        self, setting: Any, create: Callable[..., Effect], log: CatalogLog, state: Now
    ) -> None:
        """Source and table get them, at the end; the shard is to be evolved, under a new id."""
        create(BANK, ACCOUNTS, EVENTS)
        source = dependencies.find(state(), "source", "bank").item_id
        before = dependencies.find(state(), "table", "accounts")
        old = tuple(Column(name, 20, -1) for name in ("id", "owner", "amount"))
        error = self.changed(old[0], Column("tag", 25), old[2], old=old)
        changes = adopt_upstream_columns(
            state(), source, error, [UpstreamColumn("tag", 25, -1, "STRING")]
        )
        assert changes
        commit(log, lambda _: changes, kind="test")
        after = dependencies.find(state(), "table", "accounts")
        assert [column.name for column in after.item.definition.columns][-1] == "tag"
        assert len(after.item.definition.columns) == len(before.item.definition.columns) + 1
        assert after.item.global_id != before.item.global_id
        assert state().shards[after.item.shard or ""].evolve
        table = dependencies.external_of(state().items[source]).tables[0]
        assert [(each.name, each.since, each.until) for each in table.columns] == [
            ("id", 0, 0), ("tag", 100, 0), ("amount", 0, 0), ("owner", 0, 100),
        ]
        assert adopt_upstream_columns(state(), source, error, []) == ()

    @pytest.mark.parametrize(("added", "format", "standing", "copied"), [
        ("tag", "MIRROR", (), ("public.accounts",)),
        ("plain", "MIRROR", (), None),
        ("tag", "CHANGES", (), None),
        ("owner", "MIRROR", (), None),
        ("tag", "MIRROR", ("public.events",), ("public.accounts", "public.events")),
    ])
    def test_rows_from_before(
        self, setting: Any, create: Callable[..., Effect], state: Now,
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, added: str, format: str,  # noqa: A002
        standing: tuple[str, ...], copied: tuple[str, ...] | None,
    ) -> None:
        """A mirror copies the table again whose old rows may have a value in a new column, beside
        what is still to be copied."""
        create(f"{BANK} FORMAT {format}", ACCOUNTS, EVENTS)
        monkeypatch.setenv("PW", "x")
        source = dependencies.find(state(), "source", "bank").item_id
        spec = spec_of(state(), source)
        spec = dataclasses.replace(
            spec, snapshot_tables=standing, checkpoint=str(tmp_path / "checkpoint")
        )
        if not standing:
            store_at(spec.snapshot).make_folder(above=True)
            store_at(spec.snapshot).put_if_absent(SNAPSHOT_LOADED, b"{}")
        names = ("id", "owner", "tag", "plain")
        there = upstream("accounts", *((each, "STRING") for each in names))
        there = replace(there, columns=tuple(
            replace(each, filled=each.name in ("tag", "owner")) for each in there.columns
        ))
        assert tables_to_copy(spec, self.changed(*self.OLD, Column(added, 25)), there) == copied

    @pytest.mark.parametrize(("format", "copied"), [
        ("MIRROR", ("public.accounts",)), ("CHANGES", None),
    ])
    def test_rows_from_before_of_a_renamed_column(
        self, setting: Any, create: Callable[..., Effect], state: Now,
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str,  # noqa: A002
        copied: tuple[str, ...] | None,
    ) -> None:
        """One that comes while another goes may be that under another name, which no change says of
        old rows; also where it has its old name again by now."""
        create(f"{BANK} FORMAT {format}", ACCOUNTS, EVENTS)
        monkeypatch.setenv("PW", "x")
        spec = spec_of(state(), dependencies.find(state(), "source", "bank").item_id)
        spec = dataclasses.replace(spec, checkpoint=str(tmp_path / "checkpoint"))
        store_at(spec.snapshot).make_folder(above=True)
        store_at(spec.snapshot).put_if_absent(SNAPSHOT_LOADED, b"{}")
        renamed = self.changed(*self.OLD[:-1], Column("renamed", 25))
        for names in (("id", "renamed"), ("id", "owner")):
            there = upstream("accounts", *((each, "STRING") for each in names))
            assert tables_to_copy(spec, renamed, there) == copied
        gone = self.changed(*self.OLD[:-1])
        assert tables_to_copy(spec, gone, upstream("accounts", ("id", "STRING"))) is None

    def test_a_table_of_the_release(
        self, setting: Any, create: Callable[..., Effect], log: CatalogLog, state: Now,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A column goes on into the one it was taken by, whatever a release calls that; one that is
        new upstream waits until a release has brought a column for it."""
        monkeypatch.setenv("PW", "x")
        create(BANK, ACCOUNTS, EVENTS)
        source = dependencies.find(state(), "source", "bank").item_id
        found = dependencies.find(state(), "table", "accounts")
        _, owner, *others = found.item.definition.columns

        def released(*more: OurColumn) -> State:
            """Of a release that renames one column, drops the key, and may bring another."""
            definition = replace(found.item.definition, columns=(
                replace(owner, name="holder"), *others, *more,
            ))  # fmt: skip
            ids = ColumnIds((*range(2, len(others) + 3), *((20,) if more else ())), 20)
            changes = Changes()
            key = identity_text(definition.identity)
            changes.put("mapping", key, replace(found.mapping, owner="release"))
            changes.put("item", found.item_id, replace(
                found.item, owner="release", definition=definition, column_ids=ids
            ))
            return state().apply_edits(state().version + 1, changes.effective(state()))

        def taken(now: State) -> list[tuple[int, str]]:
            table = spec_of(now, source).tables[0]
            return [(place, each.name) for place, each in table.mapped_columns]

        assert taken(released()) == [(1, "holder"), (2, "amount")]
        old = tuple(Column(name, 20, -1) for name in ("id", "owner", "amount"))
        tag = [UpstreamColumn("tag", 25, -1, "STRING")]
        error = self.changed(*old, Column("tag", 25), old=old)
        with pytest.raises(RefusedStatement, match="it has no column tag STRING"):
            adopt_upstream_columns(released(), source, error, tag)
        brought = released(OurColumn("tag", "STRING"))
        changes = adopt_upstream_columns(brought, source, error, tag)
        assert changes
        after = preview(brought, changes)
        assert taken(after) == [(1, "holder"), (2, "amount"), (3, "tag")]
        assert after.items[found.item_id] == brought.items[found.item_id]

    def test_a_name_of_the_products_own(
        self, setting: Any, create: Callable[..., Effect], state: Now
    ) -> None:
        create(BANK, ACCOUNTS, EVENTS)
        source = dependencies.find(state(), "source", "bank").item_id
        old = tuple(Column(name, 20, -1) for name in ("id", "owner", "amount"))
        change = self.changed(*old, Column("_lsn", 20), old=old)
        with pytest.raises(RefusedStatement, match="has a column _lsn already"):
            adopt_upstream_columns(state(), source, change, [])


def test_a_slot_has_one_source(setting: Any, create: Callable[..., Effect]) -> None:
    text = BANK.replace("'p',", "'p', SLOT 'mine',")
    create(text, ACCOUNTS, EVENTS)
    again = text.replace("bank", "b2").replace("accounts,", "accounts AS a2,")
    with pytest.raises(RefusedStatement, match=r"is read by source default\.bank of this catalog"):
        create(again.replace("happened", "h2"), ACCOUNTS, EVENTS)


@pytest.mark.parametrize(("written", "name", "into"), [
    ("Orders", "public.orders", "orders"), ("`Orders`", "public.Orders", "Orders"),
    ("Sales.`A b`", "sales.`A b`", "`A b`"), ("`S`.Orders AS Mine", "S.orders", "Mine"),
])
def test_names_upstream_are_folded_as_there(written: str, name: str, into: str) -> None:
    """And are printed so that they are read back."""
    text = f"CREATE SOURCE s FROM POSTGRES CONNECTION c (PUBLICATION 'p', TABLES ({written}))"
    statement = parse_one(text)
    assert isinstance(statement, st.CreateSource)
    (table,) = statement.external.tables
    assert (table.name, table.into) == (name, into)
    assert parse_one(render(statement)) == statement


def test_all_mistakes_are_told_at_once(setting: Any, do: Any, state: Now) -> None:
    """Of a table that is not there, the preflight has everything else that is wrong, too."""

    class Server(ServerDatabases):
        def tables(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
            raise ConnectionFailed("no table", findings=[], remedy="create it")

        def preflight(self, *_: Any, **told: Any) -> Any:  # type: ignore[override]
            return (
                Finding(told["subject"], "TABLES", "error", "there is no table x", "create it"),
                Finding(told["subject"], "PUBLICATION", "error", "there is none", "make it"),
                Finding(told["subject"], None, "ok", "fine"),
            )

    statement = parse_one(BANK)
    assert isinstance(statement, st.CreateSource)
    with pytest.raises(ValidationFailed, match="bank was refused") as caught:
        with_upstream(state(), statement, ports=Ports(databases=Server()))
    assert len(caught.value.findings) == 2
    assert "connection default.pg" in str(caught.value.findings[0])
