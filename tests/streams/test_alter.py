"""ALTER CONNECTION, SECRET, SOURCE and SINK, PAUSE and RESUME: merged, checked, who restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.errors import CommitConflict, InvalidOptions, RefusedStatement
from catalog_migrate.model.findings import Finding
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import Effect
from tests.decisions import Changes
from tests.services.left_behind import leave

Plan = Callable[[str], Effect]
Now = Callable[[], State]


def restarts(effect: Effect) -> dict[str, bool]:
    """Name -> whether it restarts."""
    return {each.name: each.restarts for each in effect.restarts}


class TestFanOut:
    def test_through_connections(self, plan: Plan, setting: Any) -> None:
        """A base reaches every source and sink below it, through other connections too."""
        effect = plan("ALTER CONNECTION base SET (BROKER 'n.example.com:9092')")
        assert restarts(effect) == {"default.s": True, "default.k": True}

    def test_another_branch(self, plan: Plan, setting: Any) -> None:
        """Queries on another connection are not even looked at."""
        effect = plan("ALTER CONNECTION other SET (BROKER 'n.example.com:9092')")
        assert restarts(effect) == {"default.far": True}

    def test_overridden(self, do: Any, plan: Plan, setting: Any) -> None:
        """What a connection sets itself, its base cannot change: nothing restarts below it."""
        do("ALTER CONNECTION base SET (kafka.linger.ms '1')")
        effect = plan("ALTER CONNECTION base SET (kafka.linger.ms '9')")
        assert restarts(effect) == {"default.s": False, "default.k": False}
        assert {each.reason for each in effect.restarts} == {"its definition comes out the same"}

    @pytest.mark.parametrize(
        "text",
        [
            "ALTER CONNECTION base SET (BROKER 'a.example.com:9092')",
            "ALTER CONNECTION base SET (BROKER ' a.example.com:9092 ')",
            "ALTER CONNECTION base DROP (kafka.client.id)",
            "ALTER CONNECTION IF EXISTS nope SET (BROKER 'x:1')",
            "ALTER SOURCE s SET (TRIGGER '1 second')",
        ],
    )
    def test_nothing_to_do(self, do: Any, plan: Plan, setting: Any, text: str) -> None:
        """Equal values, however written, change nothing and restart nothing; a notice says so."""
        do("ALTER SOURCE s SET (TRIGGER '1000 milliseconds')")
        effect = plan(text)
        assert effect.updates == ()
        assert effect.notices

    @pytest.mark.parametrize(
        "text",
        ["COMMENT ON CONNECTION base IS 'new'", "ALTER CONNECTION c RENAME TO d",
         "ALTER SOURCE s RENAME TO t"],
    )
    def test_comments_and_names(self, plan: Plan, state: Now, setting: Any, text: str) -> None:
        """They change the catalog, and the fingerprint of no query."""
        effect = plan(text)
        assert effect.updates
        after = preview(state(), effect.updates)
        for found in dependencies.queries(state()):
            assert dependencies.fingerprint(after, found.item_id) == dependencies.fingerprint(
                state(), found.item_id
            )

    @pytest.mark.parametrize(
        ("renamed", "altered"),
        [("SECRET pw", "CONNECTION base SET (kafka.linger.ms '7')"),
         ("CONNECTION base", "CONNECTION c SET (kafka.linger.ms '7')"),
         ("CONNECTION c", "SOURCE s SET (TRIGGER '7 seconds')")],
    )
    def test_what_was_renamed(
        self, do: Any, plan: Plan, state: Now, setting: Any, renamed: str, altered: str
    ) -> None:
        """Who uses a thing is altered as before, though another has taken the old name."""
        kind, name = renamed.split()
        do(f"ALTER {renamed} RENAME TO new")
        do(f"CREATE SECRET {name} AS 'env:OTHER'" if kind == "SECRET"
           else f"CREATE CONNECTION {name} TO KAFKA (BROKER 'else:1')")
        effect = plan(f"ALTER {altered}")
        assert effect.alteration is not None
        assert effect.alteration.links_after == effect.alteration.links_before

    def test_topics_of_what_a_sink_reads(self, state: Now, setting: Any) -> None:
        """A source moved to other topics: a KAFKA sink forms the keys of its rows with their ids,
        in whatever cluster it runs. Other news of the source's positions restart nobody."""
        source, sink = (dependencies.find(state(), *each).item_id for each in (
            ("source", "s"), ("sink", "k"),
        ))

        def after(**known: Any) -> State:
            changes = Changes()
            changes.put("stream", source, StreamRecord("c", **known))
            return state().apply_edits(9, changes.effective(state()))

        old = after(topics={"t": "1"})
        again = after(topics={"t": "1"}, generation=1)
        moved = after(topics={"u": "2"}, former={"t": "1"})
        assert dependencies.fingerprint(old, sink) == dependencies.fingerprint(again, sink)
        assert dependencies.fingerprint(old, sink) != dependencies.fingerprint(moved, sink)
        assert dependencies.fingerprint(old, source) == dependencies.fingerprint(moved, source)

    def test_a_secret_behind_the_same_reference(self, plan: Plan, setting: Any) -> None:
        """ALTER SECRET raises the revision: who uses it restarts, though nothing else changed."""
        effect = plan("ALTER SECRET pw")
        assert restarts(effect) == {"default.s": True, "default.k": True}

    def test_a_held_query(self, do: Any, plan: Plan, setting: Any) -> None:
        """A paused query is not started by an ALTER; the plan says why."""
        do("PAUSE SINK k REASON 'disk'")
        effect = plan("ALTER SECRET pw")
        assert restarts(effect) == {"default.s": True, "default.k": False}
        assert "it is held (disk)" in effect.restarts[1].reason

    def test_another_connection(self, plan: Plan, setting: Any) -> None:
        """SET CONNECTION restarts the one query."""
        effect = plan("ALTER SOURCE s SET CONNECTION base")
        assert restarts(effect) == {"default.s": True}
        with pytest.raises(RefusedStatement, match="is POSTGRES"):
            plan("ALTER SOURCE s SET CONNECTION pg")

    def test_a_setting(self, plan: Plan, setting: Any) -> None:
        """What is safe in place is altered in place."""
        effect = plan("ALTER SOURCE s SET (TRIGGER '5 seconds', MAX OFFSETS PER TRIGGER 100)")
        assert restarts(effect) == {"default.s": True}
        with pytest.raises(InvalidOptions, match="TOPIC"):
            plan("ALTER SOURCE s SET (TOPIC 'u')")


