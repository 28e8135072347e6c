"""The plan file: round trip, hash, schema, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import catalog_migrate.planner
from catalog_migrate.errors import EditedPlan, UnsupportedFormat
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base, Blocked, Plan, UserColumn, UserObject
from catalog_migrate.planner.planfile import (
    decode_plan,
    encode_plan,
    hash_document,
    plan_hash,
    same_plan,
)
from catalog_migrate.planner.planning import plan_migration

SCHEMA = Path(catalog_migrate.planner.__file__).parent / "schema" / "plan.schema.json"

BROKEN = UserObject(
    "team.`odd name`", "function", "breaks", ("s.t", "team.`odd name`"),
    (UserColumn("a", "retyped", "BIGINT", "INT"),), "UNRESOLVED_COLUMN.WITH_SUGGESTION", "memo",
)


@pytest.fixture
def plan(make: Any) -> Plan:
    """A plan with a change of every sort, blocked and questioned."""
    baseline = make.baseline(
        make.table("t", "a BIGINT, memo STRING", properties={"x": "1"}), make.view("v", ["s.t"]),
        make.table("gone"),
    )
    release = make.release(
        make.table("t", "a INT, note STRING"), make.view("v", ["s.t"]), make.view("new", ["s.v"])
    )
    return plan_migration(baseline, release).plan


def test_round_trip(plan: Plan) -> None:
    """A plan read back is the plan that was written."""
    assert decode_plan(encode_plan(plan)) == plan
    assert encode_plan(decode_plan(encode_plan(plan))) == encode_plan(plan)


def test_file_fits_the_schema(plan: Plan, make: Any) -> None:
    """What is written validates against the JSON Schema, an empty plan and a full one."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    empty = plan_migration(Baseline.empty(), make.release()).plan
    unseen = msgspec.structs.replace(plan, users=None)
    seen = msgspec.structs.replace(plan, users=(BROKEN,))
    for one in (plan, empty, unseen, seen):
        jsonschema.validate(json.loads(encode_plan(one)), schema)
    assert {*json.loads(encode_plan(plan)), "users"} == set(schema["properties"])
    assert list(json.loads(encode_plan(seen))) == list(schema["properties"])
    user = msgspec.to_builtins(BROKEN)
    assert list(schema["$defs"]["user_object"]["properties"]) == list(user)
    column = schema["$defs"]["user_object"]["properties"]["columns"]["items"]["properties"]
    assert list(column) == list(user["columns"][0])
    change = schema["$defs"]["change"]["properties"]
    assert list(change) == list(msgspec.to_builtins(plan)["changes"][0])


def test_hash_leaves_out_sizes_address_and_tool(plan: Plan) -> None:
    """Rows, bytes, tool version and the catalog's address do not belong to a plan's identity."""
    other = msgspec.structs.replace(
        plan,
        tool_version="9",
        base=Base(catalog="elsewhere", release="1"),
        changes=tuple(msgspec.structs.replace(one, rows=5, bytes=6) for one in plan.changes),
    )
    assert plan_hash(other) == plan.plan_hash
    assert plan_hash(msgspec.structs.replace(plan, base=Base(serial=3))) != plan.plan_hash


def test_edited_plan_is_refused(plan: Plan) -> None:
    """A plan whose contents do not match its hash is refused."""
    with pytest.raises(EditedPlan, match="changed after it was made"):
        decode_plan(encode_plan(plan).replace(b'"applyable": false', b'"applyable": true'))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format_version": 1}',
                                  b'{"format_version": "1.0"}'])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    """Anything else than a plan file is refused with a typed error."""
    with pytest.raises(EditedPlan, match="not a plan file"):
        decode_plan(data)


def test_newer_major_is_refused_before_anything_else(plan: Plan) -> None:
    """A plan of format 2 is refused as such, not as an edited one."""
    with pytest.raises(UnsupportedFormat, match=r"format 2\.0"):
        decode_plan(encode_plan(plan).replace(b'"1.4"', b'"2.0"', 1))


def test_a_step_of_a_newer_minor_is_refused_as_such(plan: Plan) -> None:
    """A program with an operation that this tool has not is no edited plan."""
    newer = encode_plan(plan).replace(b'"1.4"', b'"1.9"', 1).replace(b'"drop"', b'"melt"')
    with pytest.raises(UnsupportedFormat, match=r"format 1\.9.*melt"):
        decode_plan(newer)


