"""CREATE, RENAME, DROP and COMMENT: what they put into the catalog, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import InvalidOptions, RefusedStatement, UnknownItem
from catalog_migrate.model.objects import SecretRef
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.show import show

Plan = Callable[[str], Effect]
Now = Callable[[], State]


class TestCreate:
    def test_a_secret_is_a_reference(self, do: Any, state: Now) -> None:
        """Only where the value is kept goes into the catalog."""
        do("CREATE SECRET pw AS 'file:/run/secrets/pw'")
        found = dependencies.find(state(), "secret", "pw")
        assert found.external.reference == "file:/run/secrets/pw"
        assert found.external.revision == 1

    @pytest.mark.parametrize("text", ["hunter2", "vault:x", "env:", ":x"])
    def test_a_value_is_no_reference(self, plan: Plan, text: str) -> None:
        """A text without a known scheme is refused, and not repeated in the message."""
        with pytest.raises(RefusedStatement) as caught:
            plan(f"CREATE SECRET pw AS '{text}'")
        assert "env:" in (caught.value.remedy or "")
        assert text not in caught.value.message

    @pytest.mark.parametrize("name", ["a-b", "o'quote", "日本", "a b"])
    def test_a_name_that_spark_cannot_have(self, plan: Plan, name: str) -> None:
        """It would be committed and never be registered: refused before."""
        with pytest.raises(RefusedStatement, match="Spark cannot have a log called"):
            plan(f"CREATE CLUSTER `{name}`")

    def test_links_are_ids(self, setting: Any, state: Now) -> None:
        """What a definition names is kept by id, and is among its uses."""
        base = dependencies.find(state(), "connection", "base")
        child = dependencies.find(state(), "connection", "c")
        secret = dependencies.find(state(), "secret", "pw")
        assert base.item.links == {"secret:SASL PASSWORD": secret.item_id}
        assert base.external.options["SASL PASSWORD"] == SecretRef("pw")
        assert child.item.links == {"connection": base.item_id}
        assert child.item.uses == (base.item_id,)

    def test_inheritance(self, setting: Any, state: Now) -> None:
        """A connection has what its base has, and its own."""
        child = dependencies.find(state(), "connection", "c")
        whole = dependencies.effective(state(), child.item_id)
        assert whole.options["BROKER"] == "a.example.com:9092"
        assert whole.options["kafka.linger.ms"] == "5"
        assert list(whole.secrets) == ["SASL PASSWORD"]

    def test_a_source_has_where_its_rows_came_from(self, setting: Any, state: Now) -> None:
        """Declared columns, then Kafka's four."""
        found = dependencies.find(state(), "source", "s")
        assert [(c.name, c.type) for c in found.item.definition.columns] == [
            ("id", "BIGINT"), ("name", "STRING"), ("_topic", "STRING"), ("_partition", "INT"),
            ("_offset", "BIGINT"), ("_timestamp", "TIMESTAMP"),
        ]

    @pytest.mark.parametrize(
        ("format_", "types"), [("TEXT", ["STRING"]), ("BYTES", ["BINARY"])]
    )
    def test_without_columns(
        self, do: Any, setting: Any, state: Now, format_: str, types: list[str]
    ) -> None:
        """TEXT and BYTES give one column, called value."""
        do(f"CREATE SOURCE raw FROM KAFKA CONNECTION c (TOPIC 'r') FORMAT {format_}")
        columns = dependencies.find(state(), "source", "raw").item.definition.columns
        assert [c.type for c in columns if c.name == "value"] == types

    def test_include(self, do: Any, setting: Any, state: Now) -> None:
        """INCLUDE shows the key and the position under names of one's choice."""
        do("CREATE SOURCE i (id INT) FROM KAFKA CONNECTION c (TOPIC 'i') FORMAT JSON "
           "INCLUDE KEY, OFFSET AS at")
        columns = dependencies.find(state(), "source", "i").item.definition.columns
        assert [(c.name, c.type) for c in columns[:3]] == [
            ("id", "INT"), ("key", "STRING"), ("at", "BIGINT")
        ]

    def test_dead_letters(self, do: Any, setting: Any, state: Now) -> None:
        """ON ERROR INTO makes a table for them, which a second source may share."""
        text = "CREATE SOURCE {} (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON " \
               "ON ERROR INTO bad"
        do(text.format("one"))
        do(text.format("two"))
        bad = dependencies.find(state(), "relation", "bad")
        for name in ("one", "two"):
            assert (
                dependencies.find(state(), "source", name).item.links["dead_letters"] == bad.item_id
            )
        assert bad.mapping.kind == "table"

    def test_the_cluster_is_made_once(self, setting: Any, state: Now) -> None:
        """The first source makes the cluster main with its log; everything runs there."""
        rows = show(state(), "clusters").values
        assert [(row[0], row[3], row[4], row[5]) for row in rows] == [
            ("default.main", 4, "default.main_log", "main_log-main-primary-idx")
        ]

    def test_a_log_gets_a_name_of_its_own(self, do: Any, setting: Any, state: Now) -> None:
        """A log whose name is taken gets 1, 2, … appended until nothing has it."""
        do("CREATE SOURCE night_log (id INT) FROM KAFKA CONNECTION c (TOPIC 'n') FORMAT JSON "
           "; CREATE CLUSTER night")
        log = dependencies.find(state(), "log", "night_log1")
        assert log.item.definition.properties == {"primary_index": "night_log1-night-primary-idx"}

    def test_again(self, plan: Plan, setting: Any) -> None:
        """IF NOT EXISTS does nothing and says so; without it a taken name is refused."""
        effect = plan("CREATE SECRET IF NOT EXISTS pw AS 'env:PW'")
        assert effect.updates == ()
        assert effect.notices == ("secret default.pw exists, nothing done",)
        with pytest.raises(RefusedStatement, match=r"default\.pw exists already"):
            plan("CREATE SECRET pw AS 'env:PW'")

    @pytest.mark.parametrize(
        ("text", "error", "says"),
        [
            ("CREATE CONNECTION x TO KAFKA (USING CONNECTION nope)", UnknownItem, "nope"),
            ("CREATE CONNECTION x TO POSTGRES (USING CONNECTION base)", RefusedStatement,
             "its base connection default.base is KAFKA"),
            ("CREATE CONNECTION x TO KAFKA (kafka.linger.ms '5')", InvalidOptions, "BROKER"),
            ("CREATE SOURCE x FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON", RefusedStatement,
             "has no columns"),
            ("CREATE SOURCE x (a INT, A INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON",
             RefusedStatement, "the column A twice"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION pg (TOPIC 'x') FORMAT JSON",
             RefusedStatement, "is POSTGRES"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'a,a') FORMAT JSON",
             InvalidOptions, "topic a appears twice"),
            ("CREATE SOURCE x (id INT) IN CLUSTER moon FROM KAFKA CONNECTION c (TOPIC 'x') "
             "FORMAT JSON", UnknownItem, "there is no cluster called moon"),
            ("CREATE SINK x FROM nope INTO KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON",
             UnknownItem, "there is no relation called nope"),
            ("CREATE SINK x FROM s INTO KAFKA CONNECTION c (TOPIC 'x') KEY (nope) FORMAT JSON",
             RefusedStatement, "has no column nope"),
            ("CREATE SINK x FROM s INTO KAFKA CONNECTION c (TOPIC 't') FORMAT JSON",
             RefusedStatement, "would read what it writes"),
        ],
    )
    def test_refused(
        self, plan: Plan, setting: Any, text: str, error: type[Exception], says: str
    ) -> None:
        """What cannot be is a typed error that names the place."""
        with pytest.raises(error) as caught:
            plan(text)
        assert says in str(caught.value)

    def test_a_loop_through_others(self, do: Any, plan: Plan, setting: Any) -> None:
        """A sink must not feed the topic of its own source, through other sinks either."""
        do("CREATE SOURCE back (id BIGINT) FROM KAFKA CONNECTION base (TOPIC 'o') FORMAT JSON")
        with pytest.raises(RefusedStatement, match=r"source default\.back") as caught:
            plan("CREATE SINK loop FROM back INTO KAFKA CONNECTION base (TOPIC 't') FORMAT JSON")
        assert caught.value.message == (
            "sink default.loop would read what it writes: its topic t comes back through source"
            " default.back (sink default.loop -> source default.back -> topic o ->"
            " sink default.k -> source default.s -> topic t -> sink default.loop)"
        )

    def test_a_loop_that_an_alter_closes(
        self, do: Any, plan: Plan, setting: Any, state: Now
    ) -> None:
        """Another connection or address is looked at like a new sink; other changes pass."""
        brokers = dependencies.effective(
            state(), dependencies.find(state(), "source", "s").item.links["connection"]
        ).options["BROKER"]
        do("CREATE CONNECTION far TO KAFKA (BROKER 'far:9092');"
           "CREATE SINK home FROM s INTO KAFKA CONNECTION far (TOPIC 't') FORMAT JSON")
        for statement in (
            "ALTER SINK home SET CONNECTION c", f"ALTER CONNECTION far SET (BROKER '{brokers}')",
        ):
            with pytest.raises(RefusedStatement, match="would read what it writes"):
                plan(statement)
        assert plan("ALTER CONNECTION far SET (BROKER 'farther:9092')").updates


