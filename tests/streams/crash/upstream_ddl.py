"""Random changes of a table's definition upstream, and of what a publication gives of it.

A :class:`Subject` is one table in a schema of its own, with its publication. :data:`STEPS` are what
may be done to it: a step that cannot lose a change is `harmless`, and no reason to hold its source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ROLE = "cdc"
COLUMNS = (
    "id int NOT NULL, v text, n int, large text, amount numeric(10,2), yes boolean, at date"
)


@dataclass
class Subject:
    """One table upstream. ``partitioned``: by ranges of its key; ``identity``: how rows are told
    apart in the log; ``whole_schema``: it is published with its schema; ``where``: a row filter."""

    number: int
    partitioned: bool = False
    identity: str = "default"
    whole_schema: bool = False
    where: str = ""
    steps: list[str] = field(default_factory=list)

    @classmethod
    def draw(cls, number: int, chance: random.Random) -> Subject:
        """One of the kinds."""
        whole = chance.random() < 0.25
        identity = chance.choice(("default", "default", "full", "index"))
        return cls(
            number, chance.random() < 0.35, identity, whole,
            "id > 5" if not whole and chance.random() < 0.2 else "",
        )

    @property
    def schema(self) -> str:
        return f"x{self.number}"

    @property
    def table(self) -> str:
        return f"{self.schema}.t"

    @property
    def publication(self) -> str:
        return f"p{self.number}"

    @property
    def created(self) -> list[str]:
        """The table, its key and its rows."""
        table, by = self.table, " PARTITION BY RANGE (id)" if self.partitioned else ""
        made = [f"CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY (id)){by}"]
        if self.partitioned:
            made += [
                f"CREATE TABLE {table}_{n} PARTITION OF {table}"
                f" FOR VALUES FROM ({100 * n}) TO ({100 * n + 100})" for n in range(3)
            ]
            made.append(f"CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT")
        if self.identity == "full":
            made.append(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        elif self.identity == "index":
            made.append(f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX t_pkey")
        rows = "SELECT g, 'row ' || g, 0, repeat('x', 3000), g / 7.0, g % 2 = 0, '2026-01-01'"
        return [*made, f"INSERT INTO {table} {rows} FROM generate_series(0, 299, 3) AS g"]

    @property
    def laid_out(self) -> list[str]:
        """Schema, tables, publication and rights."""
        options = " WITH (publish_via_partition_root = true)" if self.partitioned else ""
        what = f"TABLES IN SCHEMA {self.schema}" if self.whole_schema else f"TABLE {self.table}" + (
            f" WHERE ({self.where})" if self.where else ""
        )
        return [
            f"CREATE SCHEMA {self.schema}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA {self.schema} GRANT SELECT ON TABLES TO {ROLE}",
            f"GRANT USAGE ON SCHEMA {self.schema} TO {ROLE}", *self.created,
            f"CREATE TABLE {self.schema}.other (id int PRIMARY KEY)",
            f"CREATE PUBLICATION {self.publication} FOR {what}{options}",
        ]

    @property
    def removed(self) -> list[str]:
        """All of it."""
        return [f"DROP PUBLICATION IF EXISTS {self.publication}",
                f"DROP SCHEMA {self.schema} CASCADE"]


class Step(NamedTuple):
    """Statements for a subject, each a commit of its own, or one of several in one transaction.

    ``undo`` may follow a moment later.
    """

    do: Callable[[Subject, random.Random], list[list[str]]]
    undo: Callable[[Subject], list[list[str]]] | None = None
    harmless: bool = False
    kinds: str = "plain partitioned"


def _each(*texts: str) -> Callable[[Subject, random.Random], list[list[str]]]:
    """Each statement by itself."""
    return lambda subject, _: [[_fill(text, subject)] for text in texts]


def _as_one(*texts: str) -> Callable[[Subject, random.Random], list[list[str]]]:
    """All in one transaction."""
    return lambda subject, _: [[_fill(text, subject) for text in texts]]


def _back(*texts: str) -> Callable[[Subject], list[list[str]]]:
    return lambda subject: [[_fill(text, subject)] for text in texts]


def _fill(text: str, subject: Subject) -> str:
    return text.format(t=subject.table, x=subject.schema, p=subject.publication, role=ROLE)


def _added_column(subject: Subject, chance: random.Random) -> list[list[str]]:
    name = f"c{chance.randrange(10_000)}"
    return [[f"ALTER TABLE {subject.table} ADD COLUMN {name} {chance.choice(('text', 'int'))}"]]


def _added_with_default(subject: Subject, chance: random.Random) -> list[list[str]]:
    """Its default in the rows of before never comes by the log."""
    name = f"c{chance.randrange(10_000)}"
    added = f"ALTER TABLE {subject.table} ADD COLUMN {name} int"
    return [chance.choice([
        [f"{added} DEFAULT 7"], [f"{added} NOT NULL DEFAULT 7"],
        [f"{added} GENERATED BY DEFAULT AS IDENTITY"],
        [f"{added} DEFAULT 7", f"ALTER TABLE {subject.table} ALTER COLUMN {name} DROP DEFAULT"],
    ])]


def _made_again(subject: Subject, chance: random.Random) -> list[list[str]]:
    made = [f"DROP TABLE {subject.table} CASCADE", *subject.created]
    if chance.random() < 0.7 and not subject.whole_schema:
        made.append(f"ALTER PUBLICATION {subject.publication} ADD TABLE {subject.table}")
    return [made] if chance.random() < 0.5 else [[each] for each in made]


def _renamed_column(subject: Subject, _: random.Random) -> list[list[str]]:
    return [[f"ALTER TABLE {subject.table} RENAME COLUMN n TO m"]]


STEPS: Mapping[str, Step] = {
    # what cannot lose a change
    "grant": Step(_each("GRANT SELECT ON {t} TO PUBLIC"), _back("REVOKE SELECT ON {t} FROM PUBLIC"),
                  harmless=True),
    "index": Step(_each("CREATE INDEX i ON {t} (n)"), _back("DROP INDEX {x}.i"), harmless=True),
    "analyze": Step(_each("ANALYZE {t}"), harmless=True),
    "vacuum full": Step(_each("VACUUM FULL {t}"), harmless=True),
    "comment": Step(_each("COMMENT ON TABLE {t} IS 'seen'"), harmless=True),
    "statistics": Step(_each("ALTER TABLE {t} ALTER v SET STATISTICS 50"), harmless=True),
    "publish another": Step(_each("ALTER PUBLICATION {p} ADD TABLE {x}.other"),
                            _back("ALTER PUBLICATION {p} DROP TABLE {x}.other"), harmless=True),
    "policy": Step(_each("CREATE POLICY few ON {t} USING (id < 50)",
                         "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"),
                   _back("ALTER TABLE {t} DISABLE ROW LEVEL SECURITY", "DROP POLICY few ON {t}"),
                   harmless=True),
    "truncate": Step(_each("TRUNCATE {t}"), harmless=True),
    "truncate and fill": Step(_as_one("TRUNCATE {t}", "INSERT INTO {t} (id, v) VALUES (1, 'one')"),
                              harmless=True),
    "renamed and back": Step(_each("ALTER TABLE {t} RENAME TO u", "ALTER TABLE {x}.u RENAME TO t"),
                             harmless=True),
    "identity full": Step(_each("ALTER TABLE {t} REPLICA IDENTITY FULL"), harmless=True),
    "add column": Step(_added_column, harmless=True),
    "add column with default": Step(_added_with_default, harmless=True),
    "new partition": Step(_each("CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES FROM (900)"
                                " TO (1000)"), harmless=True, kinds="partitioned"),
    # what may
    "drop": Step(_each("DROP TABLE {t} CASCADE")),
    "made again": Step(_made_again),
    "rename": Step(_each("ALTER TABLE {t} RENAME TO u")),
    "rename away": Step(_as_one("ALTER TABLE {t} RENAME TO u",
                                "CREATE TABLE {t} (LIKE {x}.u INCLUDING ALL)",
                                "INSERT INTO {t} (id, v) VALUES (1, 'another')")),
    "schema": Step(_each("ALTER TABLE {t} SET SCHEMA public"),
                   _back("ALTER TABLE public.t SET SCHEMA {x}")),
    "unpublish": Step(_each("ALTER PUBLICATION {p} DROP TABLE {t}"),
                      _back("ALTER PUBLICATION {p} ADD TABLE {t}")),
    "unpublish, change, publish": Step(_as_one(
        "ALTER PUBLICATION {p} DROP TABLE {t}", "UPDATE {t} SET v = 'between' WHERE id < 30",
        "ALTER PUBLICATION {p} ADD TABLE {t}",
    )),
    "publish less": Step(_each("ALTER PUBLICATION {p} SET (publish = 'insert')"),
                         _back("ALTER PUBLICATION {p} SET"
                               " (publish = 'insert, update, delete, truncate')")),
    "publish no truncate": Step(_each("ALTER PUBLICATION {p} SET (publish = 'insert, update,"
                                      " delete')", "TRUNCATE {t}")),
    "filter": Step(_each("ALTER PUBLICATION {p} SET TABLE {t} WHERE (id % 2 = 0)"),
                   _back("ALTER PUBLICATION {p} SET TABLE {t}")),
    "no filter": Step(_each("ALTER PUBLICATION {p} SET TABLE {t}")),
    "list of columns": Step(_each("ALTER PUBLICATION {p} SET TABLE {t} (id, v)"),
                            _back("ALTER PUBLICATION {p} SET TABLE {t}")),
    "publication made again": Step(_each(
        "DROP PUBLICATION {p}", "UPDATE {t} SET v = 'unpublished' WHERE id < 9",
        "CREATE PUBLICATION {p} FOR TABLE {t} WITH (publish_via_partition_root = true)",
    )),
    "via root": Step(_each("ALTER PUBLICATION {p} SET (publish_via_partition_root = false)"),
                     _back("ALTER PUBLICATION {p} SET (publish_via_partition_root = true)"),
                     kinds="partitioned"),
    "key dropped": Step(_each("ALTER TABLE {t} DROP CONSTRAINT t_pkey",
                              "ALTER TABLE {t} REPLICA IDENTITY FULL",
                              "INSERT INTO {t} (id, v) SELECT id, 'twin' FROM {t} LIMIT 1")),
    "key made again": Step(_each("ALTER TABLE {t} DROP CONSTRAINT t_pkey",
                                 "ALTER TABLE {t} ADD PRIMARY KEY (id)")),
    "another key": Step(_as_one("ALTER TABLE {t} ADD COLUMN k bigserial",
                                "ALTER TABLE {t} DROP CONSTRAINT t_pkey",
                                "ALTER TABLE {t} ADD PRIMARY KEY (k)"), kinds="plain"),
    "identity nothing": Step(_each("ALTER TABLE {t} REPLICA IDENTITY NOTHING"),
                             _back("ALTER TABLE {t} REPLICA IDENTITY DEFAULT")),
    "drop column": Step(_each("ALTER TABLE {t} DROP COLUMN n")),
    "column made again": Step(_as_one("ALTER TABLE {t} DROP COLUMN n",
                                      "ALTER TABLE {t} ADD COLUMN n int")),
    "rename column": Step(_renamed_column, _back("ALTER TABLE {t} RENAME COLUMN m TO n")),
    "columns swapped": Step(_as_one("ALTER TABLE {t} RENAME COLUMN v TO w",
                                    "ALTER TABLE {t} RENAME COLUMN large TO v",
                                    "ALTER TABLE {t} RENAME COLUMN w TO large")),
    "wider type": Step(_each("ALTER TABLE {t} ALTER n TYPE bigint")),
    "other text": Step(_each("ALTER TABLE {t} ALTER v TYPE varchar(400)")),
    "values rewritten": Step(_each("ALTER TABLE {t} ALTER n TYPE int USING n + 1")),
    "more digits": Step(_each("ALTER TABLE {t} ALTER amount TYPE numeric(12,3)")),
    "unlogged": Step(_each("ALTER TABLE {t} SET UNLOGGED",
                           "UPDATE {t} SET v = 'not in the log' WHERE id < 9"),
                     _back("ALTER TABLE {t} SET LOGGED"), kinds="plain"),
    "child": Step(_each("CREATE TABLE {x}.child () INHERITS ({t})",
                        "INSERT INTO {x}.child (id, v) VALUES (5000, 'child')"),
                  _back("ALTER TABLE {x}.child NO INHERIT {t}"), kinds="plain"),
    "detach": Step(_each("ALTER TABLE {t} DETACH PARTITION {t}_1"),
                   _back("ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (100) TO (200)"),
                   kinds="partitioned"),
    "detach, change, attach": Step(_as_one(
        "ALTER TABLE {t} DETACH PARTITION {t}_1", "UPDATE {t}_1 SET v = 'alone'",
        "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (100) TO (200)",
    ), kinds="partitioned"),
    "partition truncated": Step(_each("TRUNCATE {t}_0"), kinds="partitioned"),
    "partition dropped": Step(_each("DROP TABLE {t}_2"), kinds="partitioned"),
    "partition with rows": Step(_each(
        "CREATE TABLE {t}_9 (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_9 (id, v) VALUES (1050, 'was there')",
        "ALTER TABLE {t} ATTACH PARTITION {t}_9 FOR VALUES FROM (1000) TO (1100)",
    ), kinds="partitioned"),
}  # fmt: skip


def draw_step(subject: Subject, chance: random.Random) -> str:
    """The name of one that the subject can take; half of the time a harmless one."""
    kind = "partitioned" if subject.partitioned else "plain"
    harmless = chance.random() < 0.5
    return chance.choice([
        name for name, step in STEPS.items()
        if kind in step.kinds.split() and step.harmless is harmless
    ])
