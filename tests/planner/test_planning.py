"""Which objects change, how and why; ids, blocked drops, questions, and what nothing costs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.model.objects import Argument, Column, ObjectDefinition
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.operations.steps import Step
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base, Blocked, OptionChange, Question, Validation
from catalog_migrate.planner.plan_validation import Proof
from catalog_migrate.planner.plan_validation import blocked_error as refusal
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.report import render
from catalog_migrate.report.verdict import list_failed_proofs

SUMMARY = {
    "create": 0, "drop": 0, "migrate": 0, "redefine": 0, "update": 0, "refresh": 0, "restart": 0,
    "unchanged": 0,
}


def actions(plan: Any) -> list[tuple[Any, ...]]:
    """(name, action, cause) of every change."""
    return [(change.name, change.action, change.cause) for change in plan.changes]


def test_first_release_creates_everything_with_ids_in_creation_order(make: Any) -> None:
    """Into an empty catalog everything is created, ids are numbered in creation order."""
    migration = plan_migration(
        Baseline.empty(), make.release(make.view("a", ["s.z"]), make.table("z"))
    )
    plan = migration.plan
    assert plan.creates == ("s.z", "s.a")
    assert plan.drops == ()
    assert [(c.name, c.item_id, c.new_id, c.cause, c.contents) for c in plan.changes] == [
        ("s.z", "i1", "s1", None, "none"), ("s.a", "i2", "s2", None, "none"),
    ]
    assert (migration.next_item, migration.next_global) == (3, 3)
    assert plan.summary == SUMMARY | {"create": 2}


def test_reach_is_transitive_and_every_dependent_is_explained(make: Any) -> None:
    """A changed table gives every dependent a new id, with the shortest path to it."""
    old = [make.table("t"), make.view("v", ["s.t"]), make.view("w", ["s.v"]), make.table("u")]
    new = [make.table("t", "a INT, b INT"), *old[1:]]
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert [(c.name, c.cause, c.because, c.item_id, c.old_id, c.new_id) for c in plan.changes] == [
        ("s.t", "self", ("s.t",), "i1", "s1", "s5"),
        ("s.v", "dependency", ("s.t", "s.v"), "i3", "s3", "s6"),
        ("s.w", "dependency", ("s.t", "s.v", "s.w"), "i4", "s4", "s7"),
    ]
    assert plan.drops == ("s.w", "s.v", "s.t")
    assert plan.creates == ("s.t", "s.v", "s.w")
    assert plan.summary == SUMMARY | {"migrate": 3, "unchanged": 1}
    assert plan.applyable


def test_because_prefers_the_lexicographically_first_of_two_shortest_paths(make: Any) -> None:
    """Of two equally short paths the one whose names come first explains the dependent."""
    old = [
        make.table("t"), make.view("b", ["s.t"]), make.view("a", ["s.t"]),
        make.view("x", ["s.b", "s.a"]),
    ]
    new = [make.table("t", "a BIGINT"), *old[1:]]
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert plan.changes[-1].because == ("s.t", "s.a", "s.x")


def test_another_body_with_the_same_contract_is_redefined_and_nothing_else(make: Any) -> None:
    """Equal fingerprint and another definition: the id stays, dependents stay."""
    old = [make.table("t"), make.view("v", ["s.t"]), make.view("w", ["s.v"])]
    new = [old[0], make.view("v", ["s.t"], body="other"), old[2]]
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert actions(plan) == [("s.v", "redefine", "self")]
    assert plan.changes[0].new_id == plan.changes[0].old_id == "s2"
    assert plan.steps == (Step("redefine", "view", "s.v", "i2", 1),)
    assert (plan.drops, plan.creates) == ((), ())


def test_redefine_stands_between_what_it_reads_and_what_it_stops_reading(make: Any) -> None:
    """A redefine comes after the create that it reads and before the drop of what it read."""
    old = [make.table("t"), make.view("p", ["s.t"]), make.view("v", ["s.p"])]
    new = [make.table("t"), make.view("q", ["s.t"], "a INT, b INT"), make.view("v", ["s.q"])]
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert plan.steps == (
        Step("create", "view", "s.q", "i4", 1), Step("redefine", "view", "s.v", "i3", 2),
        Step("drop", "view", "s.p", "i2", 3),
    )
    assert actions(plan) == [
        ("s.p", "drop", None), ("s.q", "create", None), ("s.v", "redefine", "self"),
    ]


def test_swapped_views_are_dropped_and_created_with_their_ids(make: Any) -> None:
    """Where no place for a redefine exists, it and its users are recreated with ids kept."""
    old = [
        make.table("t"), make.view("a", ["s.t"]), make.view("b", ["s.a"]),
        make.view("user", ["s.b"]),
    ]
    new = [
        make.table("t"), make.view("b", ["s.t"]), make.view("a", ["s.b"]),
        make.view("user", ["s.b"]),
    ]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    by_name = {change.name: change for change in migration.plan.changes}
    assert {change.action for change in by_name.values()} == {"redefine"}
    assert all(change.old_id == change.new_id for change in by_name.values())
    assert len(migration.plan.steps) == len(set(migration.plan.steps))


def test_a_table_that_is_copied_is_absent_for_as_short_as_can_be(make: Any) -> None:
    """Its name goes behind what is created beside it, and comes back as the very next step."""
    old = [make.table("t"), make.view("v", ["s.t"])]
    new = [
        make.table("t", partitioned_by=("a",)), old[1], make.table("x"), make.table("y"),
        make.view("w", ["s.x"]),
    ]
    names = [
        (step.op, step.name)
        for step in plan_migration(make.baseline(*old), make.release(*new)).plan.steps
        if step.phase == "names"
    ]
    assert names.index(("create", "s.t")) == names.index(("drop", "s.t")) + 1


def test_comment_only_is_a_change_in_place(make: Any) -> None:
    """A table's comment changes in place, before names come, and ids stay."""
    old = [make.table("t"), make.table("u")]
    new = [make.table("t", comment="why"), make.table("u"), make.table("z")]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert actions(migration.plan) == [("s.t", "update", "self"), ("s.z", "create", None)]
    assert migration.plan.steps == (
        Step("build", "table", "s.z", "i3", 1), Step("evolve", "table", "s.t", "i1", 2),
        Step("create", "table", "s.z", "i3", 3),
    )
    assert migration.targets[0].contents == "evolve"


