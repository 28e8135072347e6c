"""Values as they were written: what a column would hold as another value is no value of it.

Spark's parsers round a DECIMAL, make Infinity of ``1e999`` and the year 55840 of a number that
counts milliseconds, all in silence. What was written is looked at beside what came out: the same
JSON as a VARIANT, whose numbers keep their digits and whose parser refuses a name that is there
twice (RFC 7493, I-JSON).

Everything is SQL text, pure. A *misfit* is an expression that is NULL for a good value, else what
is wrong with it, by the class of the fault and the type; the value itself is in no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from catalog_migrate.connectors.common_options import DECODING, TIMESTAMP_UNIT
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column, External
from catalog_migrate.model.types import (
    Array,
    Atomic,
    Decimal,
    Map,
    Sized,
    Struct,
    Type,
    parse_type,
)
from catalog_migrate.sql.tokens import string_literal

ONCE = "it has a name twice in one object"
PAIRS = "it has half of a surrogate pair"

_NO_TEXT = "CAST(NULL AS STRING)"
_LARGEST = {"FLOAT": "3.4028234663852886E38D", "DOUBLE": "1.7976931348623157E308D"}
_PER_SECOND = {"seconds": 1, "milliseconds": 1000, "microseconds": 1_000_000}
_MAKES = {
    "seconds": "timestamp_seconds", "milliseconds": "timestamp_millis",
    "microseconds": "timestamp_micros",
}
_PLAUSIBLE = (-2_208_988_800, 7_289_654_400)
"""Seconds since 1970 at which the years 1900 and 2201 begin."""
_POSSIBLE = (-62_135_596_800, 253_402_300_800)
"""The same of the years 1 and 10000."""
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_DATE = rf"^{_DAY}([T ]00:00(:00([.]0*)?)?(Z|[+]00:?00)?)?$"
_TIME = (
    rf"^{_DAY}([T ]([0-9]{{1,2}}(:[0-9]{{1,2}}(:[0-9]{{1,2}}([.][0-9]{{0,6}}0*)?)?)?"
    r"([^0-9.:].*)?)?)?$"
)
_TEXT_FORMS = {"DATE": _DATE, "TIMESTAMP": _TIME, "TIMESTAMP_NTZ": _TIME}
_FORMAT_OPTIONS = {
    "DATE": "dateformat", "TIMESTAMP": "timestampformat", "TIMESTAMP_NTZ": "timestampntzformat",
}
"""Options of Spark's readers that say how such texts are written."""


class Exact(msgspec.Struct, frozen=True):
    """How values of a source are compared with what was written.

    ``unit`` is what numbers in a TIMESTAMP count, None for plausible seconds; ``formats`` are the
    options (lower case) by which texts have a form of their own.
    """

    unit: str | None = None
    formats: frozenset[str] = frozenset()


def exact_of(external: External, reader_options: Iterable[str] = ()) -> Exact | None:
    """Return what DECODING and TIMESTAMP UNIT of a source say; None for the decoding of before."""
    if external.options.get(DECODING) != "exact":
        return None
    unit = external.options.get(TIMESTAMP_UNIT)
    return Exact(
        None if unit is None else str(unit),
        frozenset(each.lower() for each in reader_options) & {*_FORMAT_OPTIONS.values()},
    )


# -- what was written ------------------------------------------------------------------------------


def written_type(tree: Type) -> str | None:
    """The type by which a VARIANT gives what was written of a column, None where that says nothing.
    """
    if isinstance(tree, Decimal):
        return "VARIANT"
    if isinstance(tree, Array):
        inner = written_type(tree.element)
        return None if inner is None else f"ARRAY<{inner}>"
    if isinstance(tree, Map):
        inner = written_type(tree.value)
        return None if inner is None else f"MAP<STRING, {inner}>"
    if isinstance(tree, Struct):
        return written_struct((field.name, field.type) for field in tree.fields)
    if isinstance(tree, Sized):
        return "VARIANT"
    return "VARIANT" if isinstance(tree, Atomic) and tree.name in _WRITTEN else None


_WRITTEN = frozenset({"TINYINT", "STRING", *_TEXT_FORMS})


def written_struct(fields: Iterable[tuple[str, Type]]) -> str | None:
    """:func:`written_type` of a struct of those fields, without those that say nothing."""
    said = [
        f"{quote_sql(name)}: {inner}" for name, type_ in fields
        if (inner := written_type(type_)) is not None
    ]
    return f"STRUCT<{', '.join(said)}>" if said else None