class TestWhole:
    def test_several_actions(self, do: Any, state: Now, setting: Any) -> None:
        """SET, DROP and RESET in one statement make one new definition."""
        do("ALTER CONNECTION base SET (BROKER 'x.example.com:1', kafka.client.id 'me'), "
           "DROP (SASL PASSWORD, SASL USERNAME, SASL MECHANISMS), RESET (SECURITY PROTOCOL)")
        base = dependencies.find(state(), "connection", "base")
        assert base.external.options == {
            "BROKER": "x.example.com:1", "kafka.client.id": "me"
        }
        assert base.item.links == {}
        assert base.item.uses == ()

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("ALTER CONNECTION base DROP (BROKER)", "option BROKER is required"),
            ("ALTER CONNECTION base SET (BROKER 'x:1'), DROP (BROKER)", "in SET and DROP"),
            ("ALTER CONNECTION base SET (BROKER 'x:1'), SET (BROKER 'y:1')", "twice"),
            ("ALTER CONNECTION base SET (SECURITY PROTOCOL 'PLAINTEXT')", "SASL PASSWORD"),
            ("ALTER CONNECTION base SET (BROKR 'x:1')", "did you mean BROKER"),
            ("ALTER CONNECTION base SET (SASL PASSWORD 'geheim')", "takes a secret"),
            ("ALTER CONNECTION other SET (SECURITY PROTOCOL 'SASL_SSL')", "SASL USERNAME"),
        ],
    )
    def test_refused(self, plan: Plan, setting: Any, text: str, says: str) -> None:
        """The merged definition is checked as a whole CREATE; values are never repeated."""
        with pytest.raises(InvalidOptions) as caught:
            plan(text)
        assert says in str(caught.value)
        assert "geheim" not in str(caught.value)

    def test_those_below_must_stay_whole(self, do: Any, plan: Plan, setting: Any) -> None:
        """A change that is right for a base and wrong for who inherits from it names the latter."""
        do("CREATE CONNECTION mine TO KAFKA (USING CONNECTION base, SASL USERNAME 'me')")
        with pytest.raises(InvalidOptions, match=r"default\.mine, which uses default\.base"):
            plan("ALTER CONNECTION base SET (SECURITY PROTOCOL 'PLAINTEXT'), "
                 "DROP (SASL USERNAME, SASL PASSWORD, SASL MECHANISMS)")

    def test_the_type(self, plan: Plan, setting: Any) -> None:
        """AS is only compared."""
        assert plan("ALTER CONNECTION base AS KAFKA SET (BROKER 'x.example.com:1')").updates
        with pytest.raises(RefusedStatement, match="is KAFKA, the statement says AS POSTGRES"):
            plan("ALTER CONNECTION base AS POSTGRES SET (BROKER 'x:1')")

    def test_circles(self, plan: Plan, setting: Any) -> None:
        """A connection must not use itself, through others either."""
        for base in ("base", "c"):
            with pytest.raises(RefusedStatement, match="in a circle"):
                plan(f"ALTER CONNECTION base SET (USING CONNECTION {base})")


