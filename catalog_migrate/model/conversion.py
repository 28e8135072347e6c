"""SQL that turns values of one type into those of another: a CAST, or a struct put together."""

from __future__ import annotations

from catalog_migrate.model.names import quote_part, quote_sql
from catalog_migrate.model.types import (
    NUMERIC,
    Array,
    Atomic,
    Decimal,
    Interval,
    Map,
    Sized,
    Struct,
    Type,
    continued_fields,
    is_lossless,
    is_text,
    parse_type,
)

MISSING_VALUE = "<value of {}>"
"""What a conversion has for a field that is NOT NULL and has no predecessor."""
NO_CONVERSION = "<expression over the old columns>"
"""What a conversion has where Spark has no CAST."""


def conversion(
    expression: str, source: str, target: str, *, or_null: bool = False, nullable: bool = True
) -> str:
    """SQL that makes a ``target`` of an expression of type ``source``.

    A CAST where Spark has one; it has none between structs with other fields, so these are put
    together field by field, by name, in arrays and maps too. What cannot be derived is a text in
    angle brackets (:func:`is_complete`). ``or_null``: NULL takes the place of a value that is none
    of ``target``, and of what has no CAST; a key of a map goes with its value, and a struct with
    its field that is NOT NULL. Where the whole is not ``nullable``, such a field is left open.
    """
    return _conversion(
        expression, parse_type(source), parse_type(target), or_null=or_null, nullable=nullable,
        depth=1,
    )


def _conversion(
    expression: str, source: Type, target: Type, *, or_null: bool, nullable: bool, depth: int
) -> str:
    if source == target:
        return expression

    def inner(name: str, of: Type, to: Type, *, nullable: bool = True) -> str:
        return _conversion(name, of, to, or_null=or_null, nullable=nullable, depth=depth + 1)

    if _has_cast(source, target) and not (or_null and _changes_keys(source, target)):
        return _cast(expression, target, or_null=or_null)
    if isinstance(source, Array) and isinstance(target, Array):
        name = f"e{depth}"
        return f"transform({expression}, {name} -> {inner(name, source.element, target.element)})"
    if isinstance(source, Map) and isinstance(target, Map):
        key, value = f"k{depth}", f"v{depth}"
        for what, name, of, to in (
            ("values", value, source.value, target.value), ("keys", key, source.key, target.key)
        ):
            if of == to:
                continue
            made = inner(name, of, to)
            if or_null and what == "keys":
                expression = f"map_filter({expression}, ({key}, {value}) -> {made} IS NOT NULL)"
            expression = f"transform_{what}({expression}, ({key}, {value}) -> {made})"
        return expression
    if isinstance(source, Struct) and isinstance(target, Struct):
        parts: list[str] = []
        nothing = [f"{expression} IS NULL"]
        for field, before in continued_fields(source, target):
            missing = MISSING_VALUE.format(quote_part(field.name))
            if before is None:
                value = f"CAST(NULL AS {field.type})" if field.nullable else missing
            else:
                value = inner(
                    f"{expression}.{quote_sql(before.name)}", before.type, field.type,
                    nullable=field.nullable,
                )
                if not field.nullable:
                    # Spark takes a field of a nullable struct for nullable, whatever it is
                    never = None if before.nullable else _literal(field.type)
                    if never and not is_lossless(str(before.type), str(field.type)):
                        nothing.append(f"{value} IS NULL")
                        never = never if nullable else None
                    value = f"coalesce({value}, {never or missing})"
            escaped = field.name.replace("\\", "\\\\").replace("'", "\\'")
            parts += [f"'{escaped}'", value]
        return f"IF({' OR '.join(nothing)}, NULL, named_struct({', '.join(parts)}))"
    return f"CAST(NULL AS {target})" if or_null else NO_CONVERSION


def is_complete(expression: str) -> bool:
    """Whether a :func:`conversion` has everything, so that it can be run as it is."""
    return NO_CONVERSION not in expression and MISSING_VALUE.partition("{")[0] not in expression


