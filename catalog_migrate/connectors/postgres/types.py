"""Tables and columns upstream, PostgreSQL's types beside ours, and places in a server's log.

Values travel as the text that PostgreSQL prints (ISO dates, UTC, hexadecimal bytes);
:func:`spark_value` says how the text becomes a value. What our types cannot hold:

- ``infinity`` and ``-infinity`` of dates and timestamps become the last and the first that four
  digits of a year can write, so that comparisons go on to mean the same; timestamps behind
  294247-01-10 04:00:54.775807, the last that microseconds in 64 bits count to, and dates behind
  262142-12-31, the last that delta-rs reads, become what ``infinity`` does, but not in a key, of
  which two must not become one;
- dates and timestamps BC become years 0 and before, as Spark counts them;
- ``NaN`` in a ``numeric(p, s)`` becomes NULL, for a DECIMAL has none; ``NaN`` and infinity of
  ``real`` and ``double precision`` stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from catalog_migrate.model.names import quote_postgres

NUMERIC = 1700

_DECIMAL_DIGITS = 38

_BY_OID: Mapping[int, str] = {
    16: "BOOLEAN",  # boolean
    17: "BINARY",  # bytea
    20: "BIGINT",  # bigint
    21: "SMALLINT",  # smallint
    23: "INT",  # integer
    26: "BIGINT",  # oid
    700: "FLOAT",  # real
    701: "DOUBLE",  # double precision
    1082: "DATE",  # date
    1114: "TIMESTAMP_NTZ",  # timestamp without time zone
    1184: "TIMESTAMP",  # timestamp with time zone
}
"""Types with a counterpart, by oid; numeric has a rule of its own."""

_AS_TEXT = frozenset({
    18, 19, 25, 1042, 1043,  # "char", name, text, char(n), varchar(n)
    114, 142, 2950, 3802, 4072,  # json, xml, uuid, jsonb, jsonpath
    1083, 1186, 1266,  # time, interval, time with time zone
    790, 1560, 1562,  # money, bit, varbit
    650, 774, 829, 869,  # cidr, macaddr8, macaddr, inet
    600, 601, 602, 603, 604, 628, 718,  # point and the other shapes
    3614, 3615, 3220,  # tsvector, tsquery, pg_lsn
    24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191,  # reg…: names
    27, 28, 29, 5069, 2970, 5038,  # tid, xid, cid, xid8, snapshots
})  # fmt: skip
"""Types that become STRING, in PostgreSQL's own text."""

_TEXT_KINDS = frozenset("ecrm")
"""pg_type.typtype of enumerations, rows, ranges and multiranges: STRING as well."""
_TEXT_EXTENSIONS = frozenset({
    "citext", "geography", "geometry", "halfvec", "hstore", "lquery", "ltree", "sparsevec", "vector"
})
"""Types of well-known extensions that become STRING, by name."""


class Column(msgspec.Struct, frozen=True):
    """A column upstream as pgoutput tells of it: its type's oid and modifier (-1: none), and
    whether it is in the key.

    One expected may be missing in changes up to ``since``, the LSN of the first commit that had it,
    and from ``until`` on, that of the first commit without it; 0: there is no such commit.
    """

    name: str
    type_oid: int
    modifier: int = -1
    key: bool = False
    since: int = 0
    until: int = 0

    def may_be_missing(self, lsn: int) -> bool:
        """Whether a change that was committed at ``lsn`` may be of the table without it."""
        return bool((self.since and lsn <= self.since) or (self.until and lsn >= self.until))


class Expected(msgspec.Struct, frozen=True):
    """The columns of a table in the order in which its images come, and what new ones mean.

    Columns with ``key`` identify rows: the server must send their old values. With ``ignore``
    columns that are not expected are passed over. ``oid`` is that of the table, 0 for any: it is
    known by it under another name, and another table of its name is not it. Changes that were
    committed before ``since`` are passed over: the rows were copied after them.
    """

    columns: tuple[Column, ...]
    new_columns: Literal["refuse", "ignore"] = "refuse"
    oid: int = 0
    since: int = 0


