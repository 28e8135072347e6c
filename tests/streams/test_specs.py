"""No plain text stands where a secret belongs; what an older version stored is shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.catalog.records import ClusterRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.cli.main import main
from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.errors import EditedPlan, InvalidOptions, UnsafeBlocked
from catalog_migrate.model.objects import OptionValue, SecretRef
from catalog_migrate.release.bundled_streams import canonical_statements
from catalog_migrate.release.release import Place
from catalog_migrate.sql.parser import parse, parse_one
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.catalog.query_spec import plain_secrets, spec_of
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.positions import plan as plans
from catalog_migrate.streams.positions import planning
from catalog_migrate.streams.positions.operation_row import new_row
from catalog_migrate.streams.positions.requests import Request, request_of, require_checked
from catalog_migrate.streams.runtime.ports import Ports
from tests.decisions import Changes, commit
from tests.streams.conftest import SETTING

VALUE = "hunter2-in-the-clear"
AsWas = Callable[..., State]


def asked(state: State, actions: str, name: str = "SOURCE s") -> Request:
    """The request of an unsafe statement."""
    return request_of(state, parse_one(f"ALTER {name} UNSAFE {actions} REASON 'x'"))  # type: ignore[arg-type]


@pytest.fixture
def as_was(log: MemoryLog, setting: object) -> AsWas:
    """Stores plain texts over the connection of source ``s``: by default its password."""
    return lambda **overrides: _store(log, overrides or {"SASL PASSWORD": VALUE})


class TestOneCheck:
    """Every way by which an option comes in refuses the plain text of a secret."""

    @pytest.mark.parametrize(
        ("option", "code"),
        [
            ("SASL PASSWORD", "CM0714"), ("sasl_password", "CM0714"), ("SSL KEY", "CM0714"),
            ("SSL KEY PASSWORD", "CM0714"), ("kafka.sasl.jaas.config", "CM0717"),
            ("kafka.ssl.keystore.key", "CM0717"), ("kafka.my.token", "CM0717"),
        ],
    )
    @pytest.mark.parametrize("name", ["SOURCE s", "SINK k"])
    @pytest.mark.usefixtures("setting")
    def test_unsafe_set(
        self, state: Callable[[], State], name: str, option: str, code: str
    ) -> None:
        """UNSAFE SET refuses it as the safe ALTER does, and does not show it."""
        with pytest.raises(InvalidOptions) as caught:
            asked(state(), f"SET ({option} = '{VALUE}')", name)
        assert [problem.code for problem in caught.value.problems] == [code]
        assert VALUE not in str(caught.value)

    @pytest.mark.usefixtures("setting")
    def test_every_way(self, plan: Callable[[str], Any], state: Callable[[], State]) -> None:
        """CREATE, ALTER, a release and UNSAFE SET say the same."""
        options = f"(BROKER 'b:1', SECURITY PROTOCOL 'SASL_SSL', SASL MECHANISMS 'PLAIN', " \
                  f"SASL USERNAME 'u', SASL PASSWORD '{VALUE}')"
        texts = []
        for statement in (
            f"CREATE CONNECTION d TO KAFKA {options}",
            f"ALTER CONNECTION base SET (SASL PASSWORD = '{VALUE}')",
        ):
            with pytest.raises(InvalidOptions) as caught:
                plan(statement)
            texts.append(str(caught.value))
        shipped = [(f"CREATE CONNECTION d TO KAFKA {options}", Place("a.sql"))]
        texts.append("\n".join(map(str, canonical_statements(shipped, default_schema="x")[1])))
        with pytest.raises(InvalidOptions) as caught:
            asked(state(), f"SET (SASL PASSWORD = '{VALUE}')")
        texts.append(str(caught.value))
        assert all("CM0714 " in text and VALUE not in text for text in texts)

    @pytest.mark.usefixtures("setting")
    def test_all_values_are_checked(self, state: Callable[[], State]) -> None:
        """What is set over a connection is read as the connection's own options are."""
        with pytest.raises(InvalidOptions, match="CM0716 option BROKER"):
            asked(state(), "SET (BROKER = 'no address'), RESET SPLITS")
        with pytest.raises(InvalidOptions, match="CM0715 option SECURITY PROTOCOL"):
            asked(state(), "SET (SECURITY PROTOCOL = SECRET pw)")
        (part,) = asked(
            state(), "SET (security_protocol = sasl_ssl, SASL PASSWORD = SECRET pw)"
        ).parts
        assert part.after.external is not None
        assert part.after.external.overrides == {
            "SECURITY PROTOCOL": "SASL_SSL", "SASL PASSWORD": SecretRef("pw"),
        }

    @pytest.mark.usefixtures("setting")
    def test_not_from_a_request_that_is_made_already(
        self, log: MemoryLog, state: Callable[[], State]
    ) -> None:
        """A saved plan, an undo or an older version's row brings none in: nothing is changed."""
        request = _with_plain(asked(state(), "SET (kafka.client.id = 'x')"))
        with pytest.raises(InvalidOptions, match="CM0714"):
            require_checked(request)
        with pytest.raises(InvalidOptions, match="CM0714"):
            planning.plan_unsafe(state(), request, "x", ports=Ports(Secret), now=0.0, at="")
        row = new_row(state(), request, (), reason="x", who="w", host="h", at="", limit=1.0)
        changes = Changes()
        changes.put("cluster", row.cluster, ClusterRecord(unsafe=True))
        changes.put("operation", "op1", row)
        commit(log, lambda _: changes, kind="test")
        client = Executor(log, lambda _state, _item: None, SystemClock()).unsafe
        with pytest.raises(UnsafeBlocked, match="op1") as caught:
            client.run(request, "x", confirm=lambda _: True, key="op1")
        assert "CM0714" in str(caught.value.data)
        assert VALUE not in str(caught.value)
        assert state().operations["op1"].state == "refused"
        assert plain_secrets(state()) == ()