_LITERALS = {
    "TINYINT": "0Y", "SMALLINT": "0S", "INT": "0", "BIGINT": "0L", "FLOAT": "0F", "DOUBLE": "0D",
    "STRING": "''", "BINARY": "X''", "BOOLEAN": "false", "DATE": "DATE'1970-01-01'",
    "TIMESTAMP": "TIMESTAMP'1970-01-01 00:00:00'",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'1970-01-01 00:00:00'",
}  # fmt: skip


def _literal(tree: Type) -> str | None:
    """A value of a type that Spark knows not to be NULL, where there is a plain one.

    It satisfies Spark's analysis alone, and takes the place of no value.
    """
    if isinstance(tree, Atomic):
        return _LITERALS.get(tree.name)
    if isinstance(tree, Sized):
        return "''"
    return "0BD" if isinstance(tree, Decimal) else None


def _changes_keys(source: Type, target: Type) -> bool:
    """Whether keys of a map are converted, at any depth: Spark has no TRY_CAST that gives none."""
    if isinstance(source, Array) and isinstance(target, Array):
        return _changes_keys(source.element, target.element)
    if isinstance(source, Map) and isinstance(target, Map):
        return source.key != target.key or _changes_keys(source.value, target.value)
    if isinstance(source, Struct) and isinstance(target, Struct):
        return any(
            before is not None and _changes_keys(before.type, field.type)
            for field, before in continued_fields(source, target)
        )
    return False


def _cast(expression: str, target: Type, *, or_null: bool) -> str:
    """A CAST; with ``or_null`` one that gives NULL where it would fail.

    A TRY_CAST to a text of some length looks at no length: the write that follows would fail.
    """
    if not or_null:
        return f"CAST({expression} AS {target})"
    if not isinstance(target, Sized):
        return f"TRY_CAST({expression} AS {target})"
    text = f"CAST({expression} AS STRING)"
    return f"IF(char_length({text}) <= {target.length}, {text}, NULL)"


def _has_cast(source: Type, target: Type) -> bool:
    """Whether Spark casts at all under ANSI rules (its ``Cast.canAnsiCast``), fields of structs by
    their names, not by their places as Spark does."""
    if isinstance(source, Array) and isinstance(target, Array):
        return _has_cast(source.element, target.element)
    if isinstance(source, Map) and isinstance(target, Map):
        return _has_cast(source.key, target.key) and _has_cast(source.value, target.value)
    if isinstance(source, Struct) and isinstance(target, Struct):
        return [field.name.lower() for field in source.fields] == [
            field.name.lower() for field in target.fields
        ] and all(
            (to.nullable or not of.nullable) and _has_cast(of.type, to.type)
            for of, to in zip(source.fields, target.fields, strict=True)
        )
    if source == target or source == Atomic("VOID") or is_text(target):
        return True
    nested = (Array, Map, Struct)
    if isinstance(source, nested) or isinstance(target, nested):
        return Atomic("VARIANT") in (source, target)
    if Atomic("VARIANT") in (source, target):
        return not isinstance(source, Interval) and not isinstance(target, Interval)
    if is_text(source):
        return True
    if isinstance(source, Interval) and isinstance(target, Interval):
        return source.family == target.family
    of, to = _family(source), _family(target)
    return of == to or (of, to) in _CASTS


def _family(tree: Type) -> str:
    """What Spark's rules of casting tell types without parameters by."""
    if isinstance(tree, Interval):
        return "interval"
    if isinstance(tree, Decimal):
        return "exact number"
    assert isinstance(tree, Atomic)
    if tree.name in NUMERIC:
        return "number" if tree.name in ("FLOAT", "DOUBLE") else "exact number"
    return "time without zone" if tree.name in ("DATE", "TIMESTAMP_NTZ") else tree.name


_CASTS = frozenset(
    {
        ("number", "exact number"), ("exact number", "number"),
        ("number", "BOOLEAN"), ("exact number", "BOOLEAN"),
        ("BOOLEAN", "number"), ("BOOLEAN", "exact number"),
        ("number", "TIMESTAMP"), ("exact number", "TIMESTAMP"),
        ("TIMESTAMP", "number"), ("TIMESTAMP", "exact number"),
        ("time without zone", "TIMESTAMP"), ("TIMESTAMP", "time without zone"),
        ("exact number", "interval"), ("interval", "exact number"),
    }
)  # fmt: skip
"""Pairs of families, beside those of one family, between which Spark casts under ANSI rules."""
