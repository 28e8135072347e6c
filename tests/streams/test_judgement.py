"""An alteration is judged by what it breaks: what was sick before neither refuses it nor takes it
back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import AlterRolledBack, EngineFailure, ValidationFailed
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import failing_queries
from catalog_migrate.streams.ddl.execute import Result
from catalog_migrate.streams.runtime.judgement import _is_of_finding, is_same_failure
from catalog_migrate.streams.runtime.supervisor import LONGEST_BACK_OFF
from tests.simulation.stream_ports import SimulatedUpstreams
from tests.simulation.stream_run import SINK
from tests.simulation.streaming import SimulatedQueries, SimulatedQuery, StreamWorld
from tests.streams.test_operations import Stage

SECOND = """
CREATE CONNECTION d TO KAFKA (BROKER 'far:9092', SECURITY PROTOCOL 'SASL_PLAINTEXT',
  SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME 'u', SASL PASSWORD SECRET p);
CREATE SOURCE q (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION d (TOPIC 'v') FORMAT JSON;
"""
NO_TOPIC = "sick before, and not waited for: source default.r, option TOPIC: there is no topic u"
PAUSE = "PAUSE SOURCE default.r; then the statement again"

Alter = Callable[[str], Result]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two sources that are about to start."""
    return Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))