class TestHolds:
    def test_a_set(self, do: Any, state: Now, setting: Any) -> None:
        """Holds are a set: each reason once, resumed one by one or together."""
        do("PAUSE SOURCE s REASON 'a'; PAUSE SOURCE s REASON 'b'")
        (again,) = do("PAUSE SOURCE s REASON 'a'")
        assert again.updates == ()
        (effect,) = do("RESUME SOURCE s REASON 'a'")
        assert effect.notices == ("still held by operator: b",)
        do("PAUSE SOURCE s REASON 'c'; RESUME SOURCE s")
        assert dict(state().holds) == {}

    def test_what_a_hold_has_seen(self, log: Any, do: Any, state: Now, setting: Any) -> None:
        """Counts as what the source depends on once it is resumed from that hold, not from one of
        the operator's."""
        from catalog_migrate.catalog.records import HoldRecord
        from tests.decisions import commit

        source = dependencies.find(state(), "source", "s").item_id

        def held(_: State) -> Changes:
            changes = Changes()
            changes.put("stream", source, StreamRecord("c", survey="old", survey_at_hold="new"))
            changes.put("hold", f"{source}/upstream/1", HoldRecord(source, "upstream", "it"))
            return changes

        commit(log, held, kind="hold")
        do("PAUSE SOURCE s REASON 'a'; RESUME SOURCE s REASON 'a'")
        assert state().streams[source].survey == "old"
        do("RESUME SOURCE s")
        assert state().streams[source] == StreamRecord("c", survey="new")

    def test_the_serial_stays(self, do: Any, state: Now, setting: Any) -> None:
        """A pause changes no definition, so an approved plan does not go stale by it."""
        before = state().serial
        do("PAUSE SOURCE s")
        assert state().serial == before


def test_submit_refuses_a_second_operation(log: Any, do: Any, setting: Any, state: Now) -> None:
    """Two ALTERs of one connection: the first is at work, the second gets SQLSTATE 40001."""
    from catalog_migrate.catalog.commits import commit
    from catalog_migrate.catalog.records import OperationRecord
    from catalog_migrate.streams.catalog.requirements import ask_for

    base = dependencies.find(state(), "connection", "base")
    source = dependencies.find(state(), "source", "s")

    def row(**changes: Any) -> OperationRecord:
        return OperationRecord(
            kind="alter", state="validating", target=base.item_id,
            before=base.item.definition, after=base.item.definition,
            dependents=(source.item_id,), **changes,
        )

    commit(log, ask_for(row(), "1", "test", None))
    with pytest.raises(CommitConflict, match="operation 1 is at work") as caught:
        commit(log, ask_for(row(), "2", "test", None))
    assert caught.value.sqlstate == "40001"
    assert list(state().operations) == ["1"]


