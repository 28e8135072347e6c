"""Connections that go through a tunnel: links, who restarts, keys, what is refused (no server)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.ssh.tunnels import tunnel_of
from catalog_migrate.errors import (
    InvalidOptions,
    RefusedStatement,
    UnknownItem,
    UnresolvedSecret,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.release.loader import load_texts
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.statements import Unsafe
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.bundled_streams import plan_bundled_streams
from catalog_migrate.streams.ddl.execute import Executor, Result
from catalog_migrate.streams.ddl.show import show, show_create
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.runtime.probes import connections_using
from tests.services.ssh import USER, SSHServer, new_key

Plan = Callable[[str], Effect]
Now = Callable[[], State]

HOST_KEY = "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDBdd0YkcbgxLF6o8c"
TUNNEL = f"""
CREATE SECRET k1 AS 'env:K1';
CREATE SECRET k2 AS 'env:K2';
CREATE CONNECTION ops.t TO SSH TUNNEL (HOST 'bastion', USER me, PRIVATE KEY SECRET k1,
  HOST KEY '{HOST_KEY}');
"""
BEHIND = """
CREATE CONNECTION far TO POSTGRES (USING SSH TUNNEL ops.t, HOST 'db', DATABASE 'd', USER 'u');
CREATE CONNECTION farther TO POSTGRES (USING CONNECTION far, DATABASE 'e');
CREATE SINK q FROM s INTO POSTGRES CONNECTION farther (TABLE 'orders');
"""


@pytest.fixture
def tunnel(do: Any, setting: Any) -> None:
    """``q`` is on ``farther``, whose base ``far`` goes through ``ops.t``; the others are direct."""
    do(TUNNEL + BEHIND)


def restarted(effect: Effect) -> set[str]:
    return {each.name for each in effect.restarts if each.restarts}


@pytest.mark.usefixtures("tunnel")
class TestLinks:
    """What hangs on a tunnel."""

    @pytest.mark.parametrize(
        "statement",
        ["ALTER CONNECTION ops.t SET (PORT 2222)", "ALTER SECRET k1",
         "ALTER CONNECTION ops.t SET (PRIVATE KEY SECRET k2)",
         "ALTER CONNECTION far DROP (SSH TUNNEL)"],
    )
    def test_who_restarts(self, plan: Plan, statement: str) -> None:
        """Exactly the queries that go through it, through other connections too."""
        assert restarted(plan(statement)) == {"default.q"}

    def test_a_tunnel_for_others(self, plan: Plan) -> None:
        """A connection is put behind one by ALTER: its queries restart."""
        assert restarted(plan("ALTER CONNECTION c SET (USING SSH TUNNEL ops.t)")) == {
            "default.s", "default.k"}

    def test_a_registry_behind_one(self, do: Any, plan: Plan) -> None:
        """The sources that decode by it restart too, though their brokers are reached directly."""
        do("CREATE CONNECTION r TO SCHEMA REGISTRY (USING SSH TUNNEL ops.t, URL 'http://r:8081');"
           "CREATE SOURCE a (id BIGINT) FROM KAFKA CONNECTION other (TOPIC 'v') FORMAT AVRO "
           "USING SCHEMA REGISTRY CONNECTION r")
        assert restarted(plan("ALTER CONNECTION ops.t SET (PORT 2222)")) == {
            "default.q", "default.a"}

    def test_the_name_restarts_nobody(self, do: Any, plan: Plan, state: Now) -> None:
        """The link is by id: a renamed tunnel is shown and altered by its new name."""
        before = dependencies.fingerprint(state(), query(state()))
        do("ALTER CONNECTION ops.t RENAME TO ops.gate")
        assert dependencies.fingerprint(state(), query(state())) == before
        far = dependencies.find(state(), "connection", "far")
        assert "USING SSH TUNNEL ops.gate" in create_statement(state(), far)
        assert restarted(plan("ALTER CONNECTION ops.gate SET (PORT 2222)")) == {"default.q"}
        assert restarted(plan("ALTER CONNECTION far SET (PORT 5433)")) == {"default.q"}

    def test_validated_with_it(self, state: Now) -> None:
        """Every connection that goes through it is asked, of its secret's ALTER too."""
        for kind, name in (("connection", "ops.t"), ("secret", "k1")):
            asked = connections_using(state(), dependencies.find(state(), kind, name).item_id)
            assert [dependencies.display(state(), each) for each in asked] == [
                "ops.t", "default.far", "default.farther"]

    def test_dropped(self, do: Any, plan: Plan) -> None:
        """Not while it is used."""
        with pytest.raises(RefusedStatement, match=r"ops\.t is used by connection default\.far"):
            plan("DROP CONNECTION ops.t")
        do("ALTER CONNECTION far DROP (SSH TUNNEL)")
        do("DROP CONNECTION ops.t")

    def test_what_a_query_is_started_from(self, state: Now, monkeypatch: Any) -> None:
        """The tunnel's own options, secrets resolved, beside those of the connection."""
        private, _ = new_key()
        monkeypatch.setenv("K1", private)
        spec = spec_of(state(), query(state()))
        found = tunnel_of(spec.connection)
        assert found is not None
        assert (found.host, found.port, found.user, found.host_key) == (
            "bastion", 22, "me", HOST_KEY)
        assert found.keys == (("PRIVATE KEY", Secret(private)),)
        assert private not in f"{spec!r}{found!r}{found.identity}"

    def test_shown(self, state: Now) -> None:
        """SHOW CREATE gives the statement; public keys where the private ones can be read."""
        keys = {"env:K1": new_key(), "env:K2": new_key()}

        def resolve(reference: str) -> Secret:
            if reference not in keys:
                raise UnresolvedSecret("not here", reference=reference)
            return Secret(keys[reference][0])

        found = dependencies.find(state(), "connection", "ops.t")
        text = show_create(state(), found, resolve=resolve)
        assert text.endswith(f"\n-- public key: {keys['env:K1'][1]}")
        assert parse_one(text) == parse_one(create_statement(state(), found))
        rows = show(state(), "connections", resolve=resolve)
        by_name = {row[0]: dict(zip(rows.columns, row, strict=True)) for row in rows.values}
        assert by_name["default.far"]["uses"] == "ops.t"
        assert by_name["ops.t"]["public_keys"] == f"public key: {keys['env:K1'][1]}"
        keys.clear()
        assert "not known here" in show_create(state(), found, resolve=resolve)