def halves(text: str) -> str:
    """Whether an escape of JSON in ``text`` is half of a surrogate pair, which no UTF-8 has."""
    escape = string_literal("\\\\u")
    high, low = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
    # an escaped backslash escapes nothing behind it
    bare = f"regexp_replace({text}, {string_literal(chr(92) * 4)}, ' ')"
    single = f"regexp_replace({bare}, concat({escape}, '{high}', {escape}, '{low}'), ' ')"
    begins = string_literal("\\u")
    return f"instr({text}, {begins}) > 0 AND {single} RLIKE concat({escape}, '[dD][89a-fA-F]')"


# -- misfits ---------------------------------------------------------------------------------------


def misfits(
    columns: Sequence[Column], value: str, written: str, exact: Exact
) -> list[str]:
    """Return what is wrong with each column of a JSON record.

    ``value`` is the row as it was parsed, ``written`` the same of :func:`written_struct`.
    """
    found = []
    for column in columns:
        name = quote_sql(column.name)
        tree = parse_type(column.type)
        raw = None if written_type(tree) is None else f"{written}.{name}"
        said = misfit(tree, f"{value}.{name}", raw, exact)
        if said is not None:
            found.append(_of_column(column, said))
    return found


def misfits_of_values(columns: Sequence[Column], value: str) -> list[str]:
    """Return what is wrong with each column of a record whose format has types of its own."""
    found = []
    for column in columns:
        said = _misfit_of_value(parse_type(column.type), f"{value}.{quote_sql(column.name)}")
        if said is not None:
            found.append(_of_column(column, said))
    return found


def _of_column(column: Column, said: str) -> str:
    return f"{string_literal(f'its {column.name} ')} || {said}"


def misfit(
    tree: Type, value: str, raw: str | None, exact: Exact, depth: int = 0
) -> str | None:
    """The misfit of one value of JSON, None where its type takes nothing for another value."""
    x, y = f"x{depth}", f"y{depth}"
    if isinstance(tree, Array):
        inner = misfit(
            tree.element, x, y if raw is not None else None, exact, depth + 1
        )
        if inner is None:
            return None
        each = (
            f"transform({value}, {x} -> {inner})" if raw is None
            else f"zip_with({value}, {raw}, ({x}, {y}) -> {inner})"
        )
        return _first(each, f"e{depth}")
    if isinstance(tree, Map):
        there = None if raw is None else f"try_element_at({raw}, {x}.key)"
        inner = misfit(tree.value, f"{x}.value", there, exact, depth + 1)
        if inner is None:
            return None
        return _first(f"transform(map_entries({value}), {x} -> {inner})", f"e{depth}")
    if isinstance(tree, Struct):
        parts = []
        for field in tree.fields:
            name = quote_sql(field.name)
            written = None if raw is None or written_type(field.type) is None else f"{raw}.{name}"
            said = misfit(field.type, f"{value}.{name}", written, exact, depth)
            parts += [_lacks(field.name, f"{value}.{name}", value)] if not field.nullable else []
            parts += [said] if said is not None else []
        return f"coalesce({', '.join(parts)}, {_NO_TEXT})" if parts else None
    return _leaf(tree, value, raw, exact, nested=depth > 0)


def _leaf(
    tree: Type, value: str, raw: str | None, exact: Exact, *, nested: bool
) -> str | None:
    if isinstance(tree, Sized):
        long = string_literal(f"is longer than {tree}")
        said = f"CASE WHEN length({value}) > {tree.length} THEN {long} END" if nested else _NO_TEXT
        return said if raw is None else f"coalesce({said}, {_without_bound(tree, value, raw)})"
    if isinstance(tree, Decimal):
        assert raw is not None
        return _unless(decimal_holds(tree, value, f"CAST({raw} AS STRING)"), value, tree)
    name = tree.name if isinstance(tree, Atomic) else ""
    if raw is None and name in _WRITTEN:
        return None
    if name == "STRING":
        return _without_bound(tree, value, raw or "")
    if name in _LARGEST:
        return _unless(f"abs({value}) <= {_LARGEST[name]}", value, tree)
    if name == "TINYINT":
        return _unless(f"try_cast({raw} AS BIGINT) <=> {value}", value, tree)
    if name not in _TEXT_FORMS:
        return None
    kept = text_holds(name, f"CAST({raw} AS STRING)", exact)
    text = "CAST(NULL AS STRING)" if kept is None else (
        f"CASE WHEN NOT {kept} THEN {_not_exact(tree)} END"
    )
    if name != "TIMESTAMP":
        return f"CASE WHEN {value} IS NOT NULL THEN {text} END"
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN {_is_number(raw)}"
        f" THEN {_beyond(raw, exact)} ELSE {text} END"
    )