class DiscoveredColumn(msgspec.Struct, frozen=True):
    """A column as the server's catalog has it.

    ``type`` is PostgreSQL's text for it, ``spark_type`` ours, None where we have none;
    ``published`` says whether its values come (generated columns do only when asked for),
    ``filled`` whether rows from before it was added may have a value in it.
    """

    name: str
    type: str
    type_oid: int
    modifier: int
    spark_type: str | None
    not_null: bool
    generated: Literal["", "stored", "virtual"]
    published: bool = True
    filled: bool = False


class DiscoveredTable(msgspec.Struct, frozen=True):
    """A table as the server's catalog has it.

    ``key`` are the columns of the primary key, or of the index that is the replica identity;
    ``identity`` is ``default``, ``index``, ``full`` or ``nothing``.
    """

    schema: str
    name: str
    columns: tuple[DiscoveredColumn, ...]
    key: tuple[str, ...]
    identity: Literal["default", "index", "full", "nothing"]
    partitioned: bool = False

    @property
    def full_name(self) -> str:
        """``schema.name``, as changes name their table."""
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """The name for SQL."""
        return f"{quote_postgres(self.schema)}.{quote_postgres(self.name)}"

    @property
    def published(self) -> tuple[DiscoveredColumn, ...]:
        """The columns whose values come, in the order of images."""
        return tuple(column for column in self.columns if column.published)

    def expected(self, new_columns: Literal["refuse", "ignore"] = "refuse") -> Expected:
        """What the decoder shall insist on, also that old values of the key come."""
        return Expected(
            tuple(
                Column(column.name, column.type_oid, column.modifier, column.name in self.key)
                for column in self.published
            ),
            new_columns,
        )


def spark_type(oid: int, modifier: int, *, kind: str = "b", category: str = "U", name: str = "",
               ) -> str | None:
    """Our type for a PostgreSQL type that is no domain; None when there is none.

    ``kind`` and ``category`` are pg_type.typtype and .typcategory, ``name`` is .typname.
    """
    if oid == NUMERIC:
        return _numeric(modifier)
    found = _BY_OID.get(oid)
    if found is not None:
        return found
    is_text = (
        oid in _AS_TEXT or kind in _TEXT_KINDS or category == "A" or name in _TEXT_EXTENSIONS
    )
    return "STRING" if is_text else None


def _numeric(modifier: int) -> str:
    """DECIMAL where precision and scale are declared and fit, else STRING, which loses nothing."""
    if modifier < 4:
        return "STRING"
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = (modifier - 4) & 0x7FF
    if scale > 1023:  # 11 bits with a sign: scales may be below zero
        return "STRING"
    if not scale <= precision <= _DECIMAL_DIGITS:
        return "STRING"
    return f"DECIMAL({precision},{scale})"


def spark_value(spark: str, text: str, *, key: bool = False) -> str:
    """A SQL expression of Spark: the value of a column of type ``spark`` from PostgreSQL's text.

    ``text`` is an expression of type STRING, as ``after[3]``; NULL stays NULL. Under ANSI mode a
    text that is no value of the type is an error, never NULL; in a ``key`` also one that would
    become the value of another text.
    """
    convert = _CONVERSIONS.get(spark.partition("(")[0].strip().upper())
    return text if convert is None else convert(text, spark, "CAST", key)


def is_unfit(spark: str, text: str, *, key: bool = False) -> str:
    """A SQL expression of Spark: whether :func:`spark_value` of a text is an error."""
    sized = re.fullmatch(r"(?:VAR)?CHAR\((\d+)\)", spark.strip().upper())
    if sized is not None:
        return f"coalesce(length({text}) > {sized[1]}, false)"
    convert = _CONVERSIONS.get(spark.partition("(")[0].strip().upper())
    if convert is None:
        return "false"
    return f"({text} <> 'NaN' AND {convert(text, spark, 'try_cast', key)} IS NULL)"


_Convert = Callable[[str, str, str, bool], str]
"""(text, type, CAST or try_cast, whether of a key)."""


def _cast(text: str, spark: str, cast: str, _: bool) -> str:
    return f"{cast}({text} AS {spark})"


def _boolean(text: str, *_: object) -> str:
    return f"({text} = 't')"


def _binary(text: str, *_: object) -> str:
    return f"unhex(substring({text}, 3))"


def _decimal(text: str, spark: str, cast: str, _: bool) -> str:
    return f"{cast}(nullif({text}, 'NaN') AS {spark})"


