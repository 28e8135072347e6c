"""What a blocked plan says to write, written and carried out over rows on real Spark."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.errors import MigrationBlocked
from tests.planner.test_remedies import RETYPES, completed

pytestmark = pytest.mark.spark

SAMPLES = {
    "STRING": "'12'", "VARCHAR(9)": "'12'", "INT": "12", "BIGINT": "12", "DOUBLE": "12.5",
    "DECIMAL(10,2)": "12.5", "BOOLEAN": "true", "BINARY": "X'3132'", "DATE": "DATE'1970-01-13'",
    "TIMESTAMP": "TIMESTAMP'1970-01-13 00:00:00'",
}  # fmt: skip
"""A value of each type that its retypes can take."""

SPECIAL = {
    ("STRING", "DATE"): "'1970-01-13'", ("STRING", "TIMESTAMP_NTZ"): "'1970-01-13 00:00:00'",
    ("STRING", "BOOLEAN"): "'true'", ("STRING", "ARRAY<INT>"): "'[12]'",
    ("STRING", "STRUCT<a: INT>"): """'{"a": 12}'""",
}  # fmt: skip


def sample(kind: str) -> str:
    """A value of a type, put together."""
    from catalog_migrate.model.types import Array, Map, Struct, parse_type

    tree = parse_type(kind)
    if isinstance(tree, Array):
        return f"array({sample(str(tree.element))})"
    if isinstance(tree, Map):
        return f"map({sample(str(tree.key))}, {sample(str(tree.value))})"
    if isinstance(tree, Struct):
        fields = (f"'{field.name}', {sample(str(field.type))}" for field in tree.fields)
        return f"named_struct({', '.join(fields)})"
    return SAMPLES[kind]


def test_every_remedy_of_another_type_is_carried_out(shop: Any) -> None:
    """In one release all of them, written into one table and approved for another.

    Each row arrives, and a NULL stays one where it may. What has no CAST is NULL by an approval.
    """
    names = [f"c{number}" for number in range(len(RETYPES))]
    cases = dict(zip(names, RETYPES, strict=True))
    strict = {name for name, case in cases.items() if "NOT NULL" in case.new}

    def release(lines: Any, types: Any) -> Any:
        text = "".join(
            f"CREATE TABLE {shop.schema}.{table} (id INT, {', '.join(columns)});"
            for table, columns in (("wide", lines), ("approved", types))
        )
        return shop.release("wide", orders=text, tags=None, big=None, doubled=None)

    old = [f"{name} {case.old}" for name, case in cases.items()]
    new = [f"{name} {case.new}" for name, case in cases.items()]
    approved = [
        f"{name} {case.old if name in strict else case.new}" for name, case in cases.items()
    ]
    shop.start(release(old, old))
    values = {
        name: SPECIAL.get((case.old, case.new)) or sample(case.old) for name, case in cases.items()
    }
    nulls = {name: value if name in strict else "NULL" for name, value in values.items()}
    for table in ("wide", "approved"):
        for number, row in enumerate((values, nulls), start=1):
            listed = ", ".join(row.values())
            shop.spark.sql(f"INSERT INTO {shop.schema}.{table} SELECT {number}, {listed}")
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release(new, approved), approve=[f"{shop.schema}.approved"])
    offered = {entry.column: entry.remedy for entry in caught.value.plan.blocked}
    assert list(offered) == names
    lines = [
        completed(offered[name], {
            place: text.replace("(c", f"({name}") for place, text in case.missing.items()
        })
        for name, case in cases.items()
    ]
    report = shop.start(release(lines, approved), approve=[f"{shop.schema}.approved"])
    assert (report.outcome, report.rows_copied) == ("migrated", 4)
    first, second = shop.rows("wide")
    assert [column for column in names if first[column] is None] == []
    arrays = {name for name, case in cases.items() if "array(c)" in case.missing.values()}
    assert {column for column in names if second[column] is not None} == strict | arrays
    first, second = shop.rows("approved")
    uncast = {name for name, case in cases.items() if case.missing and name not in strict}
    assert {column for column in names if first[column] is None} == uncast
    assert {column for column in names if second[column] is not None} == strict
