"""SQL that turns values of one type into those of another: a CAST, or a struct put together."""

from __future__ import annotations

from typing import NamedTuple

from catalog_migrate.model.names import quote_part, quote_sql
from catalog_migrate.model.types import (
    Array,
    Atomic,
    Decimal,
    Map,
    Sized,
    Struct,
    Type,
    by_place_and_name,
    can_cast,
    is_lossless,
    match_fields,
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
    made = _Conversion(or_null=or_null, depth=1)
    return made.of(expression, parse_type(source), parse_type(target), nullable=nullable)


class _Conversion(NamedTuple):
    """How values are converted at one depth of their types."""

    or_null: bool
    depth: int

    def of(self, expression: str, source: Type, target: Type, *, nullable: bool = True) -> str:
        if source == target:
            return expression
        if can_cast(source, target, by_place_and_name) and not (
            self.or_null and _changes_keys(source, target)
        ):
            return _cast(expression, target, or_null=self.or_null)
        inner = self._replace(depth=self.depth + 1)
        if isinstance(source, Array) and isinstance(target, Array):
            name = f"e{self.depth}"
            made = inner.of(name, source.element, target.element)
            return f"transform({expression}, {name} -> {made})"
        if isinstance(source, Map) and isinstance(target, Map):
            return self._of_map(expression, source, target, inner)
        if isinstance(source, Struct) and isinstance(target, Struct):
            return inner.of_struct(expression, source, target, nullable=nullable)
        return f"CAST(NULL AS {target})" if self.or_null else NO_CONVERSION

    def _of_map(self, expression: str, source: Map, target: Map, inner: _Conversion) -> str:
        key, value = f"k{self.depth}", f"v{self.depth}"
        if source.value != target.value:
            made = inner.of(value, source.value, target.value)
            expression = f"transform_values({expression}, ({key}, {value}) -> {made})"
        if source.key != target.key:
            made = inner.of(key, source.key, target.key)
            if self.or_null:
                expression = f"map_filter({expression}, ({key}, {value}) -> {made} IS NOT NULL)"
            expression = f"transform_keys({expression}, ({key}, {value}) -> {made})"
        return expression

    def of_struct(
        self, expression: str, source: Struct, target: Struct, *, nullable: bool
    ) -> str:
        """Return a struct put together field by field, each at this depth."""
        parts: list[str] = []
        nothing = [f"{expression} IS NULL"]
        for field, before in match_fields(source, target):
            missing = MISSING_VALUE.format(quote_part(field.name))
            if before is None:
                value = f"CAST(NULL AS {field.type})" if field.nullable else missing
            else:
                value = self.of(
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


def is_complete(expression: str) -> bool:
    """Return whether a :func:`conversion` has everything, so that it can be run as it is."""
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
            for field, before in match_fields(source, target)
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