def test_properties_are_listed_as_options(make: Any) -> None:
    """A table property set and one dropped are an update with one option each."""
    old = make.table("t", properties={"x": "1", "y": "2"})
    new = make.table("t", properties={"x": "3"})
    plan = plan_migration(make.baseline(old), make.release(new)).plan
    assert plan.changes[0].options == (
        OptionChange("x", "set", "1", "3"), OptionChange("y", "drop", "2", None),
    )


def test_new_decision_on_unchanged_columns_changes_nothing_but_is_remembered(make: Any) -> None:
    """A USING that has nothing to convert gives an empty plan whose target has it applied."""
    old = make.table("t", [Column("a", "INT")])
    new = make.table("t", [Column("a", "INT", using="1")])
    migration = plan_migration(make.baseline(old), make.release(new))
    assert migration.plan.is_empty
    assert len(migration.targets[0].applied) == 1
    again = plan_migration(make.after(make.baseline(old), migration), make.release(new))
    assert again.targets == ()


def test_rename_keeps_the_item_and_moves_the_dependents(make: Any) -> None:
    """RENAMED FROM keeps the ItemId and the rows; the new name is created, the old dropped."""
    old = [make.table("t"), make.view("v", ["s.t"])]
    new = [make.table("n", renamed_from=("gone", "T")), make.view("v", ["s.n"])]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    plan = migration.plan
    renamed = plan.changes[0]
    assert (renamed.name, renamed.old_name, renamed.action, renamed.cause) == (
        "s.n", "s.t", "migrate", "self",
    )
    assert (renamed.item_id, renamed.old_id, renamed.new_id) == ("i1", "s1", "s3")
    assert (plan.drops, plan.creates) == (("s.v", "s.t"), ("s.n", "s.v"))
    assert plan.blocked == ()
    assert migration.targets[0].contents == "keep"
    assert migration.targets[0].old == ("relation", "s", "t")
    assert migration.removed == ()