def test_submit_refuses_what_was_planned_from_something_else(
    log: Any, do: Any, setting: Any, state: Now
) -> None:
    """An ALTER planned from a definition that is no more gets 40001."""
    from catalog_migrate.catalog.commits import commit
    from catalog_migrate.catalog.records import OperationRecord
    from catalog_migrate.streams.catalog.requirements import ask_for

    base = dependencies.find(state(), "connection", "base")
    do("ALTER CONNECTION base SET (kafka.client.id 'other')")
    planned = OperationRecord(
        kind="alter", state="validating", target=base.item_id, before=base.item.definition,
        after=base.item.definition,
    )
    with pytest.raises(CommitConflict, match=r"by another process meanwhile: kafka\.client"):
        commit(log, ask_for(planned, "1", "test", None))
    assert dict(state().operations) == {}


def test_an_unsafe_request_says_what_changed(do: Any, setting: Any, state: Now) -> None:
    """One that was made on another definition gets 40001 and the options that differ."""
    from catalog_migrate.sql.parser import parse_one
    from catalog_migrate.streams.positions.planning import Bound
    from catalog_migrate.streams.positions.requests import request_of

    asked: Any = parse_one("ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest)")
    request = request_of(state(), asked)
    do("ALTER SOURCE s SET (TRIGGER = '7 seconds')")
    with pytest.raises(CommitConflict, match="by another process meanwhile: TRIGGER") as caught:
        Bound(request).check(state())
    assert str(caught.value).startswith("CM0210 (SQLSTATE 40001): default.s was changed")


@pytest.mark.parametrize("kind", ["alter", "unsafe"])
@pytest.mark.parametrize("earlier", [False, True])
def test_show_operations_keeps_what_was_found(
    log: Any, setting: Any, state: Now, kind: str, earlier: bool
) -> None:
    """Of one that was refused, every finding is in its outcome, also as an earlier version kept
    them: as texts."""
    from catalog_migrate.catalog.records import OperationRecord
    from catalog_migrate.streams.ddl.show import show
    from tests.decisions import Changes

    base = dependencies.find(state(), "connection", "base").item_id
    changes = Changes()
    changes.put("operation", "1", OperationRecord(
        kind=kind, state="failed", target=base,
        detail={
            "reason": "refused by validation",
            **({"finding 000": "a: no", "finding 001": "b: no"} if earlier else {}),
        },
        findings=() if earlier else tuple(Finding(each, None, "error", "no") for each in "ab"),
    ))
    leave(log, changes)
    rows = show(state(), "operations")
    (row,) = (dict(zip(rows.columns, each, strict=True)) for each in rows.values)
    assert row["outcome"] == "refused by validation: a: no; b: no"


def test_old_operations_are_forgotten(log: Any, state: Now) -> None:
    """The newest ended ALTERs stay listed; older ones go, what is under way never does."""
    from catalog_migrate.catalog.records import OperationRecord
    from catalog_migrate.streams.catalog.updates import ForgetAlters
    from tests.decisions import Changes, commit

    changes = Changes()
    for number in range(6):
        ended = OperationRecord(kind="alter", state="trial" if number == 0 else "confirmed")
        changes.put("operation", f"{number}", ended)
    changes.put("operation", "0-unsafe", OperationRecord(kind="unsafe", state="done"))
    leave(log, changes)
    commit(log, lambda _: ForgetAlters(keep=2), kind="test")
    assert sorted(state().operations) == ["0", "0-unsafe", "4", "5"]