def _moment(first: str, last: str, zone: str, largest: str) -> _Convert:
    """Of dates and timestamps; behind ``largest``, whose year has six digits, they become ``last``.
    """

    def convert(text: str, spark: str, cast: str, key: bool) -> str:
        plain = f"replace({text}, '+00', 'Z')" if zone else text
        # '0044-03-15 12:00:00+00 BC': 44 BC is year -43
        year = f"split_part({text}, '-', 1)"
        before = (
            f"concat('-', lpad(CAST(CAST({year} AS INT) - 1 AS STRING), 4, '0'),"
            f" substring(replace({plain}, ' BC', ''), length({year}) + 1))"
        )
        value = f"{cast}(IF({text} LIKE '% BC', {before}, {plain}) AS {spark})"
        if not key:
            digits = f"instr({text}, '-') - 1"
            value = (
                f"IF({digits} > 5 AND ({digits} > 6 OR {text} > '{largest}'), {spark} '{last}',"
                f" {value})"
            )
        return (
            f"CASE {text} WHEN 'infinity' THEN {spark} '{last}' WHEN '-infinity' THEN {spark}"
            f" '{first}' ELSE {value} END"
        )

    return convert


_LARGEST = "294247-01-10 04:00:54.775807"
"""The last timestamp of Spark, and of microseconds in Delta and Parquet."""

_CONVERSIONS: Mapping[str, _Convert] = {
    "BOOLEAN": _boolean,
    "BINARY": _binary,
    "SMALLINT": _cast,
    "INT": _cast,
    "BIGINT": _cast,
    "FLOAT": _cast,
    "DOUBLE": _cast,
    "DECIMAL": _decimal,
    "DATE": _moment("0001-01-01", "9999-12-31", "", "262142-12-31"),
    "TIMESTAMP_NTZ": _moment(
        "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "", _LARGEST
    ),
    "TIMESTAMP": _moment(
        "0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z", "Z", f"{_LARGEST}+00"
    ),
}


_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


def lsn_number(text: str) -> int:
    """The log sequence number of ``0/16B3748``; raises ValueError for another text."""
    match = _LSN.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no log sequence number, as 0/16B3748 is")
    return (int(match[1], 16) << 32) + int(match[2], 16)


def lsn_text(number: int) -> str:
    """The same number as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


_WITH_SURVEY = re.compile(r"([0-9a-f]{24}) ([0-9a-f]{24}) (\{.*\})", re.DOTALL)


def parse_catalog(text: str) -> tuple[str, str, str]:
    """What a position has of the catalog: its fields ``catalog``, ``survey`` and ``after``."""
    found = _WITH_SURVEY.fullmatch(text)
    return (text, "", "") if found is None else (found[1], found[3], found[2])


class Position(msgspec.Struct, frozen=True):
    """Everything that was committed before ``lsn`` on ``timeline`` of server ``system``.

    A transaction whose commit record begins at ``lsn`` or later is still to come. ``catalog`` is
    the fingerprint of what the tables depend on, as it was when this position was reached
    (:mod:`catalog_migrate.connectors.postgres.survey`); empty where it was not read. ``survey`` is
    that itself, as JSON, as long as it may not be on record yet, which has that of the fingerprint
    ``after``.
    """

    lsn: int
    timeline: int
    system: str
    catalog: str = ""
    survey: str = ""
    after: str = ""

    def __str__(self) -> str:
        return lsn_text(self.lsn)

    def offset(self) -> dict[str, Any]:
        """As the stream reader hands it to Spark, which compares offsets by their text."""
        plain = {"lsn": lsn_text(self.lsn), "timeline": self.timeline, "system": self.system}
        if not self.catalog:
            return plain
        # in the one text: a version that knows no surveys takes it for another fingerprint
        text = f"{self.catalog} {self.after} {self.survey}" if self.survey else self.catalog
        return {**plain, "catalog": text}

    def json(self) -> str:
        """The line of a checkpoint's entry, letter by letter as the stream reader writes it."""
        return json.dumps(self.offset())

    @classmethod
    def of(cls, offset: Mapping[str, Any] | str) -> Position:
        """From an offset or its JSON; raises ValueError when it is none."""
        try:
            found = json.loads(offset) if isinstance(offset, str) else offset
            return cls(
                lsn_number(found["lsn"]), int(found["timeline"]), str(found["system"]),
                *parse_catalog(str(found.get("catalog", ""))),
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("no position of a PostgreSQL server") from error
