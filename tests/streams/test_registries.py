"""Sources and sinks with a schema registry in the catalog: what is planned, refused and asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import EngineFailure, RefusedStatement, ValidationFailed
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.plan_validation import MigrationBlocked
from catalog_migrate.release.bundled_streams import canonical_statements
from catalog_migrate.release.release import Place as Place_
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.runtime.probes import validate
from tests.services.schema_registry import SchemaRegistry
from tests.streams.test_effects import V1, Place, table

if TYPE_CHECKING:
    from catalog_migrate.catalog.memory_log import MemoryLog

Do = Callable[[str], list[Effect]]

SOURCE = (
    "CREATE SOURCE a (id BIGINT, k STRING) FROM KAFKA CONNECTION c (TOPIC = 'a') FORMAT AVRO USING"
    " SCHEMA REGISTRY CONNECTION r KEY FORMAT AVRO INCLUDE KEY AS key;"
)
SETTING = f"""
CREATE SECRET rp AS 'env:RP';
CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');
CREATE CONNECTION base TO SCHEMA REGISTRY (URL 'http://r.example.com:8081/', USERNAME 'app',
  PASSWORD SECRET rp);
CREATE CONNECTION r TO SCHEMA REGISTRY (USING CONNECTION base);
CREATE CONNECTION other TO SCHEMA REGISTRY (URL 'http://s.example.com:8081');
{SOURCE}
CREATE SOURCE b (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 'b') FORMAT JSON;
CREATE SINK k FROM b INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id)
  FORMAT JSON SCHEMA USING SCHEMA REGISTRY CONNECTION r;