def test_kind_change_is_drop_and_create_with_a_new_item(make: Any) -> None:
    """A view that becomes a table is dropped and created anew, and its users migrate."""
    old = [make.table("t"), make.view("x", ["s.t"]), make.view("u", ["s.x"])]
    new = [make.table("t"), make.table("x"), make.view("u", ["s.x"])]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert [(c.name, c.kind, c.action, c.item_id) for c in migration.plan.changes] == [
        ("s.x", "view", "drop", "i2"), ("s.x", "table", "create", "i4"),
        ("s.u", "view", "migrate", "i3"),
    ]
    assert migration.plan.changes[2].because == ("s.x", "s.u")
    assert migration.plan.drops == ("s.u", "s.x")
    assert migration.removed == (("relation", "s", "x"),)


def test_was_keeps_the_item_through_a_change_of_kind(make: Any) -> None:
    """WAS VIEW keeps the ItemId; the old item is not removed, it lives on."""
    old = [make.view("x")]
    new = [make.table("x", was="view")]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert [(c.kind, c.action, c.item_id) for c in migration.plan.changes] == [
        ("view", "drop", "i1"), ("table", "create", "i1"),
    ]
    assert migration.targets[0].global_id == "s2"
    assert migration.removed == ()


def test_an_object_of_another_kind_is_told_as_one(make: Any) -> None:
    """WAS VIEW is no drop beside a create, and the table starts empty; so too the other way."""
    def told(old: ObjectDefinition, new: ObjectDefinition) -> list[str]:
        plan = plan_migration(
            make.baseline(old, make.view("w", ["s.x"])),
            make.release(new, make.view("w", [f"s.{new.name}"])),
            approve=["s.x"], sizes=lambda _: TableSize(7, 100),
        ).plan
        lines = render(plan, "text").split("What will happen\n")[1].split("\n\n")[0].splitlines()
        return [line.strip() for line in lines]

    assert told(make.view("x"), make.table("x", was="view")) == [
        "~ s.x (table) create, was the view s.x",
        "starts empty: a view has no rows of its own", "+ 1 dependent (1 view): s.w",
    ]
    assert told(make.table("x"), make.view("y", was="table", renamed_from="x")) == [
        "~ s.y (view) create, was the table s.x: 7 rows, 100 B", "+ 1 dependent (1 view): s.w",
    ]
    apart = told(make.view("x"), make.table("x"))
    assert [line.split(" (")[0] for line in apart if line[0] in "+-" and "dep" not in line] == [
        "- s.x", "+ s.x",
    ]


def test_dropped_table_is_blocked_until_approved_or_empty(make: Any) -> None:
    """A retained table that goes needs approval, unless it is known to hold no row."""
    baseline = make.baseline(make.table("t"), make.table("u"))
    release = make.release(make.table("u"))
    plan = plan_migration(baseline, release).plan
    assert plan.blocked == (
        Blocked(
            "s.t", "CM0305",
            "the release has no such table any more, and its rows would go with it",
            "--approve s.t (or DROPPED TABLE s.t in the release)",
        ),
    )
    assert not plan.applyable
    approved = plan_migration(baseline, release, approve=["S.`T`", "s.other"]).plan
    assert (approved.blocked, approved.approved) == ((), ("s.t",))
    assert approved.changes[0].risk == "drops the table and its rows"
    empty = plan_migration(baseline, release, sizes=lambda item: TableSize(0, 12)).plan
    assert (empty.blocked, empty.changes[0].rows, empty.changes[0].bytes) == ((), 0, 12)
    meant = plan_migration(
        baseline, release, sizes=lambda _: TableSize(0, 12), approve=["s.t"]
    ).plan
    assert meant.approved == ("s.t",)  # it holds as well if a row comes until then
    unknown = plan_migration(baseline, release, sizes=lambda item: TableSize(-1, 12)).plan
    assert len(unknown.blocked) == 1


