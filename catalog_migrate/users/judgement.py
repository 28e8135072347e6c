"""What becomes of a user's view or function when what it reads changes.

A stored query is looked up as Spark does it when the view is read (``SessionCatalog``, its
``fromCatalogTable``): columns by the name that the query gave them, then by what the schema mode
makes of their types. Both the old and the new columns are, and what differs is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import QueryAnalysis, UserDefinition
from catalog_migrate.errors import UnknownType
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import (
    Array,
    Map,
    Struct,
    Type,
    is_cast,
    is_null_from_cast,
    is_number,
    is_up_cast,
    parse_type,
)
from catalog_migrate.planner.plan import UserColumn
from catalog_migrate.users.asking import is_dropped

INCOMPATIBLE = "INCOMPATIBLE_VIEW_SCHEMA_CHANGE"
NO_UP_CAST = "CANNOT_UP_CAST_DATATYPE"
NO_CAST = "DATATYPE_MISMATCH.CAST_{}_SUGGESTION"
_COLLATION = re.compile(r"\bstring collate \w+", re.IGNORECASE)
TWICE = "COLUMN_ALREADY_EXISTS"
TOO_FEW = "COLUMN_ORDINAL_OUT_OF_BOUNDS"


class Judgement(msgspec.Struct, frozen=True):
    """What becomes of a user's object: the fields of a :class:`UserObject`, and its ``output``, the
    columns that it has afterwards for what reads it (None: it cannot be read)."""

    outcome: Literal["unchanged", "changed", "breaks", "broken", "unknown"]
    columns: tuple[UserColumn, ...] = ()
    condition: str | None = None
    missing: str | None = None
    reason: str | None = None
    output: Sequence[Column] | None = None


class _Refused(Exception):
    """Spark refuses to read the object."""

    def __init__(self, condition: str, reason: str, missing: str | None = None) -> None:
        super().__init__(reason)
        self.condition, self.reason, self.missing = condition, reason, missing


class _Read(msgspec.Struct, frozen=True):
    """A column as the object's reader gets it, and the type that its query gives."""

    column: Column
    given: str


def judge(
    definition: UserDefinition, old: QueryAnalysis, new: QueryAnalysis,
    stored: QueryAnalysis | None = None,
) -> Judgement:
    """Return what becomes of an object whose text comes to ``old`` now and to ``new`` afterwards.

    ``stored`` is what Spark makes now of the object itself, where it was asked: what is stored
    beside the text may keep it from being read.
    """
    if definition.unread is not None:
        return Judgement("unknown", reason=definition.unread)
    for each in filter(_is_untried, (new, old)):
        return Judgement("unknown", reason=each.reason)
    before = _read(definition, old)
    after = _read(definition, new)
    refusal = None if stored is None or stored.columns is not None else stored
    if isinstance(after, _Refused):
        is_read = not (isinstance(before, _Refused) or (refusal and refusal.condition))
        return _refused("breaks" if is_read else "broken", after)
    output = tuple(each.column for each in after)
    if isinstance(before, _Refused):
        return Judgement(
            "changed", reason="it cannot be read now, and can be afterwards", output=output
        )
    if refusal is not None:
        return Judgement(
            "unknown", reason=f"its text binds, and it cannot be read: {refusal.reason}"
        )
    changes = tuple(_changes(before, after))
    return Judgement("changed" if changes else "unchanged", changes, output=output)


def judge_unmoved(definition: UserDefinition, stored: QueryAnalysis) -> Judgement:
    """Return what becomes of an object of which nothing that it reads has other columns."""
    if stored.columns is not None:
        return Judgement("unchanged")
    if _is_untried(stored) or is_dropped(definition, stored):
        return Judgement("unknown", reason=stored.reason)
    return _refused("broken", stored)


def _refused(outcome: Literal["breaks", "broken"], why: _Refused | QueryAnalysis) -> Judgement:
    return Judgement(outcome, condition=why.condition, missing=why.missing, reason=why.reason)


def _is_untried(analysis: QueryAnalysis) -> bool:
    return analysis.columns is None and analysis.condition is None


def _read(definition: UserDefinition, found: QueryAnalysis) -> Sequence[_Read] | _Refused:
    """The columns of an object whose text comes to ``found``, or why it cannot be read."""
    if found.columns is None:
        return _Refused(found.condition or "", found.reason or "", found.missing)
    try:
        if definition.kind == "function":
            return _read_function(definition, found.columns)
        return _read_view(definition, found.columns)
    except _Refused as refused:
        return refused


def _read_view(definition: UserDefinition, found: Sequence[Column]) -> Sequence[_Read]:
    if definition.schema_mode == "EVOLUTION":
        twice = [name for name, times in Counter(each.name.lower() for each in found).items()
                 if times > 1]
        if twice:
            raise _Refused(
                TWICE, f"its query gives more than one column {twice[0]}, and it takes them all"
            )
        return [_Read(column, column.type) for column in found]
    return [
        _Read(_in_mode(definition, stored, given), given.type)
        for stored, given in list(_by_name_and_ordinal(definition, found))
    ]


def _by_name_and_ordinal(
    definition: UserDefinition, found: Sequence[Column]
) -> Iterator[tuple[Column, Column]]:
    """Each stored column with the one of the query that it is.

    Spark takes the n-th of those that have its name, and wants as many of them as there were.
    """
    outputs = definition.outputs or tuple(column.name for column in definition.columns)
    wanted = Counter(map(str.lower, outputs))
    taken: Counter[str] = Counter()
    for output, stored in zip(outputs, definition.columns, strict=False):
        name = output.lower()
        candidates = [column for column in found if column.name.lower() == name]
        if len(candidates) != wanted[name]:
            given = ", ".join(column.name for column in found)
            raise _Refused(
                INCOMPATIBLE,
                f"its query gives {len(candidates)} columns {output} where it gave {wanted[name]}:"
                f" {given}",
                output,
            )
        yield stored, candidates[taken[name]]
        taken[name] += 1