"""


@pytest.fixture
def laid_out(do: Do) -> None:
    do(SETTING)


@pytest.mark.usefixtures("laid_out")
class TestStatements:
    def test_who_restarts(self, plan: Callable[[str], Effect]) -> None:
        """An ALTER of the registry, of its base or of its secret restarts who uses it alone."""
        for text in (
            "ALTER CONNECTION r SET (URL 'http://new.example.com:8081')",
            "ALTER CONNECTION base SET (URL 'http://new.example.com:8081')",
            "ALTER SECRET rp",
        ):
            effect = plan(text)
            assert {each.name for each in effect.restarts if each.restarts} == {
                "default.a", "default.k",
            }
        assert not plan("ALTER CONNECTION other SET (URL 'http://new.example.com:8081')").restarts

    def test_dropping(self, plan: Callable[[str], Effect], do: Do) -> None:
        """A registry that is used stays; CASCADE takes its users along."""
        with pytest.raises(RefusedStatement, match=r"by sink default\.k, source default\.a"):
            plan("DROP CONNECTION r")
        assert len(plan("DROP CONNECTION r CASCADE").removed) == 3
        do("DROP CONNECTION other")

    def test_shown_under_present_names(self, do: Do, state: Callable[[], State]) -> None:
        """SHOW CREATE prints it back, with the name that the registry has now."""
        found = dependencies.find(state(), "source", "a")
        assert create_statement(state(), found) == (
            "CREATE SOURCE `default`.a (id BIGINT, k STRING)\n  IN CLUSTER `default`.main\n"
            "  FROM KAFKA CONNECTION `default`.c (\n    DECODING = 'exact',\n"
            "    ISOLATION LEVEL = 'read_committed',\n    TOPIC = 'a'\n  )\n"
            "  FORMAT AVRO USING SCHEMA REGISTRY CONNECTION `default`.r KEY FORMAT AVRO\n"
            "  INCLUDE KEY;"
        ).replace("`default`", "default")
        do("ALTER CONNECTION r RENAME TO shop.registry")
        shown = create_statement(state(), dependencies.find(state(), "source", "a"))
        assert "USING SCHEMA REGISTRY CONNECTION shop.registry KEY FORMAT AVRO" in shown
        do("ALTER CONNECTION c RENAME TO shop.kafka")
        do("ALTER SOURCE a SET (MAX OFFSETS PER TRIGGER = 5)")  # by the names of now
        shown = create_statement(state(), dependencies.find(state(), "source", "a"))
        assert "FROM KAFKA CONNECTION shop.kafka" in shown

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO",
             "FORMAT AVRO needs a schema registry"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON USING"
             " SCHEMA REGISTRY CONNECTION r", "FORMAT JSON uses no schema registry"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO USING"
             " SCHEMA REGISTRY CONNECTION c", "connection default.c is KAFKA, no schema registry"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x', SUBJECT STRATEGY"
             " 'record') FORMAT JSON", "SUBJECT STRATEGY is for formats of a schema registry"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO USING"
             " SCHEMA REGISTRY CONNECTION r KEY FORMAT AVRO", "and nothing shows it"),
            ("CREATE SOURCE x (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO USING"
             " SCHEMA REGISTRY CONNECTION r KEY FORMAT XML INCLUDE KEY",
             "KEY FORMAT XML is not known there"),
            ("CREATE SINK x FROM b INTO KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO USING"
             " SCHEMA REGISTRY CONNECTION r KEY FORMAT AVRO", "KEY FORMAT AVRO is not known there"),
            ("CREATE SINK x FROM b INTO KAFKA CONNECTION c (TOPIC 'x') FORMAT PROTOBUF USING"
             " SCHEMA REGISTRY CONNECTION r",
             "KAFKA sinks have no FORMAT PROTOBUF in this version"),
            ("CREATE SINK x FROM b INTO KAFKA CONNECTION c (TOPIC 'x', RECORD NAME '1st') FORMAT"
             " AVRO USING SCHEMA REGISTRY CONNECTION r", "RECORD NAME: 1st is no name of a record"),
            ("CREATE SOURCE x (id INT) FROM SCHEMA REGISTRY CONNECTION r (TOPIC 'x')",
             "SCHEMA REGISTRY has no sources: it holds schemas"),
        ],
    )  # fmt: skip
    def test_refused(self, plan: Callable[[str], Effect], text: str, message: str) -> None:
        """What does not go together is refused when it is said."""
        with pytest.raises(Exception, match=message):
            plan(text)

    def test_columns_that_avro_has_not(self, plan: Callable[[str], Effect], do: Do) -> None:
        do("CREATE SOURCE v (id INT, v VARIANT) FROM KAFKA CONNECTION c (TOPIC 'v') FORMAT JSON")
        with pytest.raises(RefusedStatement, match="v is VARIANT, which Avro has no type for"):
            plan(
                "CREATE SINK x FROM v INTO KAFKA CONNECTION c (TOPIC 'x') FORMAT AVRO USING SCHEMA"
                " REGISTRY CONNECTION r"
            )


# -- what is asked ---------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(login=("app", "of-r")) as server:
        monkeypatch.setenv("RP", "of-r")
        yield server


class TestValidation:
    def verdicts(
        self, registry: SchemaRegistry, do: Do, state: Callable[[], State], columns: str
    ) -> list[str]:
        """What is wrong with a source of those columns, its broker apart."""
        from catalog_migrate.streams.runtime.ports import Ports
        from catalog_migrate.streams.upstreams.upstream import ServerUpstreams, Upstream

        class NoBroker(ServerUpstreams):
            """The registry is real, the broker says yes."""

            @staticmethod
            def access(*_: Any, **__: Any) -> Any:
                from catalog_migrate.connectors.base import Identity

                return Identity("KAFKA", "c1", {"a": "1"}), {item: ()}

            @staticmethod
            def identify(*_: Any) -> Upstream:
                return Upstream("c1", {"a": "1"})

        do(
            "CREATE SECRET rp AS 'env:RP'; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:1');"
            f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL '{registry.url}', USERNAME 'app',"
            f" PASSWORD SECRET rp); CREATE SOURCE a ({columns}) FROM KAFKA CONNECTION c"
            " (TOPIC 'a') FORMAT AVRO USING SCHEMA REGISTRY CONNECTION r"
        )
        found = dependencies.find(state(), "connection", "r").item_id
        item = dependencies.find(state(), "source", "a").item_id
        verdicts = validate(state(), found, [item], ports=Ports(upstreams=NoBroker()), timeout=3.0)
        return [str(each) for each in verdicts if not each.ok]

    def test_subject(self, registry: SchemaRegistry, do: Do, state: Callable[[], State]) -> None:
        """A subject that is not there is named, with the option that says where to look."""
        (said,) = self.verdicts(registry, do, state, "id BIGINT")
        assert said.startswith(
            "source default.a, option SUBJECT STRATEGY: connection default.r has no subject a-value"
        )
        assert "SUBJECT STRATEGY = 'record'" in said

    def test_type(self, registry: SchemaRegistry, do: Do, state: Callable[[], State]) -> None:
        """So is a field of a type that no column has, and one that a NOT NULL column lacks."""
        fields = [{"name": "id", "type": ["int", "string"]}]
        registry.register("a-value", {"type": "record", "name": "R", "fields": fields})
        (said,) = self.verdicts(registry, do, state, "id BIGINT, x INT NOT NULL")
        assert said.startswith(
            "source default.a, option FORMAT: the newest schema of a-value in connection default.r:"
            " its field id is a union of several types (int, string)"
        )
        registry.register("a-value", {"type": "record", "name": "R", "fields": []})
        do("DROP SOURCE a; DROP CONNECTION r; DROP CONNECTION c; DROP SECRET rp")
        (said,) = self.verdicts(registry, do, state, "id BIGINT, x INT NOT NULL")
        assert "it has no x, which is NOT NULL" in said

    def test_login(
        self, registry: SchemaRegistry, do: Do, state: Callable[[], State],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A wrong password is told of the connection and of who uses it, never shown."""
        monkeypatch.setenv("RP", "marked-password")
        told = self.verdicts(registry, do, state, "id BIGINT")
        assert len(told) == 2
        for said in told:
            assert "option PASSWORD: " in said
            assert "marked-password" not in said