def test_a_release_may_give_up_a_table(make: Any) -> None:
    """DROPPED TABLE is the decision, cumulative: it means nothing where the table is not there."""
    baseline = make.baseline(make.table("T"), make.table("u"))
    release = dataclasses.replace(make.release(make.table("u")), dropped=("s.never", "s.t"))
    migration = plan_migration(baseline, release)
    plan = migration.plan
    assert (plan.blocked, plan.applyable, plan.approved) == ((), True, ("s.T",))
    assert plan.changes[0].risk == "drops the table and its rows"
    assert plan_migration(make.after(baseline, migration), release).plan.is_empty
    fresh = plan_migration(Baseline.empty(), release).plan
    assert [(one.action, one.name) for one in fresh.changes] == [("create", "s.u")]
    empty = plan_migration(baseline, release, sizes=lambda _: TableSize(0, 12)).plan
    assert empty.approved == ("s.T",)  # rows that come until then go as well


def test_a_table_that_is_given_up_is_not_asked_about(make: Any) -> None:
    """The release has said that it is not the former of a table like it; a rename comes first."""
    old, new = make.table("orders", "a INT, b INT"), make.table("orders2", "a INT, b INT")
    release = dataclasses.replace(make.release(new), dropped=("s.orders",))
    assert plan_migration(make.baseline(old), release).plan.questions == ()
    heir = replace(new, renamed_from="s.orders")
    plan = plan_migration(
        make.baseline(old), dataclasses.replace(make.release(heir), dropped=("s.orders",))
    ).plan
    assert [(one.action, one.old_name) for one in plan.changes] == [("migrate", "s.orders")]


def test_the_policy_has_the_last_word_on_a_table_that_is_given_up(make: Any) -> None:
    """A rule that refuses or asks holds although the release has decided."""
    release = dataclasses.replace(make.release(make.table("u")), dropped=("s.t",))
    baseline = make.baseline(make.table("t"), make.table("u"))
    for action, code in (("refuse", "CM0308"), ("approve", "CM0309")):
        policy = Policy(rules=(Rule("drop_table", action),))
        plan = plan_migration(baseline, release, policy=policy).plan
        assert [(one.name, one.code) for one in plan.blocked] == [("s.t", code)]


def test_dropped_derived_table_and_view_need_no_word(make: Any) -> None:
    """Derived rows can be made again, and a view holds none."""
    baseline = make.baseline(make.table("d", contents="derived"), make.view("v"), make.table("t"))
    plan = plan_migration(baseline, make.release(make.table("t"))).plan
    assert plan.blocked == ()
    assert plan.summary["drop"] == 2


def test_name_of_another_owner_blocks(make: Any) -> None:
    """A user's object under the name of a new built-in blocks and is named."""
    baseline = Baseline(taken={("relation", "s", "t"): "user"})
    blocked = plan_migration(baseline, make.release(make.table("t"))).plan.blocked
    assert [(one.name, one.code) for one in blocked] == [("s.t", "CM0306")]