class TestStoredByAnOlderVersion:
    """It works until it is replaced, and is shown nowhere."""

    def test_it_runs_and_is_hidden(self, as_was: AsWas) -> None:
        """The query gets the value as a secret: errors that repeat it are scrubbed."""
        state = as_was(**{"SASL PASSWORD": VALUE, "kafka.sasl.jaas.config": f"x {VALUE}",
                          "kafka.client.id": "mine"})
        item = dependencies.find(state, "source", "s").item_id
        spec = spec_of(state, item, resolve=lambda _: Secret("other"))
        assert spec.connection["SASL PASSWORD"] == Secret(VALUE)
        assert isinstance(spec.connection["kafka.sasl.jaas.config"], Secret)
        assert spec.connection["kafka.client.id"] == "mine"
        assert VALUE not in Redactor.of(spec.connection).scrub(f"login x {VALUE} failed")

    def test_show_create(self, as_was: AsWas) -> None:
        """``***`` stands for it, and cannot be set."""
        state = as_was()
        shown = create_statement(state, dependencies.find(state, "source", "s"))
        assert "SASL PASSWORD = '***'" in shown
        assert VALUE not in shown
        with pytest.raises(InvalidOptions, match="CM0714"):
            asked(state, "SET (SASL PASSWORD = '***')")

    def test_until_it_is_replaced(self, as_was: AsWas) -> None:
        """Other changes leave it as it is; said again it is refused; a secret takes its place."""
        state = as_was()
        request = asked(state, "SET (kafka.client.id = 'x')")
        require_checked(request)
        assert _overrides(request) == {"SASL PASSWORD": VALUE, "kafka.client.id": "x"}
        with pytest.raises(InvalidOptions, match="CM0714"):
            asked(state, f"SET (SASL PASSWORD = '{VALUE}')")
        request = asked(state, "SET (SASL PASSWORD = SECRET pw)")
        require_checked(request)
        assert _overrides(request) == {"SASL PASSWORD": SecretRef("pw")}
        require_checked(asked(state, "DROP (SASL PASSWORD)"))

    def test_undo_does_not_bring_it_back(self, as_was: AsWas) -> None:
        """What replaced it is undone only to a definition that may be written."""
        (part,) = asked(as_was(), "SET (SASL PASSWORD = SECRET pw)").parts
        back = msgspec.structs.replace(part, before=part.after, after=part.before)
        with pytest.raises(InvalidOptions, match="CM0714"):
            require_checked(Request((back,)))

    def test_a_saved_plan(self, as_was: AsWas, tmp_path: Path) -> None:
        """The file does not hold it; applied, the definition keeps it."""
        state = as_was()
        request = asked(state, "SET (kafka.client.id = 'x')")
        plan = plans.UnsafePlan(
            state.lineage, "", "x", "i1", request, (), Totals.over(())
        )
        file = tmp_path / "plan.json"
        file.write_bytes(plans.encode_plan(plan))
        assert VALUE not in file.read_text()
        back = planning.approve(state, plans.read_plan(str(file)), 0)
        assert back.parts == request.parts

    def test_a_plan_of_an_older_version(self, as_was: AsWas, tmp_path: Path) -> None:
        """One that holds it is refused unread, because it would be printed."""
        state = as_was()
        plan = plans.UnsafePlan(
            state.lineage, "", "x", "i1", asked(state, "RESET SPLITS"), (), Totals.over(())
        )
        sealed = {"plan": plan, "hash": plans._hash(plan)}
        file = tmp_path / "plan.json"
        file.write_bytes(msgspec.json.encode(sealed))
        with pytest.raises(EditedPlan, match="has a secret as plain text") as caught:
            plans.read_plan(str(file))
        assert VALUE not in str(caught.value)


