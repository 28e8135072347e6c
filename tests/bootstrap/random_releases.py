"""Releases drawn at random: features, properties, CHECKs, defaults and views, sound and unsound.

A draw is a chain of releases of one product, as SQL. Some are refused, some can be applied, and
nothing here says which: a start on real Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

TYPES = {
    "INT": ("1", "2", "3"),
    "BIGINT": ("10", "20", "30"),
    "STRING": ("'a'", "'b'", "'c'"),
    "DECIMAL(10,2)": ("1.25", "2.50", "3.75"),
    "DATE": ("DATE'2026-01-01'", "DATE'2026-02-01'", "DATE'2026-03-01'"),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2026-01-01 00:00:00'", "TIMESTAMP_NTZ'2026-02-01 00:00:00'",
        "TIMESTAMP_NTZ'2026-03-01 00:00:00'",
    ),
    "BOOLEAN": ("true", "false", "true"),
    "STRUCT<x: INT, y: STRING>": tuple(
        f"named_struct('x', {n}, 'y', '{n}')" for n in (1, 2, 3)
    ),
    "ARRAY<INT>": ("array(1)", "array(2)", "array(3)"),
}
"""Types of columns, each with the literals of three rows."""

WIDER = {"INT": "BIGINT", "DATE": "TIMESTAMP_NTZ", "DECIMAL(10,2)": "DECIMAL(14,2)"}

PROPERTIES = (
    ("delta.enableDeletionVectors", "true"),
    ("delta.enableChangeDataFeed", "true"),
    ("delta.enableRowTracking", "true"),
    ("delta.enableTypeWidening", "true"),
    ("delta.enableInCommitTimestamps", "true"),
    ("delta.columnMapping.mode", "name"),
    ("delta.columnMapping.mode", "id"),
    ("delta.appendOnly", "true"),
    ("delta.checkpointPolicy", "v2"),
    ("delta.enableIcebergCompatV1", "true"),
    ("delta.enableIcebergCompatV2", "true"),
    ("delta.checkpointInterval", "5"),
    ("delta.logRetentionDuration", "interval 30 days"),
    ("delta.dataSkippingNumIndexedCols", "1"),
    ("delta.randomizeFilePrefixes", "true"),
    ("delta.isolationLevel", "Serializable"),
    ("delta.feature.deletionVectors", "supported"),
    ("delta.feature.timestampNtz", "supported"),
    ("team.owner", "sales"),
    # never right
    ("delta.enableDeletionVector", "true"),
    ("delta.logRetentionDuration", "abc"),
    ("delta.checkpointInterval", "-1"),
    ("delta.minReaderVersion", "3"),
    ("delta.minWriterVersion", "7"),
    ("delta.feature.nope", "supported"),
    ("delta.constraints.c", "id > 0"),
    ("delta.enableRowTracking", "maybe"),
    ("content", "derived"),
)

CHECKS = (
    "id > 0", "id IS NOT NULL", "id < 1000 AND id > -1", "length(CAST(id AS STRING)) < 9",
    # never right
    "nope > 0", "id + 1", "sum(id) > 0", "id > (SELECT 1)", "rand() < 2",
)

QUERIES = (
    "SELECT id FROM {t}",
    "SELECT count(*) FROM {t}",
    "SELECT id + 1 FROM {t}",
    "SELECT max(id) AS id FROM {t} GROUP BY ALL",
    "SELECT 1",
    "SELECT CAST(id AS BIGINT) AS a FROM {t} WHERE id > 1",
    "SELECT x.id FROM {t} x JOIN {t} y ON x.id = y.id",
    "WITH c AS (SELECT id FROM {t}) SELECT id FROM c",
    # never right
    "SELECT nope FROM {t}",
    "SELECT id, id FROM {t}",
    "SELECT id FROM {t} WHERE id",
)

FILLS = ("0", "CAST(7 AS INT)", "id", "'7'", "'abc'", "nope", "CAST(NULL AS INT)", "rand()")
"""Values of a new column that is NOT NULL."""


@dataclass(slots=True)
class Table:
    """A table: types of its columns by name, in order, their fills, and what the whole has."""

    name: str
    columns: dict[str, str]
    fills: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    layout: str = ""

    def text(self, schema: str) -> str:
        """The statement of a release that declares it."""
        lines = [
            f"{name} {kind}{self.fills.get(name, '')}" for name, kind in self.columns.items()
        ]
        lines += [f"CHECK ({check})" for check in self.checks]
        values = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        return (
            f"CREATE TABLE {schema}.{self.name} ({', '.join(lines)}){self.layout}"
            f"{f' WITH ({values})' if values else ''};\n"
        )

    def insert(self, schema: str, first: int) -> str:
        """An INSERT of three rows whose ids begin with ``first``."""
        rows = ", ".join(
            "(" + ", ".join(
                str(first + number) if name == "id" else TYPES[kind][number]
                for name, kind in self.columns.items()
            ) + ")"
            for number in range(3)
        )
        return f"INSERT INTO {schema}.{self.name} ({', '.join(self.columns)}) VALUES {rows}"


@dataclass(slots=True)
class Drawn:
    """One release of a chain."""

    tables: list[Table]
    views: dict[str, str]
    function: str | None

    def text(self, schema: str) -> str:
        """Its SQL."""
        statements = [table.text(schema) for table in self.tables]
        read = f"{schema}.{self.tables[0].name}"
        statements += [
            f"CREATE VIEW {schema}.{name} {query.format(t=read)};\n"
            for name, query in self.views.items()
        ]
        if self.function is not None:
            statements.append(f"CREATE FUNCTION {schema}.f {self.function.format(t=read)};\n")
        return "".join(statements)


def draw_chain(random: Random, releases: int = 3) -> Iterator[Drawn]:
    """Releases that follow each other; each may be refused for several reasons or for none."""
    tables = [_table(random, f"t{number}") for number in range(random.randint(1, 2))]
    drawn = Drawn(tables, {}, None)
    for number in range(releases):
        if number:
            for table in drawn.tables:
                _change(random, table)
        drawn.views = {
            f"v{index}": _view(random) for index in range(random.randint(0, 2))
        }
        drawn.function = random.choice((
            None, None, "(x INT) RETURNS INT RETURN x + 1", "(x INT) RETURNS INT RETURN y + 1",
            "(x INT) RETURNS TABLE (id INT) RETURN SELECT id FROM {t}",
        ))
        yield drawn


def _table(random: Random, name: str) -> Table:
    columns = {"id": random.choice(("INT", "INT", "BIGINT"))}
    for index in range(random.randint(1, 3)):
        columns[f"c{index}"] = random.choice(list(TYPES))
    table = Table(name, columns)
    table.layout = random.choice(("", "", "", " CLUSTER BY (id)", " PARTITIONED BY (id)"))
    _redraw_clauses(random, table)
    return table


def _redraw_clauses(random: Random, table: Table) -> None:
    table.properties = dict(_some(random, PROPERTIES, (0, 0, 1, 1, 2), sound=19))
    table.checks = list(_some(random, CHECKS, (0, 0, 0, 1), sound=4))


def _some(random: Random, choices, counts, *, sound: int):  # type: ignore[no-untyped-def]
    """Some of the choices; what comes behind the ``sound`` ones is seldom among them."""
    pool = choices[:sound] if random.random() < 0.85 else choices
    return random.sample(pool, random.choice(counts))


def _view(random: Random) -> str:
    pool = QUERIES[:8] if random.random() < 0.85 else QUERIES
    query = random.choice(pool)
    names = "(a BIGINT, b BIGINT)" if query.startswith("SELECT id, id") else "(n BIGINT)"
    return f"{names} AS {query}"


def _change(random: Random, table: Table) -> None:
    """What the next release does to a table: several things at once, or nothing."""
    for act in random.sample(
        ("widen", "add", "fill", "layout", "clauses", "move"), random.choice((0, 1, 1, 2))
    ):
        if act == "widen":
            for name, kind in table.columns.items():
                if kind in WIDER:
                    table.columns[name] = WIDER[kind]
                    TYPES.setdefault(WIDER[kind], TYPES[kind])
                    break
        elif act == "add":
            table.columns[f"n{len(table.columns)}"] = random.choice(list(TYPES))
        elif act == "fill":
            name = f"n{len(table.columns)}"
            table.columns[name] = "INT"
            table.fills[name] = " NOT NULL " + random.choice(("DEFAULT ", "USING ")) + (
                random.choice(FILLS)
            )
        elif act == "layout":
            table.layout = random.choice(("", " CLUSTER BY (id)", " PARTITIONED BY (id)"))
        elif act == "clauses":
            _redraw_clauses(random, table)
        else:
            table.columns = dict(sorted(table.columns.items(), key=lambda item: item[0] == "c0"))