def _in_mode(definition: UserDefinition, stored: Column, given: Column) -> Column:
    """A column of a view as its schema mode has it."""
    if definition.schema_mode == "TYPE EVOLUTION":
        return Column(stored.name, given.type, given.nullable)
    if definition.schema_mode != "BINDING":
        return _cast(stored, given)
    type_ = datatypes.without_lengths(stored.type)
    if not _holds(is_up_cast, given.type, type_):
        raise _Refused(
            NO_UP_CAST,
            f"column {stored.name} is {given.type}, and the view takes {type_}",
        )
    return _retype(stored, type_, given)


def _cast(stored: Column, given: Column) -> Column:
    """A column whose values are cast to the type that is stored."""
    type_ = datatypes.without_lengths(stored.type)
    if not _holds(is_cast, given.type, type_):
        what = f"column {stored.name}" if stored.name else "what it returns"
        raise _Refused(
            NO_CAST.format(_suggestion(given.type, type_)),
            f"{what} is {given.type}, which cannot be cast to {type_}",
        )
    return _retype(stored, type_, given)


def _retype(stored: Column, type_: str, given: Column) -> Column:
    null = given.nullable or _holds(is_null_from_cast, given.type, type_)
    return Column(stored.name, type_, null)


def _suggestion(source: str, target: str) -> str:
    """What Spark's error class for a cast that it does not take has in its middle."""
    try:
        source, target = _find_refused_pair(source, target)
    except UnknownType:
        return "WITHOUT"
    if (source == "DATE" and is_number(target)) or (is_number(source) and target == "DATE"):
        return "WITH_FUNC"
    return "WITH_CONF" if (source, target) in _CAST_WITHOUT_ANSI else "WITHOUT"


def _find_refused_pair(source: str, target: str) -> tuple[str, str]:
    """The types, within these, of which one is not cast to the other."""
    of, to = parse_type(source), parse_type(target)
    inner: list[tuple[Type, Type]] = []
    if isinstance(of, Array) and isinstance(to, Array):
        inner = [(of.element, to.element)]
    elif isinstance(of, Map) and isinstance(to, Map):
        inner = [(of.key, to.key), (of.value, to.value)]
    elif isinstance(of, Struct) and isinstance(to, Struct) and len(of.fields) == len(to.fields):
        inner = [(a.type, b.type) for a, b in zip(of.fields, to.fields, strict=True)]
    for pair in inner:
        if not is_cast(str(pair[0]), str(pair[1])):
            return _find_refused_pair(str(pair[0]), str(pair[1]))
    return source, target


_CAST_WITHOUT_ANSI = frozenset({
    ("BOOLEAN", "TIMESTAMP"), ("DATE", "BOOLEAN"), ("TIMESTAMP", "BOOLEAN"),
    *((source, "BINARY") for source in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
})
"""What a session without ANSI casts all the same."""


def _read_function(definition: UserDefinition, found: Sequence[Column]) -> Sequence[_Read]:
    """What a function returns, by position: of a query's columns more than it returns are left
    out. A call's value may always be NULL."""
    if len(found) < len(definition.columns):
        raise _Refused(
            TOO_FEW,
            f"its query gives {len(found)} columns, and it returns {len(definition.columns)}",
        )
    return [
        _Read(replace(_cast(stored, given), nullable=True), given.type)
        for stored, given in zip(definition.columns, found, strict=False)
    ]


def _holds(rule: Callable[[str, str], bool], source: str, target: str) -> bool:
    """A rule of casts; a type that no release may have is cast to nothing but itself, and a text
    of any collation is one."""
    source, target = (_COLLATION.sub("STRING", each) for each in (source, target))
    if source.lower() == target.lower():
        return rule is not is_null_from_cast
    try:
        return rule(source, target)
    except UnknownType:
        return False


def _changes(before: Sequence[_Read], after: Sequence[_Read]) -> Iterator[UserColumn]:
    """What the reader of an object sees of a change, column by column.

    A column that keeps its type is ``cast`` where its query gives another one than it did.
    """
    old = {each.column.name.lower(): (place, each) for place, each in enumerate(before, 1)}
    new = {each.column.name.lower(): (place, each) for place, each in enumerate(after, 1)}
    for name, (_, each) in old.items():
        if name not in new:
            yield UserColumn(each.column.name, "removed", old=each.column.type)
    moved = [name for name in new if name in old] != [name for name in old if name in new]
    for name, (place, now) in new.items():
        if name not in old:
            yield UserColumn(now.column.name, "added", new=now.column.type)
            continue
        place_before, then = old[name]
        yield from _column_changes(then, now)
        if moved and place != place_before:
            yield UserColumn(now.column.name, "moved", str(place_before), str(place))


def _column_changes(then: _Read, now: _Read) -> Iterator[UserColumn]:
    old, new = then.column, now.column
    if old.type != new.type:
        yield UserColumn(new.name, "retyped", old.type, new.type)
    elif then.given != now.given:
        yield UserColumn(new.name, "cast", new.type, now.given)
    if old.nullable != new.nullable:
        yield UserColumn(new.name, "nullability", _null(old), _null(new))


def _null(column: Column) -> str:
    return "NULL" if column.nullable else "NOT NULL"