def query(state: State) -> str:
    return dependencies.find(state, "sink", "q").item_id


@pytest.mark.usefixtures("tunnel")
class TestRotation:
    """ALTER CONNECTION … ROTATE KEYS."""

    def test_the_next_key_takes_its_place(self, do: Any, plan: Plan, state: Now) -> None:
        """The first is forgotten; with SET another next one is named at once."""
        with pytest.raises(InvalidOptions, match="no NEXT PRIVATE KEY"):
            plan("ALTER CONNECTION ops.t ROTATE KEYS")
        do("ALTER CONNECTION ops.t SET (NEXT PRIVATE KEY SECRET k2)")
        effect = plan("ALTER CONNECTION ops.t ROTATE KEYS")
        assert restarted(effect) == {"default.q"}
        assert "SET (NEXT PRIVATE KEY SECRET" in " ".join(effect.notices)
        do("CREATE SECRET k3 AS 'env:K3';"
           "ALTER CONNECTION ops.t ROTATE KEYS, SET (NEXT PRIVATE KEY SECRET k3)")
        found = dependencies.find(state(), "connection", "ops.t")
        secret = {name: dependencies.display(state(), item_id)
                  for name, item_id in found.item.links.items()}
        assert secret == {"secret:PRIVATE KEY": "default.k2",
                          "secret:NEXT PRIVATE KEY": "default.k3"}
        do("DROP SECRET k1")

    @pytest.mark.parametrize("name", ["pg", "base"])
    def test_others_have_none(self, plan: Plan, name: str) -> None:
        """A type whose keys are no pairs refuses it."""
        with pytest.raises(InvalidOptions, match="has no keys to rotate"):
            plan(f"ALTER CONNECTION {name} ROTATE KEYS")