def test_view_without_sql_is_planned_and_not_applyable(make: Any) -> None:
    """A view that only declares what it depends on can be planned, not applied."""
    view = ObjectDefinition("s", "view", "v", (Column("a", "INT"),), depends_on=("s.t",))
    plan = plan_migration(Baseline.empty(), make.release(make.table("t"), view)).plan
    reason = "the release has no sql for it: it can be planned, not applied"
    assert plan.blocked == (
        Blocked("s.v", "CM0307", reason, "write the SQL of s.v into the release"),
    )
    assert (plan.validations, plan.applyable) == ((Validation("s.v", False, reason),), False)


def test_a_table_that_becomes_a_view_without_sql_is_told_whole(make: Any) -> None:
    """The rows that go and the missing SQL stand in one report and in one error."""
    view = ObjectDefinition("s", "view", "t", (Column("a", "INT"),), depends_on=("s.u",))
    old, new = make.baseline(make.table("t"), make.table("u")), make.release(make.table("u"), view)
    plan = plan_migration(old, new).plan
    assert [(one.name, one.code) for one in plan.blocked] == [("s.t", "CM0305"), ("s.t", "CM0307")]
    assert list_failed_proofs(plan) == ()
    found = render(plan, "text")
    assert found.startswith("BLOCKED: 1 obstacle stands in the way that no decision cures; 1 dec")
    assert "has no sql for it" in found
    assert "CM0305" in found
    error = str(refusal(plan))
    assert "CM0305" in error
    assert "CM0307" in error


def test_probable_rename_of_an_object_is_a_question(make: Any) -> None:
    """A dropped and a created table of one shape are asked about, with the text to write."""
    plan = plan_migration(
        make.baseline(make.table("orders", "a INT, b INT")),
        make.release(make.table("orders2", "a INT, b INT")),
    ).plan
    assert plan.questions == (Question("s.orders2", "s.orders", None, "RENAMED FROM s.orders"),)
    said = str(refusal(plan)).splitlines()
    assert said[2] == "  is s.orders2 the former s.orders? write: RENAMED FROM s.orders"
    assert "CM0305" in said[3]


def test_a_table_of_another_schema_may_be_that_of_a_renamed_schema(make: Any) -> None:
    """One line in release.toml answers the question for all objects of the schema."""
    old = ObjectDefinition("old", "table", "t", make.table("t", "a INT").columns)
    new = replace(old, schema="new")
    (question,) = plan_migration(make.baseline(old), make.release(new)).plan.questions
    assert question.remedy == (
        "RENAMED FROM old.t; for the whole schema, in release.toml: [schema.new]"
        ' renamed_from = "old"'
    )


def test_probable_rename_of_a_function_or_type_is_a_question(make: Any) -> None:
    """By its signature and its body or its name; the text to write has no namespace in it."""
    def asked(old: Any, new: Any) -> list[Question]:
        return list(plan_migration(make.baseline(old), make.release(new)).plan.questions)

    function = ObjectDefinition(
        "s", "function", "gross", arguments=(Argument("x", "INT"),), returns="INT", body="x"
    )
    expected = [Question("function:s.total", "function:s.gross", None, "RENAMED FROM s.gross")]
    assert asked(function, replace(function, name="total")) == expected
    spelt = asked(function, replace(function, name="gross_of", body="x * 2"))
    assert [one.remedy for one in spelt] == ["RENAMED FROM s.gross"]
    assert asked(function, replace(function, name="total", body="x * 2")) == []
    assert asked(function, replace(function, name="total", returns="BIGINT")) == []
    kind = ObjectDefinition("s", "type", "money", definition="DECIMAL(10,2)")
    assert asked(kind, replace(kind, name="amount")) == [
        Question("type:s.amount", "type:s.money", None, "RENAMED FROM s.money")
    ]
    assert asked(kind, replace(kind, name="amount", definition="DECIMAL(12,2)")) == []