class TestFirstStart:
    def test_paused(self, do: Any, setting: Any, state: Now) -> None:
        """PAUSED is the operator's hold in the commit that creates; SHOW CREATE has it until
        RESUME."""
        for kind, text in (
            ("source", "CREATE SOURCE p (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT "
             "JSON PAUSED"),
            ("sink", "CREATE SINK q FROM s INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT JSON PAUSED "
             "REASON 'not yet'"),
        ):
            version = state().version
            (effect,) = do(text)
            assert state().version == version + 1
            found = dependencies.by_id(state(), effect.created[0])
            (hold,) = [h for h in state().holds.values() if h.item_id == found.item_id]
            assert (hold.holder, hold.reason) == (
                "operator", "paused" if kind == "source" else "not yet"
            )
            shown = create_statement(state(), found, held=True)
            assert text.partition("PAUSED")[2] in shown.partition("PAUSED")[2]
            assert "PAUSED" in shown
            do(f"RESUME {kind} {found.item.definition.name}")
            assert "PAUSED" not in create_statement(state(), found, held=True)

    def test_offsets_of_partitions(self, do: Any, plan: Plan, setting: Any, state: Now) -> None:
        """START OFFSETS is kept in one form and shown as it is written; ALTER cannot change it."""
        head = "CREATE SOURCE p (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 'a,b', START OFFSETS "
        do(head + "('b:1' = '2026-01-31T00:00:00Z', 'a:0' 12)) FORMAT JSON")
        found = dependencies.find(state(), "source", "p")
        assert found.external.options["START OFFSETS"] == "a:0=12,b:1=2026-01-31T00:00:00.000Z"
        shown = create_statement(state(), found)
        assert "START OFFSETS = ('a:0' = '12', 'b:1' = '2026-01-31T00:00:00.000Z')" in shown
        with pytest.raises(InvalidOptions) as caught:
            plan(head.replace("p", "q", 1) + "('c:0' = 1)) FORMAT JSON")
        assert "topic c is none of TOPIC" in str(caught.value.problems)
        with pytest.raises(InvalidOptions, match="not every option can be altered"):
            plan("ALTER SOURCE p SET (START OFFSETS ('a:0' = 13))")


