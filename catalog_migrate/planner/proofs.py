"""What of a release only Spark can prove: queries, bodies of functions, expressions of tables.

A plan made without Spark lists it (:func:`unproven`); ``--bind`` and every start prove it before
the commit. A new kind of it is one more function in :data:`_SOURCES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from catalog_migrate.model.conversion import conversion
from catalog_migrate.model.names import quote_part, quote_sql
from catalog_migrate.model.objects import Check, Column
from catalog_migrate.model.types import is_lossless
from catalog_migrate.planner.plan import Target, Unproven

_A_NAME = re.compile(r"`(?:[^`]|``)+`")

Role = Literal["check", "default", "generated", "using"]


class TableExpression(msgspec.Struct, frozen=True):
    """One expression of a table: ``part`` is the name of the CHECK or of the column.

    ``written`` is what the release says, ``sql`` what is executed. It reads ``columns`` and gives
    ``type``.
    """

    role: Role
    part: str
    written: str
    sql: str
    type: str
    columns: tuple[Column, ...] = ()

    @property
    def label(self) -> str:
        """``CHECK positive``, ``DEFAULT of qty``: what it is, in the words of the release."""
        if self.role == "check":
            return f"CHECK {quote_part(self.part)}"
        word = {"default": "DEFAULT", "generated": "GENERATED", "using": "USING"}[self.role]
        return f"{word} of {quote_part(self.part)}"


def expressions(target: Target) -> Iterator[TableExpression]:
    """Yield the expressions of a table that changes, as they come into force or are executed."""
    definition = target.definition
    if target.action is None or definition.kind != "table":
        return
    bare = tuple(Column(c.name, c.type, c.nullable) for c in definition.columns)
    for check in definition.checks:
        yield TableExpression(
            "check", check.name, check.expression, check.expression, "BOOLEAN", bare
        )
    plain = tuple(
        column for column, other in zip(bare, definition.columns, strict=True)
        if other.generated is None
    )
    fills = dict(target.projection) if target.reads else {}
    for column in definition.columns:
        yield from _of_column(target, column, plain, fills.get(column.name, ""))


def _of_column(
    target: Target, column: Column, plain: tuple[Column, ...], fill: str
) -> Iterator[TableExpression]:
    """The expressions of a column: over ``plain`` ones, none and, to fill it, those of OLD."""
    name, type_ = column.name, column.type
    if column.generated is not None:
        yield TableExpression("generated", name, column.generated, column.generated, type_, plain)
    if column.default is not None and name in target.decided:
        yield TableExpression("default", name, column.default, column.default, type_)
    if column.using is not None and column.using in fill and fill != quote_sql(name):
        yield TableExpression("using", name, column.using, fill, type_, target.reads)


class RowsAtRisk(msgspec.Struct, frozen=True):
    """What of a table's copy may fail on a row: names of columns, and CHECKs."""

    columns: tuple[str, ...]
    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return bool(self.columns or self.checks)


def rows_at_risk(target: Target, before: Collection[Check]) -> RowsAtRisk:
    """Return what may fail on a row when a table that has ``before`` as CHECKs is copied.

    Nothing where every column is copied as it is, or converted without any loss.
    """
    definition = target.definition
    if target.action is None or target.contents != "copy" or not target.reads:
        return RowsAtRisk((), ())
    given = dict(target.projection)
    kept = _find_kept_columns(target, given)
    changed = any(kept[name] is None for name in given)
    standing = {check.folded for check in before}
    return RowsAtRisk(
        tuple(
            column.name for column in definition.columns
            if _may_fail(column, given.get(column.name), kept.get(column.name))
        ),
        tuple(check for check in definition.checks if changed or check.folded not in standing),
    )


def _find_kept_columns(target: Target, given: Mapping[str, str]) -> dict[str, Column | None]:
    """By each column of a copy: the one of OLD that has all of its values, if any.

    A generated one keeps them where every other does.
    """
    columns = target.definition.columns
    kept = {
        column.name: _find_kept(given[column.name], column, target.reads)
        for column in columns if column.name in given
    }
    if None not in kept.values():
        kept.update(
            (column.name, _find_kept_generated(column, target.reads))
            for column in columns if column.name not in given
        )
    return kept


def _may_fail(column: Column, expression: str | None, source: Column | None) -> bool:
    """Whether a row may have no value for a column; ``source`` is where all of its values are."""
    if column.nullable:
        return source is None and expression != f"CAST(NULL AS {column.type})"
    return source is None or source.nullable


def _find_kept_generated(column: Column, reads: Iterable[Column]) -> Column | None:
    return next((
        old for old in reads
        if (old.name, old.type, old.generated) == (column.name, column.type, column.generated)
    ), None)


def _find_kept(expression: str, column: Column, reads: Iterable[Column]) -> Column | None:
    """The column of OLD whose every value an expression keeps; None where it is none such."""
    for old in reads:
        name = quote_sql(old.name)
        if expression == name and old.type == column.type:
            return old
        if name in expression and is_lossless(old.type, column.type) and (
            expression == conversion(name, old.type, column.type)
        ):
            return old
    return None


def rows_unseen(target: Target) -> bool:
    """Whether rows come that nothing looks at before they are stored, and one may not fit."""
    return target.action is not None and (target.fill is not None or any(
        not _A_NAME.fullmatch(expression) and expression != f"CAST(NULL AS {types.get(name)})"
        for types in [{column.name: column.type for column in target.definition.columns}]
        for segment in target.segments for name, expression in segment.projection or ()
    ))


def unproven(targets: Iterable[Target]) -> tuple[Unproven, ...]:
    """Return what only Spark can prove of the objects that change, in their order."""
    return tuple(
        Unproven(str(target.definition.key), target.definition.kind, what)
        for target in targets if target.action is not None
        for source in _SOURCES for what in source(target)
    )


def _query(target: Target) -> Iterable[str]:
    definition = target.definition
    return ("its query",) if definition.kind == "view" and definition.sql is not None else ()


def _body(target: Target) -> Iterable[str]:
    definition = target.definition
    return ("its body",) if definition.kind == "function" and definition.body is not None else ()


def _fill(target: Target) -> Iterable[str]:
    return ("FILLED FROM",) if target.fill is not None else ()


def _of_tables(target: Target) -> Iterable[str]:
    return (f"{each.label} ({each.written})" for each in expressions(target))


_SOURCES: tuple[Callable[[Target], Iterable[str]], ...] = (
    _query, _body, _fill, _of_tables,
)
"""Each says, in words, what of an object that changes only Spark can prove."""