def test_function_body_is_redefined_and_its_signature_migrates(make: Any) -> None:
    """Another body keeps a function's id and users; another argument type does not."""
    function = ObjectDefinition(
        "s", "function", "f", arguments=(Argument("x", "INT"),), returns="INT", body="x"
    )
    user = make.view("v", ["function:s.f"])
    baseline = make.baseline(function, user)
    body = plan_migration(baseline, make.release(replace(function, body="x + 1"), user)).plan
    assert actions(body) == [("function:s.f", "redefine", "self")]
    argument = replace(function, arguments=(Argument("x", "BIGINT"),))
    plan = plan_migration(baseline, make.release(argument, user)).plan
    assert actions(plan) == [("function:s.f", "migrate", "self"), ("s.v", "migrate", "dependency")]


def test_redefined_type_moves_only_tables_whose_columns_it_changes(make: Any) -> None:
    """A type has no schema: it is redefined; the column that expands to it migrates its table."""
    kind = ObjectDefinition("s", "type", "money", definition="DECIMAL(10,2)")
    baseline = make.baseline(kind, make.table("t", "a DECIMAL(10,2)", depends_on=("type:s.money",)))
    release = make.release(
        replace(kind, definition="DECIMAL(12,2)"),
        make.table("t", "a DECIMAL(12,2)", depends_on=("type:s.money",)),
    )
    plan = plan_migration(baseline, release).plan
    assert actions(plan) == [("type:s.money", "redefine", "self"), ("s.t", "migrate", "self")]


def test_table_with_other_edges_only_is_updated_and_its_shard_kept(make: Any) -> None:
    """What a table uses is brought up to date without touching its rows."""
    kind = ObjectDefinition("s", "type", "a", definition="INT")
    other = ObjectDefinition("s", "type", "b", definition="INT")
    migration = plan_migration(
        make.baseline(kind, make.table("t", depends_on=("type:s.a",))),
        make.release(other, make.table("t", depends_on=("type:s.b",))),
    )
    assert migration.targets[1].action == "update"
    assert migration.targets[1].contents == "keep"
    assert migration.targets[1].uses == (("type", "s", "b"),)


def test_base_is_the_catalogs(make: Any) -> None:
    """A plan is bound to the lineage, serial and release it was made from."""
    base = Base("file:/c", "abc", 7, "1")
    plan = plan_migration(Baseline(base=base), make.release(make.table("t"))).plan
    assert plan.base == base
    assert (plan.target.release, plan.target.manifest_hash) == ("2", "hash of 2")


def test_an_unchanged_release_of_10000_objects_is_an_empty_plan(make: Any) -> None:
    """Nothing is a target and no number is handed out (`make bench` has the time it takes)."""
    objects = [make.view(f"v{n}", columns="a INT, b STRING") for n in range(10_000)]
    baseline, release = make.baseline(*objects), make.release(*objects)
    migration = plan_migration(baseline, release)
    assert migration.plan.is_empty
    assert migration.plan.summary == SUMMARY | {"unchanged": 10_000}
    assert (migration.targets, migration.next_global) == ((), 10_001)


def test_planning_without_a_change_imports_nothing_heavy() -> None:
    """Neither a graph library nor an engine is loaded to find that nothing changed."""
    code = (
        "import sys\n"
        "from catalog_migrate.planner.baseline import Baseline\n"
        "from catalog_migrate.planner.planning import plan_migration\n"
        "from catalog_migrate.release.release import Release\n"
        "assert plan_migration(Baseline.empty(), Release('1', (), 'h', {}, {})).plan.is_empty\n"
        "print([name for name in ('networkx', 'pyspark', 'deltalake', 'difflib')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("kind", "what"), [("function", "its body"), ("view", "the column list")])
def test_what_is_to_be_corrected_where_spark_refuses_a_text(kind: str, what: str) -> None:
    """A function has a body, a view has columns."""
    entry = Proof("s.x", kind, "no such column").as_blocked("1")
    assert entry.reason == f"the {kind} does not bind: no such column"
    assert entry.remedy == f"correct the SQL or {what} of s.x in the release"
