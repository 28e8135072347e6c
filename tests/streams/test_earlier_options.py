"""Options that CREATE stores unasked: new sources get them, what exists goes on as it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from catalog_migrate.api.status import status_of
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import InvalidOptions, RefusedStatement
from catalog_migrate.release.loader import load_texts
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.earlier_options import describe_earlier
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.ddl.bundled_streams import list_bundled, plan_bundled_streams
from catalog_migrate.streams.ddl.show import show_create
from tests.decisions import Changes, commit

Do = Callable[[str], Any]
Now = Callable[[], State]

STORED = {"ISOLATION LEVEL": "read_committed", "DECODING": "exact"}


def options(state: State, name: str) -> dict[str, Any]:
    """What a source's definition holds of the options that CREATE stores."""
    found = dependencies.find(state, "source", name).external.options
    return {option: found[option] for option in STORED if option in found}


def isolation(state: State, name: str) -> object:
    """What the clients of a source are given."""
    item_id = dependencies.find(state, "source", name).item_id
    spec = spec_of(state, item_id, resolve=lambda _: Secret("x"))
    return spec.connection.get("kafka.isolation.level")


@pytest.fixture
def as_was(log: MemoryLog, setting: object) -> Callable[..., None]:
    """Makes sources as a version stored them that knew none of these options."""

    def forget(*names: str) -> None:
        state, changes = read_state(log), Changes()
        for name in names:
            found = dependencies.find(state, "source", name)
            kept = {
                each: value for each, value in found.external.options.items() if each not in STORED
            }
            definition = dependencies.redefine(
                found.item, msgspec.structs.replace(found.external, options=kept)
            )
            changes.put(
                "item", found.item_id, msgspec.structs.replace(
                    found.item, definition=definition,
                    shipped=definition if found.item.shipped is not None else None,
                ),
            )
        commit(log, lambda _: changes, kind="test")

    return forget


class TestNewSources:
    @pytest.mark.usefixtures("setting")
    def test_what_create_stores(self, do: Do, state: Now) -> None:
        """Both are in the definition, unless the statement says otherwise; sinks have neither."""
        assert options(state(), "s") == STORED
        do("CREATE SOURCE r (id INT) FROM KAFKA CONNECTION c (TOPIC 't', isolation_level"
           " 'read_uncommitted', DECODING 'lenient') FORMAT JSON")
        assert options(state(), "r") == {
            "ISOLATION LEVEL": "read_uncommitted", "DECODING": "lenient"
        }
        assert isolation(state(), "s") == "read_committed"
        assert isolation(state(), "r") == "read_uncommitted"
        sink = dependencies.find(state(), "sink", "k")
        assert set(sink.external.options) == {"TOPIC"}
        assert describe_earlier(state()) == ()

    @pytest.mark.usefixtures("setting")
    def test_the_connection_says_so(self, do: Do, state: Now) -> None:
        """What the connection says at CREATE is stored, and goes over what it says later."""
        *_, altered = do(
            "CREATE CONNECTION d TO KAFKA (USING CONNECTION base, kafka.isolation.level "
            "'read_uncommitted'); CREATE SOURCE a (id INT) FROM KAFKA CONNECTION d (TOPIC 't')"
            " FORMAT JSON; ALTER CONNECTION d SET (kafka.isolation.level = 'read_committed')"
        )
        assert altered.notices == (
            "source default.a keeps its ISOLATION LEVEL read_uncommitted, which goes over"
            " kafka.isolation.level",
        )
        assert options(state(), "a")["ISOLATION LEVEL"] == "read_uncommitted"
        assert isolation(state(), "a") == "read_uncommitted"
        do("ALTER SOURCE a RESET (ISOLATION LEVEL)")
        assert isolation(state(), "a") == "read_committed"

    @pytest.mark.usefixtures("setting")
    def test_an_unsafe_override(self, log: MemoryLog, state: Now) -> None:
        """It goes over the source's own option, as over the connection's."""
        found, changes = dependencies.find(state(), "source", "s"), Changes()
        external = msgspec.structs.replace(
            found.external, overrides={"kafka.isolation.level": "read_uncommitted"}
        )
        changes.put("item", found.item_id, msgspec.structs.replace(
            found.item, definition=dependencies.redefine(found.item, external)
        ))
        commit(log, lambda _: changes, kind="test")
        assert isolation(state(), "s") == "read_uncommitted"

    @pytest.mark.usefixtures("setting")
    def test_files(self, do: Do, state: Now) -> None:
        """Sources of files have the one that is about values."""
        do("CREATE CONNECTION f TO FILES (PATH '/data'); CREATE SOURCE a (id INT) FROM FILES "
           "CONNECTION f (PATH 'in')")
        assert options(state(), "a") == {"DECODING": "exact"}

    @pytest.mark.usefixtures("setting")
    def test_unit(self, do: Do, plan: Callable[[str], Any], state: Now) -> None:
        """TIMESTAMP UNIT is for JSON that is decoded exactly, and may be altered."""
        do("ALTER SOURCE s SET (TIMESTAMP UNIT = 'milliseconds')")
        found = dependencies.find(state(), "source", "s").external.options
        assert found["TIMESTAMP UNIT"] == "milliseconds"
        with pytest.raises(InvalidOptions, match="do not make a KAFKA source"):
            plan("ALTER SOURCE s SET (DECODING = 'lenient')")
        with pytest.raises(RefusedStatement, match="TIMESTAMP UNIT is for numbers in JSON"):
            plan("CREATE SOURCE r FROM KAFKA CONNECTION c (TOPIC 't', TIMESTAMP UNIT "
                 "'milliseconds') FORMAT TEXT")


