"""Every type of PostgreSQL that a source takes, with values at its edges, in PostgreSQL's SQL."""

from __future__ import annotations

from collections.abc import Mapping

_MOMENTS = (
    "2024-02-29 12:34:56.123456", "1900-01-01 00:00:00", "1582-10-10 01:02:03.5",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999",
    "0044-03-15 12:00:00 BC", "0001-12-31 23:59:59.9 BC", "infinity", "-infinity",
)

TYPES: Mapping[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "0", "32767"),
    "integer": ("-2147483648", "0", "2147483647"),
    "bigint": ("-9223372036854775808", "0", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "real": ("NaN", "Infinity", "-Infinity", "0", "0.1", "3.4028235e+38", "1e-45", "16777217"),
    "double precision": (
        "NaN", "Infinity", "-Infinity", "0", "0.1", "1.7976931348623157e+308", "5e-324", "1e15",
        "123456789012345678",
    ),
    "numeric(10,2)": ("NaN", "0", "-99999999.99", "1.5"),
    "numeric(38,10)": ("0.0000000001", "-9999999999999999999999999999.9999999999", "1"),
    "numeric": ("NaN", "Infinity", "0.1", "1e-20", "12345678901234567890123456789012345678901.5"),
    "date": (
        "2024-02-29", "1900-01-01", "1582-10-10", "0001-01-01", "9999-12-31", "0044-03-15 BC",
        "0001-12-31 BC", "infinity", "-infinity",
    ),
    "timestamp": _MOMENTS,
    "timestamptz": tuple(
        text if "infinity" in text else text.replace(" BC", "+02 BC") if "BC" in text
        else f"{text}+00" for text in _MOMENTS
    ),
    "bytea": ("", "\\x00ff10", "\\xdeadbeef"),
    "text": ("", " ", "a", "é\t\\N\n", "'", "\U0001f600", "NULL"),
    "varchar(12)": ("", "a  ", "ä"),
    "char(5)": ("", "ab", "abcde"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "json": ('{"a": [1, null]}', "null"),
    "jsonb": ('{"b":1,  "a":[true]}', '"x"'),
    "time": ("00:00:00", "24:00:00", "12:34:56.789"),
    "timetz": ("12:34:56+05:30",),
    "interval": ("1 mon -2 days 03:04:05.5", "0", "-1 year"),
    "money": ("-12.34", "0", "1234567.89"),
    "inet": ("10.0.0.1/8", "::1"),
    "int4range": ("[1,5)", "empty", "(,3)"),
    "integer[]": ("{1,NULL,3}", "{}", "{{1},{2}}"),
    "text[]": ('{"a,b","\\"q\\"",NULL,""}', "{}"),
    "bit(3)": ("101", "000"),
    "point": ("(1,-2.5)",),
}

NOT_KEYS = frozenset({"json", "point"})
"""Types without an order, which no key can have."""


def literal(value: str, type_: str) -> str:
    """A value in SQL."""
    return f"E'{value.replace(chr(92), chr(92) * 2).replace(chr(39), chr(39) * 2)}'::{type_}"