@pytest.mark.usefixtures("tunnel")
class TestRefused:
    """What a tunnel is not for."""

    @pytest.mark.parametrize(
        ("statement", "error", "said"),
        [
            ("CREATE CONNECTION x TO KAFKA (USING SSH TUNNEL nope, BROKER 'h:1')", UnknownItem,
             "no connection called nope"),
            ("CREATE CONNECTION x TO KAFKA (USING SSH TUNNEL pg, BROKER 'h:1')", RefusedStatement,
             "is POSTGRES, no SSH TUNNEL"),
            ("CREATE CONNECTION x TO FILES (USING SSH TUNNEL ops.t, PATH '/d')", InvalidOptions,
             "no option SSH TUNNEL"),
            ("CREATE CONNECTION x TO SSH TUNNEL (HOST 'h', USER u, PRIVATE KEY SECRET k1)",
             InvalidOptions, "option HOST KEY is required"),
            ("CREATE CONNECTION x TO SSH TUNNEL (HOST 'h', USER u, PRIVATE KEY 'text', "
             f"HOST KEY '{HOST_KEY}')", InvalidOptions, "PRIVATE KEY takes a secret"),
            ("CREATE CONNECTION x TO SSH TUNNEL (HOST 'h', USER u, PRIVATE KEY SECRET k1, "
             "HOST KEY 'any')", InvalidOptions, "a public key on one line"),
            ("CREATE SOURCE x (id INT) FROM SSH TUNNEL CONNECTION ops.t (a 1)", InvalidOptions,
             "no sources"),
        ],
    )
    def test_statements(
        self, plan: Plan, statement: str, error: type[Exception], said: str
    ) -> None:
        """Each says why."""
        with pytest.raises(error, match=said):
            plan(statement)

    @pytest.mark.parametrize(
        "statement",
        ["CREATE CONNECTION x TO KAFKA (USING SSH TUNNEL ops.t, BROKER 'k2:9092')",
         "CREATE CONNECTION x TO KAFKA (USING SSH TUNNEL ops.t, BROKER 'k1:9093,k2:9092')",
         "ALTER CONNECTION other SET (USING SSH TUNNEL ops.t, BROKER 'k2:9092')",
         "ALTER CONNECTION kb SET (BROKER 'k1:9093,k2:9092')"],
    )
    def test_one_local_port_for_two_brokers(self, do: Any, plan: Plan, statement: str) -> None:
        """Clients of either are told localhost and this port; what is the same is no conflict."""
        do("CREATE CONNECTION ka TO KAFKA (USING SSH TUNNEL ops.t, BROKER 'k1:9092');"
           "CREATE CONNECTION kb TO KAFKA (USING CONNECTION ka, kafka.linger.ms '5')")
        with pytest.raises(RefusedStatement, match="different brokers on port 9092"):
            plan(statement)
        do("ALTER CONNECTION ka SET (BROKER 'k3:9092')")

    def test_not_a_query_s_own(self, state: Now) -> None:
        """An unsafe operation puts no tunnel over that of a source's connection."""
        statement = parse_one("ALTER SOURCE s UNSAFE SET (SSH TUNNEL t) REASON 'r'")
        assert isinstance(statement, Unsafe)
        with pytest.raises(UnsafeBlocked, match="property of its connection"):
            request_of(state(), statement)