class TestBadRegistries:
    """A typed error in time that names connection, option and remedy; nothing is committed."""

    @pytest.mark.parametrize(
        ("what", "option"), [("page", "URL"), ("down", "URL"), ("password", "PASSWORD")]
    )
    def test_creating(
        self, registry: SchemaRegistry, log: MemoryLog, monkeypatch: pytest.MonkeyPatch,
        what: str, option: str,
    ) -> None:
        executor = Executor(log, lambda _state, _item: None, SystemClock())
        executor.run("CREATE SECRET rp AS 'env:RP'")
        if what == "page":
            registry.page = True
        elif what == "down":
            registry.stop()
        else:
            monkeypatch.setenv("RP", "marked-password")
        before, began = log.version(), time.monotonic()
        with pytest.raises(ValidationFailed) as caught:
            executor.run(
                f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL '{registry.url}', USERNAME 'app',"
                " PASSWORD SECRET rp)"
            )
        assert time.monotonic() - began < 15.0
        assert log.version() == before
        (said,) = map(str, caught.value.findings)
        assert said.startswith(f"connection default.r, option {option}: ")
        assert "remedy: " in said
        assert "marked-password" not in str(caught.value)

    def test_bundled_in_a_schema(self) -> None:
        """A release's statements name the registry in its default schema, and it comes first."""
        place = Place_("f.sql", 1, 1)
        texts = [each.strip() for each in SETTING.split(";") if "SINK" not in each and each.strip()]
        written, problems = canonical_statements(
            [(text, place) for text in reversed(texts)], default_schema="shop"
        )
        assert problems == []
        (source,) = (each for each in written if "FORMAT AVRO" in each)
        assert "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION shop.r KEY FORMAT AVRO" in source
        order = [each.split("(")[0] for each in written]
        assert order.index("CREATE CONNECTION shop.base TO SCHEMA REGISTRY ") < order.index(
            "CREATE CONNECTION shop.r TO SCHEMA REGISTRY "
        ) < written.index(source)