class TestNames:
    def test_a_rename_reaches_nobody(self, do: Any, setting: Any, state: Now) -> None:
        """Users keep the id; their own statement shows the present name."""
        before = dependencies.fingerprint(
            state(), dependencies.find(state(), "source", "s").item_id
        )
        do("ALTER CONNECTION base RENAME TO basis")
        source = dependencies.find(state(), "source", "s")
        assert dependencies.fingerprint(state(), source.item_id) == before
        shown = create_statement(state(), dependencies.find(state(), "connection", "c"))
        assert "USING CONNECTION default.basis" in shown

    def test_drop_is_refused_while_used(self, plan: Plan, setting: Any) -> None:
        """RESTRICT is the default; users are named."""
        with pytest.raises(RefusedStatement, match=r"used by connection default\.c") as caught:
            plan("DROP CONNECTION base")
        assert "CASCADE" in (caught.value.remedy or "")

    def test_cascade(self, do: Any, setting: Any, state: Now) -> None:
        """CASCADE takes the users along, and only them."""
        (effect,) = do("DROP CONNECTION base CASCADE")
        assert len(effect.removed) == 5
        left = {str(m.key.item_name) for m in state().mappings.values()}
        assert left == {
            "default.pw", "default.other", "default.pg", "default.far", "default.main",
            "default.main_log",
        }

    def test_a_dropped_source_leaves_its_rows_to_retention(
        self, do: Any, setting: Any, state: Now
    ) -> None:
        """Its shard retires, its name gets a tombstone."""
        shard = dependencies.find(state(), "source", "far").item.shard
        do("DROP SOURCE far")
        assert state().shards[shard].state == "retired"
        assert [(t.name, t.location) for t in state().tombstones] == [("far", shard)]

    def test_if_exists(self, plan: Plan, setting: Any) -> None:
        """IF EXISTS on nothing is a notice."""
        assert plan("DROP SINK IF EXISTS nope").notices == ("there is no sink nope",)

    def test_the_nearest_name(self, plan: Plan, setting: Any) -> None:
        """A slip gets the nearest names."""
        with pytest.raises(UnknownItem) as caught:
            plan("DROP CONNECTION bse")
        assert caught.value.remedy == "did you mean default.base?"


def test_what_is_shown_creates_the_same(do: Any, setting: Any, state: Now, log: Any) -> None:
    """SHOW CREATE of everything, replayed on an empty catalog, gives the same catalog."""
    from catalog_migrate.catalog.memory_log import MemoryLog
    from catalog_migrate.catalog.opening import create_catalog, read_state
    from catalog_migrate.sql.parser import parse
    from catalog_migrate.streams.ddl.plans import plan_statement
    from tests.decisions import commit

    order = ("secret", "cluster", "connection", "source", "sink")
    mappings = sorted(
        (m for m in state().mappings.values() if m.kind in order),
        key=lambda m: (order.index(m.kind), int(m.item_id[1:])),
    )
    text = "\n".join(
        create_statement(state(), dependencies.by_id(state(), m.item_id)) for m in mappings
    )
    other = MemoryLog()
    create_catalog(other, warehouse="/warehouse")
    for parsed in parse(text):
        effect = plan_statement(read_state(other), parsed.statement)
        changes = effect.updates
        commit(other, lambda _, changes=changes: changes, kind="test")  # type: ignore[misc]
    again = read_state(other)
    assert [
        create_statement(again, dependencies.find(again, m.kind, str(m.key.item_name)))
        for m in mappings
    ] == [create_statement(state(), dependencies.by_id(state(), m.item_id)) for m in mappings]