@pytest.fixture(params=["runtime", "none"])
def say(stage: Stage, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Alter:
    """Says a statement, to a runtime and without one; where it is carried out is the same."""

    def run(text: str) -> Result:
        if request.param == "none":
            last = {each.item_id: each for each in stage.supervisor.statuses(stage.state)}
            place = "catalog_migrate.streams.catalog.cluster_log.latest"
            monkeypatch.setattr(place, lambda _: last)
            stage.lease(holder="")
            (result,) = stage.client(lambda: None).run(text)
            stage.lease(holder="runtime")
            return result
        (result,) = stage.run(text)
        return result

    return run


def turns(stage: Stage, count: int = 30) -> None:
    for _ in range(count):
        stage.turn()


def lacks(monkeypatch: pytest.MonkeyPatch, address: str, topic: str) -> None:
    """A topic is not there for who asks at an address."""
    access = SimulatedUpstreams.access

    def asked(
        upstreams: SimulatedUpstreams, connector: str, connection: Any, wanted: Any, **more: Any
    ) -> Any:
        there = dict(upstreams.world.topics)
        if connection["BROKER"] == address:
            upstreams.world.topics.pop(topic, None)
        try:
            return access(upstreams, connector, connection, wanted, **more)
        finally:
            upstreams.world.topics.update(there)

    monkeypatch.setattr(SimulatedUpstreams, "access", asked)


class TestMissingBefore:
    """The topic of one source is missing, whatever the connection says."""

    @pytest.fixture(autouse=True)
    def missing(self, stage: Stage) -> None:
        stage.world.topics.pop("u")
        turns(stage)

    def test_does_not_refuse(self, stage: Stage, say: Alter) -> None:
        """The healthy one follows, the sick one is named and not waited for; it starts on the new
        definition once its topic is there."""
        result = say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert next(each.partition(" (remedy")[0] for each in result.notices) == NO_TOPIC
        assert stage.broker == "b:9092"
        stage.world.topics["u"] = [4]
        stage.supervisor.clock.sleep(LONGEST_BACK_OFF)
        stage.run_all()
        assert {query.spec.connection["BROKER"] for query in stage.engine.running} == {"b:9092"}

    def test_is_said_by_explain(self, stage: Stage) -> None:
        """Before anything is done, beside what is well."""
        (result,) = stage.run("EXPLAIN ALTER CONNECTION c SET (BROKER 'b:9092')")
        lines = result.summary.splitlines()
        assert any(
            line.startswith("  sick before source default.r, option TOPIC: there is no topic u")
            for line in lines
        )
        assert not any(line.startswith("  BAD") for line in lines)

    def test_of_a_secret(self, stage: Stage, say: Alter) -> None:
        """A rotation goes through as well."""
        result = say("ALTER SECRET p AS 'env:SECOND'")
        assert result.notices[0].startswith(NO_TOPIC)

    def test_what_else_breaks_refuses(
        self, stage: Stage, say: Alter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What only fails under the new definition is all that the refusal lists, with the
        statement that goes on without it."""
        lacks(monkeypatch, "b:9092", "t")
        with pytest.raises(ValidationFailed) as caught:
            say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        (finding,) = caught.value.findings
        assert (finding.subject, finding.option, finding.code, finding.severity) == (
            "source default.s", "TOPIC", MISSING, "error",
        )
        assert str(finding).startswith("source default.s, option TOPIC: there is no topic t")
        assert "PAUSE SOURCE default.s; then the statement again" in (caught.value.remedy or "")
        assert stage.broker == "a:9092"
        say("PAUSE SOURCE default.s")
        result = say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert result.notices[0].startswith(NO_TOPIC)

    def test_a_sink_below_does_not_wait_for_it(self, stage: Stage) -> None:
        """A sink needs the ids of its source's topics, which nobody knows yet."""
        stage.world.topics["o"] = [0]
        stage.run(SINK.format("k1").replace("FROM s", "FROM r"))
        turns(stage)
        stage.alter("b")
        assert stage.row.state == "confirmed"

    def test_all_of_them_sick(self, stage: Stage) -> None:
        """Nothing is waited for, and the definition is in force."""
        stage.world.topics.pop("t")
        result = stage.alter("b")
        assert stage.row.state == "confirmed"
        assert len([each for each in result.notices if each.startswith("sick before")]) == 2

    def test_the_row_keeps_it(self, stage: Stage) -> None:
        """By item id, for a runtime that takes the operation up."""
        stage.alter("b")
        item_id = dependencies.find(stage.state, "source", "r").item_id
        assert list(stage.row.sick) == [item_id]
        assert any("sick before" in line for line in stage.said)


class TestOnlyUnderTheNew:
    """What the alteration breaks refuses it, whatever was sick before."""

    def test_a_topic_that_is_elsewhere_only(
        self, stage: Stage, say: Alter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.run_all()
        lacks(monkeypatch, "b:9092", "u")
        with pytest.raises(ValidationFailed) as caught:
            say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert PAUSE in (caught.value.remedy or "")

    def test_another_topic_than_before(
        self, stage: Stage, say: Alter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that lacked its topic there, and lacks another one here, is broken."""
        stage.client(lambda: None).run(
            "CREATE SOURCE both (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c"
            " (TOPIC 't,w') FORMAT JSON"
        )
        turns(stage)
        lacks(monkeypatch, "b:9092", "t")
        stage.run("PAUSE SOURCE s")
        with pytest.raises(ValidationFailed) as caught:
            say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        (said,) = map(str, caught.value.findings)
        assert said.startswith("source default.both, option TOPIC: there is no topic t")

    def test_another_cluster(self, stage: Stage, say: Alter) -> None:
        """Positions that belong elsewhere."""
        stage.run_all()
        with pytest.raises(ValidationFailed, match="belongs to cluster"):
            say("ALTER CONNECTION c SET (BROKER 'far:9092')")

    def test_nothing_answers(self, stage: Stage, say: Alter) -> None:
        """Refused also where the old address does not answer either: nothing is known of it."""
        stage.run_all()
        for address in ("a:9092", "b:9092"):
            stage.world.addresses[address] = ""
        with pytest.raises(ValidationFailed, match=r"connection default\.c"):
            say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert stage.broker == "a:9092"


class TestTheOldOneCannotBeAsked:
    """The broker has moved: under the old definition all fail for the connection's own reason."""

    def test_one_that_was_failing_of_it(self, stage: Stage, say: Alter) -> None:
        """It counts as sick, and the healthy one follows the broker."""
        stage.world.topics.pop("u")
        turns(stage)
        stage.world.addresses["a:9092"] = ""
        result = say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert result.notices[0].startswith(NO_TOPIC)

    def test_one_that_was_failing_of_something_else(self, stage: Stage, say: Alter) -> None:
        """What the new definition breaks is not known, so it is refused; a paused one is no matter.
        """
        stage.run_all()
        stage.world.addresses["a:9092"] = ""
        turns(stage)
        stage.world.topics.pop("u")
        with pytest.raises(ValidationFailed) as caught:
            say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert PAUSE in (caught.value.remedy or "")
        assert all("there is no topic u" in each or "is gone" in each
                   for each in map(str, caught.value.findings))
        say("PAUSE SOURCE r")
        say("ALTER CONNECTION c SET (BROKER 'b:9092')")
        assert stage.broker == "b:9092"


class TestTwoConnections:
    """A secret that two connections use, one of which does not answer."""

    @pytest.fixture(autouse=True)
    def down(self, stage: Stage) -> None:
        stage.world.topics["v"] = [1]
        stage.client(lambda: None).run(SECOND)
        stage.world.addresses["far:9092"] = ""
        turns(stage)

    def test_the_healthy_one_is_rotated(self, stage: Stage, say: Alter) -> None:
        result = say("ALTER SECRET p AS 'env:SECOND'")
        sick = [each for each in result.notices if each.startswith("sick before")]
        assert {each.split(": ", 1)[1].split(",")[0] for each in sick} <= {
            "connection default.d", "source default.q"
        }
        assert sick
        turns(stage)
        values = {str(query.spec.connection["SASL PASSWORD"].reveal())  # type: ignore[union-attr]
                  for query in stage.engine.running if query.spec.name.name in "sr"}
        assert values == {"hunter2 of env:SECOND"}

    def test_none_answers(self, stage: Stage, say: Alter) -> None:
        """Then nothing was tried, which is refused; it goes on without validation."""
        stage.world.addresses["a:9092"] = ""
        with pytest.raises(ValidationFailed, match=r"connection default\.d"):
            say("ALTER SECRET p AS 'env:SECOND'")
        external = dependencies.find(stage.state, "secret", "p").external
        assert external.reference == "env:FIRST"

    def test_without_validation(self, stage: Stage) -> None:
        """WITH (VALIDATE = false) asks nothing; a trial is a trial all the same."""
        (explained,) = stage.run("EXPLAIN ALTER SECRET p AS 'env:X' WITH (VALIDATE = false)")
        assert "validation: none, the statement says VALIDATE = false" in explained.summary
        stage.lease(holder="")
        stage.client(lambda: None).run("ALTER SECRET p AS 'env:SECOND' WITH (VALIDATE = false)")
        external = dependencies.find(stage.state, "secret", "p").external
        assert external.reference == "env:SECOND"


class TestInTheTrial:
    """Access works, and a query fails all the same: of a record, of its destination."""

    @pytest.fixture
    def fails_of(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
        """A source fails of this with each batch, at an address."""
        errors: dict[str, str] = {}
        begin = SimulatedQuery.reach

        def reach(query: SimulatedQuery) -> None:
            begin(query)
            error = errors.get(str(query.spec.connection["BROKER"]))
            if error is not None and query.spec.name.name == "r":
                raise EngineFailure(error)

        monkeypatch.setattr(SimulatedQuery, "reach", reach)
        return errors.__setitem__

    def test_of_the_same_as_before(self, stage: Stage, fails_of: Any) -> None:
        """It is no reason to go back, and is named."""
        fails_of("a:9092", "record u:0 7 cannot be read, after 12 ms")
        fails_of("b:9092", "record u:0 7 cannot be read, after 3 ms")
        turns(stage)
        result = stage.alter("b")
        assert stage.row.state == "confirmed"
        assert result.notices[0] == (
            "sick before, and not waited for: source default.r: record u:0 7 cannot be read, after"
            " 12 ms"
        )
        assert stage.broker == "b:9092"

    def test_of_something_new(self, stage: Stage, fails_of: Any) -> None:
        """Then the alteration is taken back."""
        fails_of("a:9092", "record u:0 7 cannot be read")
        fails_of("b:9092", "the destination has no such column")
        turns(stage)
        with pytest.raises(AlterRolledBack, match="no such column"):
            stage.alter("b")
        assert stage.broker == "a:9092"

    def test_of_what_it_did_not_fail_of(self, stage: Stage, fails_of: Any) -> None:
        """A query that ran is waited for."""
        stage.run_all()
        fails_of("b:9092", "record u:0 7 cannot be read")
        with pytest.raises(AlterRolledBack, match="cannot be read"):
            stage.alter("b")


def test_a_plan_that_is_refused_under_both(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark refuses to plan is compared as well."""
    prepare = SimulatedQueries.prepare

    def refused(engine: SimulatedQueries, spec: QuerySpec) -> Any:
        if spec.name.name == "r":
            raise EngineFailure("a format that is broken")
        return prepare(engine, spec)

    monkeypatch.setattr(SimulatedQueries, "prepare", refused)
    turns(stage)
    result = stage.alter("b")
    assert result.notices[0] == (
        "sick before, and not waited for: source default.r: a format that is broken"
    )

    def refused_here(engine: SimulatedQueries, spec: QuerySpec) -> Any:
        if spec.name.name == "r" and spec.connection["BROKER"] == "a:9092":
            raise EngineFailure("refused here")
        return prepare(engine, spec)

    monkeypatch.setattr(SimulatedQueries, "prepare", refused_here)
    with pytest.raises(ValidationFailed, match="refused here"):
        stage.alter("a")


@pytest.mark.parametrize(
    ("error", "finding", "is_so"),
    [
        ("source s reads topics that are not there: orders", "there is no topic orders", True),
        ("topic orders of source s is missing (its id was x)", "there is no topic orders", True),
        ("Topic orders not present in metadata after 60000 ms", "there is no topic orders", True),
        ('relation "public.orders" does not exist', "there is no table orders", True),
        ("source s reads topics that are not there: orders-2", "there is no topic orders", False),
        ("source s reads topics that are not there: eu.orders", "there is no topic orders", True),
        ("Not authorized to access topics: [orders]", "there is no topic orders", False),
        ("Not authorized to access topics: [orders]", "this user may not READ topic orders", True),
        ("no answer from a:9092", "there is no topic orders", False),
        ("", "there is no topic orders", False),
        ("subject orders-value lacks column a", "subject orders-value lacks column a", True),
        ("subject orders-value lacks column a", "subject orders-value lacks column b", False),
    ],
)
def test_whether_an_error_is_of_a_finding(error: str, finding: str, is_so: bool) -> None:
    """The same object, and the same wrong with it."""
    code = {"there": MISSING, "this": FORBIDDEN}.get(finding.partition(" ")[0], "")
    found = Finding("source s", "TOPIC", "error", finding, code=code)
    assert _is_of_finding(error, found, ["orders"]) is is_so


def test_times_are_no_difference() -> None:
    """Clients report how long they tried, which is another time with each try."""
    text = "Connect to a:1 failed: refused (after {}ms in state CONNECT)"
    assert is_same_failure(text.format(0), text.format(17))
    assert is_same_failure("no end after 1.5 s", "no end after 12 s")
    assert not is_same_failure("record 7 cannot be read", "record 8 cannot be read")


def test_what_fails_is_read_from_the_clusters_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queries that are tried again and again; not of those that run or are held."""
    stage.world.topics.pop("u")
    turns(stage)
    last = {each.item_id: each for each in stage.supervisor.statuses(stage.state)}
    monkeypatch.setattr("catalog_migrate.streams.catalog.cluster_log.latest", lambda _: last)
    (error,) = failing_queries(stage.state).values()
    assert error == "source default.r reads topics that are not there: u"