class TestMigrations:
    """The registry is asked before the commit of a migration, and the plan says what it said."""

    STREAMS = (
        "CREATE SECRET rp AS 'env:RP'",
        "CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092')",
        "CREATE CONNECTION r TO SCHEMA REGISTRY (URL '{url}', USERNAME 'app', PASSWORD SECRET rp)",
        "CREATE SINK k FROM s.t INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT AVRO USING SCHEMA"
        " REGISTRY CONNECTION r",
    )
    WIDER = table(Column("id", "BIGINT"), Column("at", "TIMESTAMP"), Column("x", "INT"))

    def place(self, registry: SchemaRegistry, *, bundled: bool) -> tuple[Place, tuple[str, ...]]:
        from catalog_migrate.streams.upstreams.schemas import written

        place = Place()
        statements = tuple(each.format(url=registry.url) for each in self.STREAMS)
        place.start("1", V1, statements=statements if bundled else ())
        if not bundled:
            place.do(";".join(statements))
        external = dependencies.external_of(place.sink().item)
        registry.register("o-value", written(external, V1.columns).text)
        return place, statements if bundled else ()

    def plan(self, place: Place, statements: tuple[str, ...], *objects: Any) -> Plan:
        found = place.start("2", *objects, statements=statements, read_only=True).plan
        assert found is not None
        return found

    def test_taken(self, registry: SchemaRegistry) -> None:
        """A new column that may be NULL is taken; nothing is registered by asking."""
        place, statements = self.place(registry, bundled=True)
        found = self.plan(place, statements, self.WIDER)
        assert found.applyable
        assert found.shipments == (
            "sink default.k: subject o-value of connection default.r takes its columns",
        )
        assert len(registry.subjects["o-value"]) == 1
        assert not self.plan(place, statements, V1).shipments

    def test_refused(self, registry: SchemaRegistry) -> None:
        """A bundled sink blocks, a user's is told of and the software starts (I8)."""
        registry.compatibility = "NOTHING"
        place, statements = self.place(registry, bundled=True)
        found = self.plan(place, statements, self.WIDER)
        assert (found.applyable, [each.code for each in found.blocked]) == (False, ["CM0333"])
        assert "refuses its columns for subject o-value: NOTHING" in found.blocked[0].reason
        with pytest.raises(MigrationBlocked):
            place.start("2", self.WIDER, statements=statements)
        place, _ = self.place(registry, bundled=False)
        found = self.plan(place, (), self.WIDER)
        assert found.applyable
        assert "it stops at the first row of the new columns" in found.shipments[0]

    def test_nobody_to_ask(
        self, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without an answer, or without the password here, nothing waits, and the plan says so."""
        place, statements = self.place(registry, bundled=True)
        registry.stop()
        found = self.plan(place, statements, self.WIDER)
        assert found.applyable
        assert "not asked whether its columns are taken: " in found.shipments[0]
        monkeypatch.delenv("RP")
        assert "RP" in self.plan(place, statements, self.WIDER).shipments[0]


def test_what_a_sink_registers(registry: SchemaRegistry) -> None:
    """Each shape of its rows once; what the registry refuses stops it, an outage is waited out."""
    from catalog_migrate.streams.spark.registry_formats import registered

    def spec(*columns: Column) -> QuerySpec:
        return QuerySpec(
            item_id="i1", name=ItemName("s", "k"), kind="sink", columns=columns, shard="",
            external=External(
                connector="KAFKA", format="AVRO",
                options={"TOPIC": "o", "SUBJECT STRATEGY": "topic-record", "RECORD NAME": "a.B"},
            ),
            connection={}, checkpoint="", registry_name="s.r",
            registry={"URL": registry.url, "USERNAME": "app", "PASSWORD": Secret("of-r")},
        )  # fmt: skip

    first, wider = Column("id", "BIGINT"), Column("x", "INT")
    number, text = registered(spec(first))
    assert registered(spec(first)) == (number, text)
    assert registered(spec(first, wider))[0] != number
    assert list(registry.subjects) == ["o-a.B"]
    with pytest.raises(EngineFailure, match=r"refuses its columns for subject o-a\.B") as caught:
        registered(spec(Column("id", "STRING")))
    assert (caught.value.condition, caught.value.transient) == ("INCOMPATIBLE_SCHEMA", False)
    registry.stop()
    with pytest.raises(EngineFailure, match=r"connection s\.r: .* cannot be reached") as caught:
        registered(spec(first))
    assert (caught.value.condition, caught.value.transient) == ("SCHEMA_REGISTRY", True)