def _without_bound(tree: Type, value: str, raw: str) -> str:
    """The misfit of a text that is no text in JSON and holds a number beyond the largest DOUBLE."""
    return (
        f"CASE WHEN {value} RLIKE '\"-?Infinity\"' AND {_is_no_text(raw)}"
        f" THEN {_not_exact(tree)} END"
    )


def _is_no_text(raw: str) -> str:
    return f"schema_of_variant({raw}) <> 'STRING'"


def decimal_holds(tree: Decimal, value: str, text: str) -> str:
    """Whether the number written as ``text`` is ``value``, the same as a DECIMAL of ``tree``."""
    plain = string_literal(f"^[+-]?[0-9]*[.]?[0-9]{{0,{tree.scale}}}0*$")
    # a number with an exponent comes out of a VARIANT as the nearest DOUBLE
    near = f"{text} RLIKE '[eE]' AND try_cast({text} AS DOUBLE) = CAST({value} AS DOUBLE)"
    return f"({text} RLIKE {plain} OR {near})"


def text_holds(name: str, text: str, exact: Exact) -> str | None:
    """Whether ``text`` says no more than a DATE or TIMESTAMP keeps; None where its form is own."""
    if _FORMAT_OPTIONS[name] in exact.formats:
        return None
    return f"({text} RLIKE {string_literal(_TEXT_FORMS[name])})"


def from_text(tree: Type, text: str, exact: Exact) -> tuple[str, str] | None:
    """Return the value of a text that is not JSON, and whether it is what was written.

    None for types of which Spark's reader makes nothing else.
    """
    if isinstance(tree, Decimal):
        value = f"try_cast({text} AS {tree})"
        return value, f"{value} IS NOT NULL AND {decimal_holds(tree, value, text)}"
    name = tree.name if isinstance(tree, Atomic) else ""
    kept = text_holds(name, text, exact) if name in _TEXT_FORMS else None
    if kept is None:
        return None
    value = f"try_cast({text} AS {tree})"
    return value, f"{value} IS NOT NULL AND {kept}"


def _is_number(raw: str | None) -> str:
    return f"schema_of_variant({raw}) = 'BIGINT'"


def _beyond(raw: str | None, exact: Exact) -> str:
    """What is wrong with a number as a TIMESTAMP."""
    first, last = _range(exact)
    said = (
        "is a number of seconds outside of the years 1900 to 2200 (TIMESTAMP UNIT says what it"
        " counts)" if exact.unit is None
        else f"is a number of {exact.unit} outside of the years 1 to 9999"
    )
    number = f"try_cast({raw} AS BIGINT)"
    fits = f"{number} >= {first} AND {number} < {last}"
    return f"CASE WHEN NOT coalesce({fits}, false) THEN {string_literal(said)} END"


def _range(exact: Exact) -> tuple[int, int]:
    low, high = _PLAUSIBLE if exact.unit is None else _POSSIBLE
    per = _PER_SECOND[exact.unit or "seconds"]
    return low * per, high * per