class TestEarlierSources:
    def test_go_on_as_they_did(self, do: Do, state: Now, as_was: Callable[..., None]) -> None:
        """No ALTER of something else gives them the options; the connection's level holds."""
        as_was("s")
        do("ALTER SOURCE s SET (TRIGGER = '5 seconds'); ALTER SOURCE s SET CONNECTION base;"
           "ALTER CONNECTION base SET (kafka.client.id = 'x')")
        assert options(state(), "s") == {}
        assert isolation(state(), "s") is None
        do("ALTER CONNECTION base SET (kafka.isolation.level = 'read_committed')")
        assert isolation(state(), "s") == "read_committed"

    def test_altered(self, do: Do, state: Now, as_was: Callable[..., None]) -> None:
        """SET gives one of them, RESET its default."""
        as_was("s")
        (effect,) = do("ALTER SOURCE s SET (ISOLATION LEVEL = 'read_committed')")
        assert options(state(), "s") == {"ISOLATION LEVEL": "read_committed"}
        assert [each.name for each in effect.restarts] == ["default.s"]
        do("ALTER SOURCE s RESET (DECODING)")
        assert options(state(), "s") == STORED

    def test_a_unit_needs_exact_decoding(
        self, plan: Callable[[str], Any], as_was: Callable[..., None]
    ) -> None:
        """The lenient decoding that an earlier source has knows no unit."""
        as_was("s")
        with pytest.raises(InvalidOptions) as caught:
            plan("ALTER SOURCE s SET (TIMESTAMP UNIT = 'milliseconds')")
        assert [each.code for each in caught.value.problems] == ["CM0713"]
        plan("ALTER SOURCE s SET (TIMESTAMP UNIT = 'milliseconds', DECODING = 'exact')")

    def test_reported(self, do: Do, state: Now, as_was: Callable[..., None]) -> None:
        """Status reports each with the statement that changes it, until it is answered."""
        as_was("s", "far")
        do("ALTER CONNECTION other SET (kafka.isolation.level = 'read_committed')")
        lossy = "values that a column cannot hold arrive as others (rounded, cut off, a number as" \
                " seconds)"
        aborted = "records of aborted transactions arrive"
        before = "reads as the version that created it did"
        assert status_of(state()).earlier == (
            f"source default.s {before}: {aborted} and {lossy}; to change that: ALTER SOURCE "
            "default.s SET (ISOLATION LEVEL = 'read_committed', DECODING = 'exact')",
            f"source default.far {before}: {lossy}; to change that: ALTER SOURCE default.far SET"
            " (DECODING = 'exact')",
        )
        for line in status_of(state()).earlier:
            do(line.partition("to change that: ")[2])
        assert status_of(state()).earlier == ()
        assert options(state(), "s") == STORED

    def test_kept_by_word(self, do: Do, state: Now, as_was: Callable[..., None]) -> None:
        """Who wants it as it is says so, and is asked no more."""
        as_was("s")
        do("ALTER SOURCE s SET (DECODING = 'lenient', ISOLATION LEVEL = 'read_uncommitted')")
        assert describe_earlier(state()) == ()

    def test_show_create(self, state: Now, do: Do, as_was: Callable[..., None]) -> None:
        """The statement that is shown would create a source that reads as this one does."""
        as_was("s")
        text = show_create(state(), dependencies.find(state(), "source", "s"))
        assert "DECODING = 'lenient'" in text
        assert "ISOLATION LEVEL = 'read_uncommitted'" in text
        do(text.replace("default.s ", "default.again "))
        assert isolation(state(), "again") == "read_uncommitted"

    def test_bundled(self, log: MemoryLog, state: Now, as_was: Callable[..., None]) -> None:
        """A release that says nothing of them leaves a source that it bundled before as it was."""
        release = """CREATE CONNECTION mine TO KAFKA (BROKER 'a.example.com:9092');
        CREATE SOURCE b (id BIGINT) FROM KAFKA CONNECTION mine (TOPIC 't') FORMAT JSON;"""

        def ship(text: str) -> list[str]:
            found = load_texts([("streams.sql", text)], name="r", default_schema="app").statements
            shipping = plan_bundled_streams(state(), found)
            if shipping.updates:
                commit(log, lambda _: shipping.updates, kind="ship")
            return [f"{each.action} {each.name}" for each in shipping.streams]

        ship(release)
        assert options(state(), "app.b") == STORED
        as_was("app.b")
        assert ship(release) == []
        assert "DECODING" not in " ".join(list_bundled(state()))
        assert ship(release.replace("TOPIC 't'", "TOPIC 't', DECODING 'exact'")) == ["alter app.b"]
        assert options(state(), "app.b") == {"DECODING": "exact"}