class TestCommandLine:
    """In process, on a catalog in a directory."""

    @pytest.fixture(autouse=True)
    def catalog(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogLog:
        """The catalog that the configuration names, with the setting of all tests here."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", str(tmp_path / "c"))
        log = open_log(str(tmp_path / "c"))
        create_catalog(log, warehouse=str(tmp_path / "w"))
        for parsed in parse(SETTING):
            changes = plan_statement(read_state(log), parsed.statement).updates
            commit(log, lambda _, changes=changes: changes, kind="test")  # type: ignore[misc]
        return log

    def test_alter_with_set(
        self, catalog: CatalogLog, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Exit 3 and CM0714 before anything is asked or written, dry or not."""
        version = catalog.version()
        line = ["unsafe", "alter", "default.s", "--set", f"SASL PASSWORD={VALUE}", "--to",
                "committed", "--reason", "x"]
        for more in (["--yes"], ["--plan"], ["--out", "plan.json"]):
            assert main([*line, *more]) == 3
        told = capsys.readouterr()
        assert told.err.count("CM0714 ") == 3
        assert VALUE not in told.out + told.err
        assert main([*line[:4], f"={VALUE}", *line[5:]]) == 64
        assert VALUE not in capsys.readouterr().err
        assert catalog.version() == version
        assert not Path("plan.json").exists()

    def test_a_runtime_warns(
        self, catalog: CatalogLog, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It goes on with what an older version stored, and says first where that stands."""
        _store(catalog, {"SASL PASSWORD": VALUE})
        monkeypatch.setenv("JAVA_HOME", "/nonexistent")
        monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
        assert main(["run"]) != 0
        told = capsys.readouterr().err
        assert (
            "warning: source default.s: SASL PASSWORD is in the catalog as plain text; `doctor`"
            " says what to do" in told
        )
        assert VALUE not in told

    def test_doctor(self, catalog: CatalogLog, capsys: pytest.CaptureFixture[str]) -> None:
        """It names object and option, never the value, and that the history keeps the value."""
        assert _trial("secrets", capsys)["ok"]
        _store(catalog, {"SASL PASSWORD": VALUE})
        found = _trial("secrets", capsys)
        assert found == {
            "name": "secrets", "ok": False,
            "text": "CM0710 the value of a secret is in the catalog as plain text: "
            "source default.s: SASL PASSWORD",
            "remedy": "put a secret in its place (ALTER SOURCE default.s UNSAFE SET (SASL "
            "PASSWORD = SECRET name) REASON 'rotated'), then rotate the value where it is checked: "
            "the catalog's history keeps the old one",
        }

    def test_shown_nowhere(
        self, catalog: CatalogLog, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """No verb that looks at the catalog prints it."""
        _store(catalog, {"SASL PASSWORD": VALUE})
        for line in (
            ["sql", "-c", "SHOW CREATE SOURCE s"], ["sql", "-c", "SHOW SOURCES"],
            ["sql", "-c", "SHOW OPERATIONS"], ["show", "default.s", "--format", "json"],
            ["status", "--format", "json"], ["history", "--format", "json"],
            ["history", "default.s"], ["unsafe", "list", "--format", "json"],
            ["sql", "-c", "EXPLAIN ALTER SOURCE s SET (TRIGGER = '2 seconds')"],
        ):
            assert main(line) == 0, line
            told = capsys.readouterr()
            assert VALUE not in told.out + told.err, line


def _trial(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """One trial of ``doctor``; the others may fail where nothing is set up for them."""
    main(["doctor", "--no-spark", "--format", "json"])
    (found,) = (each for each in json.loads(capsys.readouterr().out) if each["name"] == name)
    return dict(found)


def _store(log: CatalogLog, overrides: dict[str, OptionValue]) -> State:
    """Put options over the connection of source ``s``, unchecked, as older versions did."""
    state = read_state(log)
    found = dependencies.find(state, "source", "s")
    external = msgspec.structs.replace(found.external, overrides=overrides)
    changes = Changes()
    changes.put(
        "item", found.item_id,
        msgspec.structs.replace(found.item, definition=dependencies.redefine(found.item, external)),
    )
    return commit(log, lambda _: changes, kind="test")


def _with_plain(request: Request) -> Request:
    """The request with the plain text of a secret in what it leads to."""
    (part,) = request.parts
    external = part.after.external
    assert external is not None
    external = msgspec.structs.replace(external, overrides={"SASL PASSWORD": VALUE})
    after = msgspec.structs.replace(part.after, external=external)
    return Request((msgspec.structs.replace(part, after=after),))


def _overrides(request: Request) -> dict[str, OptionValue]:
    external = request.parts[0].after.external
    assert external is not None
    return external.overrides