def _misfit_of_value(tree: Type, value: str, depth: int = 0) -> str | None:
    x = f"x{depth}"
    if isinstance(tree, Array):
        inner = _misfit_of_value(tree.element, x, depth + 1)
        return None if inner is None else _first(f"transform({value}, {x} -> {inner})", f"e{depth}")
    if isinstance(tree, Map):
        keys = f"map_keys({value})"
        twice = (
            f"CASE WHEN size({keys}) <> size(array_distinct({keys}))"
            " THEN 'has a key twice' END"
        )
        inner = _misfit_of_value(tree.value, f"{x}.value", depth + 1)
        if inner is None:
            return twice
        each = _first(f"transform(map_entries({value}), {x} -> {inner})", f"e{depth}")
        return f"coalesce({twice}, {each})"
    if isinstance(tree, Struct):
        parts = [
            said for field in tree.fields
            if (said := _misfit_of_value(field.type, f"{value}.{quote_sql(field.name)}", depth))
        ]
        return f"coalesce({', '.join(parts)}, {_NO_TEXT})" if parts else None
    name = "STRING" if isinstance(tree, Sized) else tree.name if isinstance(tree, Atomic) else ""
    if name == "STRING" and depth:
        return f"CASE WHEN NOT is_valid_utf8({value}) THEN 'has a text that is not UTF-8' END"
    if name in _TEXT_FORMS:
        within = f"year({value}) BETWEEN 1 AND 9999"
        return f"CASE WHEN NOT {within} THEN 'lies outside of the years 1 to 9999' END"
    return None


# -- values ----------------------------------------------------------------------------------------


def as_written(columns: Sequence[Column], value: str, written: str, exact: Exact) -> str:
    """The row with what Spark's parser has made another value of, and a column can hold.

    Numbers in a TIMESTAMP are as the unit says, where it takes them as seconds; one that is out of
    range becomes NULL, and is a misfit. Numbers with a fraction in a STRING, alone or within an
    object, keep their digits, which it reads as the nearest DOUBLE.
    """
    parts = []
    for column in columns:
        name = quote_sql(column.name)
        made = _as_written(parse_type(column.type), f"{value}.{name}", f"{written}.{name}", exact)
        parts.append(f"{string_literal(column.name)}, {made}")
    return f"named_struct({', '.join(parts)})"


def _as_written(tree: Type, value: str, raw: str, exact: Exact, depth: int = 0) -> str:
    x, y = f"x{depth}", f"y{depth}"
    if not _is_rewritten(tree, exact):
        return value
    if isinstance(tree, Array):
        inner = _as_written(tree.element, x, y, exact, depth + 1)
        return f"zip_with({value}, {raw}, ({x}, {y}) -> {inner})"
    if isinstance(tree, Map):
        inner = _as_written(tree.value, y, f"try_element_at({raw}, {x})", exact, depth + 1)
        return f"transform_values({value}, ({x}, {y}) -> {inner})"
    if isinstance(tree, Struct):
        parts = []
        for field in tree.fields:
            name = quote_sql(field.name)
            made = _as_written(field.type, f"{value}.{name}", f"{raw}.{name}", exact, depth)
            parts.append(f"{string_literal(field.name)}, {made}")
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
    if str(tree) != "TIMESTAMP":
        return (
            f"CASE WHEN {value} RLIKE '[0-9][.eE]' AND {_is_no_text(raw)}"
            f" THEN CAST({raw} AS STRING) ELSE {value} END"
        )
    first, last = _range(exact)
    number = f"try_cast({raw} AS BIGINT)"
    made = f"{_MAKES[exact.unit or 'seconds']}({number})"
    return (
        f"CASE WHEN NOT coalesce({_is_number(raw)}, false) THEN {value}"
        f" WHEN {number} >= {first} AND {number} < {last} THEN {made} END"
    )


def _is_rewritten(tree: Type, exact: Exact) -> bool:
    if isinstance(tree, Array):
        return _is_rewritten(tree.element, exact)
    if isinstance(tree, Map):
        return _is_rewritten(tree.value, exact)
    if isinstance(tree, Struct):
        return any(_is_rewritten(field.type, exact) for field in tree.fields)
    if isinstance(tree, Sized) or str(tree) == "STRING":
        return True
    return str(tree) == "TIMESTAMP" and exact.unit not in (None, "seconds")


# -- words -----------------------------------------------------------------------------------------


def _not_exact(tree: Type) -> str:
    return string_literal(f"is no value that {tree} holds exactly")


def _unless(holds: str, value: str, tree: Type) -> str:
    return (
        f"CASE WHEN {value} IS NOT NULL AND NOT coalesce({holds}, false)"
        f" THEN {_not_exact(tree)} END"
    )


def _lacks(name: str, value: str, whole: str) -> str:
    said = string_literal(f"lacks {name}, which is NOT NULL")
    return f"CASE WHEN {whole} IS NOT NULL AND {value} IS NULL THEN {said} END"


def _first(texts: str, variable: str) -> str:
    return f"get(filter({texts}, {variable} -> {variable} IS NOT NULL), 0)"
