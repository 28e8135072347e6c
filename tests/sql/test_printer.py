"""Statements to text, and back again to the same statement."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.model.names import quote_part
from catalog_migrate.model.objects import Column, External, SecretRef, UpstreamTable
from catalog_migrate.sql import statements as s
from catalog_migrate.sql.parser import Parsed, parse, parse_one
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import (
    CONNECTORS,
    INCLUDED,
    KINDS,
    LISTINGS,
    QUERY_KINDS,
    RESERVED,
    option_name,
)

CHARACTERS = st.characters(exclude_categories=("Cs",))
TEXT = st.one_of(
    st.text(CHARACTERS, max_size=8),
    st.text(st.sampled_from("'\"`\\;-/*\n\r\t %_é日$@{}#=,() nu0"), max_size=8),
)
PARTS = st.one_of(
    st.sampled_from(["a", "Orders", "x_1", "1a", "a b", "a.b", "a`b", "日本", "key", "Secret"]),
    st.sampled_from(sorted(RESERVED)).map(str.lower),
    st.text(CHARACTERS, min_size=1, max_size=6),
)
NAMES = st.lists(PARTS, min_size=1, max_size=2).map(lambda parts: ".".join(map(quote_part, parts)))
OPTION_NAMES = st.one_of(
    st.sampled_from(
        ["BROKER", "SASL PASSWORD", "CLIENT SECRET", "SECRET", "USING", "USING CONNECTIONS", "TO",
         "kafka.linger.ms", "kafka.ssl.key-password", "1A"]
    ),
    st.text(CHARACTERS, min_size=1, max_size=8).map(option_name).filter(
        lambda name: bool(name) and option_name(name) == name
    ),
)  # fmt: skip
VALUES = st.one_of(TEXT, NAMES.map(SecretRef))
OPTIONS = st.dictionaries(
    OPTION_NAMES.filter(lambda name: not name.startswith("USING CONNECTION")), VALUES, min_size=1,
    max_size=4,
)
BASED_OPTIONS = st.builds(
    lambda options, base: options if base is None else {**options, "USING CONNECTION": base},
    OPTIONS, st.none() | NAMES,
)
SETTINGS = st.dictionaries(OPTION_NAMES, TEXT, max_size=3)
KIND = st.sampled_from(sorted(KINDS.values()))
QUERY_KIND = st.sampled_from(sorted(QUERY_KINDS.values()))
CONNECTOR = st.sampled_from(sorted(CONNECTORS))
MAYBE_TEXT = st.none() | TEXT
MAYBE_BOOLEAN = st.none() | st.booleans()
TYPES = st.sampled_from(
    ["INT", "decimal(10, 2)", "shop.money", "STRUCT<a: INT NOT NULL COMMENT 'x)', `b c`: MAP<STRING"
     ", ARRAY<INT>>>", "DOUBLE  PRECISION", "ARRAY<\n  INT -- inner\n>"]
)  # fmt: skip
COLUMNS = st.lists(
    st.builds(Column, name=PARTS, type=TYPES, nullable=st.booleans(), comment=MAYBE_TEXT),
    max_size=3,
).map(tuple)
COLUMN_NAMES = st.lists(PARTS, min_size=1, max_size=2).map(tuple)
OPTION_LIST = st.lists(OPTION_NAMES, min_size=1, max_size=3, unique=True).map(tuple)
DROPS_AND_RESETS = st.builds(s.DropOptions, OPTION_LIST) | st.builds(s.ResetOptions, OPTION_LIST)
ACTIONS = st.lists(st.builds(s.SetOptions, OPTIONS) | DROPS_AND_RESETS, min_size=1, max_size=3).map(
    tuple
)
CONNECTION_ACTIONS = st.lists(
    st.builds(s.SetOptions, BASED_OPTIONS) | DROPS_AND_RESETS, min_size=1, max_size=3
).map(tuple)
UNSAFE_ACTIONS = st.lists(
    st.one_of(
        st.builds(s.SetOptions, OPTIONS),
        DROPS_AND_RESETS,
        st.builds(s.ResetSplits, st.lists(TEXT, max_size=2, unique=True).map(tuple)),
        st.builds(
            s.InjectOffsets, st.dictionaries(TEXT, st.none() | TEXT, min_size=1, max_size=3)
        ),
        st.builds(s.InjectOffsets, everywhere=TEXT),
        st.builds(s.InjectVersion, st.integers(0, 2**63)),
    ),
    min_size=1, max_size=3,
).map(tuple)
CONNECTION = st.builds(
    External, connector=CONNECTOR, connection=st.none() | NAMES, options=OPTIONS
)
SOURCE = st.builds(
    External, connector=CONNECTOR, connection=NAMES, options=OPTIONS, settings=SETTINGS,
    format=st.none() | st.sampled_from(["JSON", "TEXT", "BYTES", "JSON SCHEMA", "AVRO"]),
    registry=st.none() | NAMES, key_format=st.none() | st.sampled_from(["AVRO", "TEXT"]),
    include=st.dictionaries(st.sampled_from(sorted(INCLUDED)), PARTS | st.just("key"), max_size=4),
    dead_letters=st.none() | NAMES, cluster=st.none() | NAMES,
    tables=st.lists(
        st.builds(
            lambda schema, name, into: UpstreamTable(f"{schema}.{name}", into or name),
            PARTS.map(quote_part), PARTS.map(quote_part), st.none() | NAMES,
        ),
        max_size=2,
    ).map(tuple),
).map(
    lambda it: it if it.format else msgspec.structs.replace(it, registry=None, key_format=None)
)
SINK = st.builds(
    lambda external, key, order_by: External(
        connector=external.connector, connection=external.connection, reads=external.connection,
        options=external.options, settings=external.settings, format=external.format,
        registry=external.registry,
        cluster=external.cluster, dead_letters=external.dead_letters, key=key,
        order_by=order_by if key else (),
    ),
    SOURCE, st.just(()) | COLUMN_NAMES, st.just(()) | COLUMN_NAMES,
)
EXPLAINABLE = st.one_of(
    st.builds(s.CreateSecret, NAMES, TEXT, st.booleans()),
    st.builds(s.AlterSecret, NAMES, MAYBE_TEXT, st.booleans(), MAYBE_BOOLEAN),
    st.builds(s.Drop, KIND, NAMES, st.booleans(), st.booleans()),
    st.builds(s.CreateConnection, NAMES, CONNECTION, st.booleans(), MAYBE_BOOLEAN, MAYBE_TEXT),
    st.builds(
        s.AlterConnection, NAMES, CONNECTION_ACTIONS, st.booleans(), st.none() | CONNECTOR,
        MAYBE_BOOLEAN,
    ),
    st.builds(s.AlterItem, QUERY_KIND, NAMES, ACTIONS, st.booleans()),
    st.builds(s.SetConnection, QUERY_KIND, NAMES, NAMES, st.booleans()),
    st.builds(s.Rename, KIND, NAMES, NAMES, st.booleans()),
    st.builds(s.ShowCreate, KIND, NAMES),
    st.builds(s.ValidateConnection, NAMES),
    st.builds(s.ValidateSource, NAMES, SETTINGS),
    st.builds(s.CreateSource, NAMES, COLUMNS, SOURCE, st.booleans(), MAYBE_TEXT),
    st.builds(s.CreateSink, NAMES, SINK, st.booleans(), MAYBE_TEXT),
    st.builds(s.CreateCluster, NAMES, st.booleans()),
    st.builds(s.Pause, QUERY_KIND, NAMES, MAYBE_TEXT),
    st.builds(s.Resume, QUERY_KIND, NAMES, MAYBE_TEXT),
    st.builds(s.Show, st.sampled_from(sorted(LISTINGS.values()))),
    st.builds(s.ShowLog, QUERY_KIND, NAMES, st.none() | st.integers(0, 10**9)),
    st.builds(s.Comment, KIND, NAMES, MAYBE_TEXT),
    st.builds(s.Unsafe, QUERY_KIND, NAMES, UNSAFE_ACTIONS, TEXT, SETTINGS, st.booleans()),
)
STATEMENTS = EXPLAINABLE | st.builds(s.Explain, EXPLAINABLE)


@given(STATEMENTS)
def test_printing_and_parsing_gives_the_statement_back(statement: s.Statement) -> None:
    """Every statement is what its text is read as, whatever its names and values hold."""
    assert parse_one(render(statement)) == statement


@given(st.lists(STATEMENTS, max_size=3))
def test_a_file_of_statements_gives_them_back(several: list[s.Statement]) -> None:
    """Statements printed one below the other are read as those statements."""
    text = "\n".join(map(render, several))
    assert [parsed.statement for parsed in parse(text)] == several


def test_the_documented_statements_survive(examples: tuple[Parsed, ...]) -> None:
    """Every documented example is read, printed and read again as the same statement."""
    assert len(examples) > 50
    for example in examples:
        assert parse_one(render(example.statement)) == example.statement


def test_what_fits_is_one_line() -> None:
    """A short statement is printed on one line."""
    text = "ALTER CONNECTION c SET (A = 'x', B = SECRET s), DROP (C D) WITH (VALIDATE = false);"
    assert render(parse_one(text)) == text


def test_what_does_not_fit_is_broken() -> None:
    """A long statement has a clause a line, and long lists an entry a line."""
    text = """\
CREATE SOURCE IF NOT EXISTS shop.orders (id BIGINT NOT NULL COMMENT 'it\\'s', `a b` STRING)
  IN CLUSTER main
  FROM KAFKA CONNECTION kafka (
    TOPIC = 'orders-and-payments-and-everything-else',
    START = 'earliest',
    A = 'a value of its own'
  )
  FORMAT JSON
  INCLUDE KEY, OFFSET AS o
  ON ERROR INTO shop.dead
  COMMENT 'c'
  WITH (MAX OFFSETS PER TRIGGER = '5');"""
    assert render(parse_one(text)) == text


def test_keywords_as_names_stand_in_backticks() -> None:
    """A name that is a keyword is printed so that it is read as a name."""
    assert render(s.Drop("source", "if.`from`")) == "DROP SOURCE `if`.`from`;"