@pytest.mark.parametrize("edit", ["reordered", "removed", "added"])
def test_steps_edited_by_hand_are_refused(plan: Plan, edit: str) -> None:
    """The hash covers the program: its order, and which steps there are."""
    document = json.loads(encode_plan(plan))
    steps = document["steps"]
    document["steps"] = {
        "reordered": steps[::-1], "removed": steps[1:], "added": [*steps, steps[0]],
    }[edit]
    with pytest.raises(EditedPlan, match="changed after it was made"):
        decode_plan(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("after", None), ("before", {"schema": "s", "kind": "table", "name": "t"}), ("rows", 5),
        ("copied_because", ["no reason"]), ("graph", []), ("details_hash", None),
    ],
)
def test_what_a_report_shows_cannot_be_edited(plan: Plan, part: str, value: Any) -> None:
    """A definition, a size or the graph of a file is what it was saved with, or it is refused."""
    document = json.loads(encode_plan(plan))
    if part in document:
        document[part] = value
        if value is None:
            del document[part]
    else:
        next(each for each in document["changes"] if each["after"])[part] = value
    with pytest.raises(EditedPlan, match="its definitions, sizes or its graph are not those"):
        decode_plan(json.dumps(document).encode())


def test_a_file_of_a_format_without_definitions_shows_none(plan: Plan) -> None:
    """What was written into a plan of format 1.3 since is not shown: no hash vouches for it."""
    document = json.loads(encode_plan(plan)) | {"format_version": "1.3"}
    del document["details_hash"]
    document["plan_hash"] = hash_document(document)
    read = decode_plan(json.dumps(document).encode())
    assert read.graph == ()
    assert {(each.before, each.after, each.copied_because) for each in read.changes} == {
        (None, None, ())
    }


def test_unknown_keys_of_a_newer_minor_are_ignored(plan: Plan) -> None:
    """Keys that this tool does not know are covered by the hash and otherwise ignored."""
    from catalog_migrate.planner import planfile

    document = json.loads(encode_plan(plan)) | {"format_version": "1.7", "later": {"x": 1}}
    document["plan_hash"] = planfile.hash_document(document)
    read = decode_plan(json.dumps(document).encode())
    assert read.changes == plan.changes
    document["later"] = {"x": 2}
    with pytest.raises(EditedPlan):
        decode_plan(json.dumps(document).encode())


def test_another_point_of_no_return_is_an_edit(make: Any) -> None:
    """It is not in the hash, for it follows from the changes; an approver reads it first."""
    old, new = make.table("t", "a INT, b INT"), make.table("t", "a INT", dropped=("b",))
    plan = plan_migration(make.baseline(old), make.release(new)).plan
    point = plan.point_of_no_return
    assert point is not None
    reworded = msgspec.structs.replace(point, meaning="said in another way")
    found = decode_plan(encode_plan(msgspec.structs.replace(plan, point_of_no_return=reworded)))
    assert found.changes == plan.changes
    for other in (None, msgspec.structs.replace(point, after="retention")):
        edited = msgspec.structs.replace(plan, point_of_no_return=other)
        with pytest.raises(EditedPlan, match="its point of no return is"):
            decode_plan(encode_plan(edited))


def test_users_are_in_the_file_and_not_in_the_hash(plan: Plan) -> None:
    """Looked at or not, broken, approved, asked for: it is the same plan of the release."""
    key = "function:team.`odd name`"
    asked = tuple(
        Blocked(key, code, "breaks a user's function", "--approve") for code in
        ("CM0308", "CM0309", "CM0338")
    )
    for users, blocked, approved in (
        (None, (), ()), ((), (), ()), ((BROKEN,), (), ()), ((BROKEN,), (), (BROKEN.name,)),
        ((BROKEN,), asked, ()),
    ):
        other = msgspec.structs.replace(
            plan, users=users, blocked=(*plan.blocked, *blocked),
            approved=(*plan.approved, *approved),
        )
        assert plan_hash(other) == plan.plan_hash
        assert decode_plan(encode_plan(other)) == other
        assert same_plan(other, plan)


def test_a_decision_on_users_alone_does_not_change_the_hash(make: Any) -> None:
    """A plan that waits for nothing else is, without it, one that may be applied."""
    old, new = make.table("t", "a INT"), make.table("t", "a INT, b INT")
    free = plan_migration(make.baseline(old), make.release(new)).plan
    asked = Blocked("function:team.`odd name`", "CM0338", "breaks a user's function", "--approve")
    other = msgspec.structs.replace(free, users=(BROKEN,), blocked=(asked,), applyable=False)
    assert free.applyable
    assert plan_hash(other) == free.plan_hash
    # a decision on the release's own under the same code is none of users
    for own in ("s.t", "team.`odd name`"):
        release = msgspec.structs.replace(asked, name=own, code="CM0309")
        assert plan_hash(msgspec.structs.replace(other, blocked=(asked, release))) != (
            free.plan_hash
        )


def test_a_file_of_the_format_before_users_is_the_same_plan(plan: Plan) -> None:
    """Format 1.2 has no users: it decodes, and is compared without them."""
    from catalog_migrate.planner import planfile

    document = json.loads(encode_plan(plan)) | {"format_version": "1.2"}
    document["plan_hash"] = planfile.hash_document(document)
    read = decode_plan(json.dumps(document).encode())
    assert read.users is msgspec.UNSET
    assert read.plan_hash != plan.plan_hash
    assert same_plan(read, msgspec.structs.replace(plan, users=(BROKEN,)))