class TestBeforeTheCommit:
    """A real SSH server is asked before anything is written."""

    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[SSHServer]:
        """One that knows K1; K2 is another key, K3 is none, K4 is encrypted."""
        keys = {"K1": new_key(), "K2": new_key(), "K3": ("none", ""), "K4": new_key("sesame")}
        for name, (private, _) in keys.items():
            monkeypatch.setenv(name, private)
        with SSHServer([keys["K1"][1]], {}) as made:
            yield made

    @pytest.fixture
    def execute(self, log: MemoryLog) -> Callable[[str], list[Result]]:
        """Executes statements on an empty catalog with these secrets."""
        executor = Executor(log, lambda _state, _item: None, SystemClock())
        for number in range(1, 5):
            executor.run(f"CREATE SECRET k{number} AS 'env:K{number}'")
        return executor.run

    def test_refused(
        self, server: SSHServer, execute: Callable[[str], list[Result]], state: Now
    ) -> None:
        """Each error names connection, option and remedy, in time; nothing is committed."""
        right = {"HOST": "'127.0.0.1'", "PORT": str(server.port), "USER": USER,
                 "PRIVATE KEY": "SECRET k1", "HOST KEY": f"'{server.fingerprint()}'"}
        wrong = {"PORT": ["1"], "HOST": ["'nowhere.invalid'"], "HOST KEY": [f"'{HOST_KEY}'"],
                 "PRIVATE KEY": ["SECRET k2", "SECRET k3", "SECRET k4"]}
        before = state().version
        for option, values in wrong.items():
            for value in values:
                written = ", ".join(f"{k} {v}" for k, v in {**right, option: value}.items())
                begun = time.monotonic()
                with pytest.raises(ValidationFailed) as caught:
                    execute(f"CREATE CONNECTION t TO SSH TUNNEL ({written})")
                assert time.monotonic() - begun < 15.0
                assert f"connection default.t, option {option}: " in str(caught.value)
                assert "(remedy: " in str(caught.value)
        assert state().version == before
        execute("CREATE CONNECTION t TO SSH TUNNEL ("
                + ", ".join(f"{k} {v}" for k, v in right.items()) + ")")
        server.forbidden.add(("db", 5432))
        with pytest.raises(ValidationFailed, match=r"tunnel default\.t: option USER: "):
            execute("CREATE CONNECTION far TO POSTGRES (USING SSH TUNNEL t, HOST 'db', "
                    "DATABASE 'd', USER 'u')")
        (rows,) = execute("VALIDATE CONNECTION t")
        assert rows.rows is not None
        assert re.search(r"logged in to \S+:\d+ \(\S+\) as tunnel", str(rows.rows.values))

    def test_without_host_key(
        self, server: SSHServer, execute: Callable[[str], list[Result]], state: Now
    ) -> None:
        """What the server shows is printed, with how to compare it, and not taken over."""
        for where, said in (
            (f"HOST '127.0.0.1', PORT {server.port}", [server.host_key, server.fingerprint(),
             server.fingerprint(1), "were not checked", "ssh-keygen -lf"]),
            ("HOST '127.0.0.1', PORT 1", ["shows no key from here"]),
            ("PORT 1", ["option HOST is required"]),
        ):
            before = state().version
            with pytest.raises(InvalidOptions, match="option HOST KEY is required") as caught:
                execute(f"CREATE CONNECTION t TO SSH TUNNEL ({where}, USER u, "
                        "PRIVATE KEY SECRET k1)")
            assert [each for each in said if each not in str(caught.value)] == []
            assert state().version == before


def test_bundled_with_a_release(state: Now) -> None:
    """In whatever order they stand, a tunnel comes before what goes through it; names get the
    release's schema."""
    behind = BEHIND.replace("ops.t", "t").rpartition("CREATE SINK")[0]
    text = behind + TUNNEL.replace("ops.t", "t")
    statements = load_texts([("s.sql", text)], name="r", default_schema="app").statements
    assert any("USING SSH TUNNEL app.t" in each for each in statements)
    plan = plan_bundled_streams(state(), statements)
    assert [each.action for each in plan.streams] == ["create"] * 5
