"""Whether a query that binds before and after a change of what it reads means the same.

Both analysed plans are followed from the leaves up. What an attribute *is* comes down to columns
of the relations that are read, by the names that they had before; what decides over rows (joins,
filters, groups, sets, sorts) is compared operator by operator. A Project only passes on, so that a
column which ``*`` takes along and no operator looks at makes no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from catalog_migrate.users.column_changes import ShapeChanges
from catalog_migrate.users.plan_columns import OTHER_ROWS, Definition, Query, Ref, Rows
from catalog_migrate.users.plan_operators import read_query
from catalog_migrate.users.plan_text import UnreadablePlan

_CLAUSES = {
    "filter": "a condition", "group": "GROUP BY", "distinct": "DISTINCT", "sort": "ORDER BY",
    "except": "EXCEPT", "intersect": "INTERSECT", "generate": "the generator", "limit": "LIMIT",
    "join": "the join", "lateral": "the LATERAL join",
}
_COMPARING = frozenset({"distinct", "except", "intersect"})


class ChangedColumn(msgspec.Struct, frozen=True):
    """An output column that means something else; ``position`` counts from 0, of the old ones."""

    name: str
    position: int
    reason: str


class Comparison(msgspec.Struct, frozen=True):
    """What a query means otherwise: its ``columns``, and why it gives other ``rows``.

    True where anything does. A plan that cannot be compared is a reason in ``rows``. ``by_type``:
    every name means what it did, and all that differs comes from columns of another type.
    """

    columns: tuple[ChangedColumn, ...] = ()
    rows: tuple[str, ...] = ()
    by_type: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns or self.rows)


class _Reason(NamedTuple):
    text: str
    by_type: bool = False


def compare_plans(
    old: str, new: str, changes: ShapeChanges, outputs: Sequence[str] | None = None
) -> Comparison:
    """Compare the analysed plans of one text on the shapes before and after ``changes``.

    ``outputs`` are the names that are taken of the query, as a view stores them; None takes those
    of the old plan by position, as a table function does. What is in doubt counts as a change.
    """
    try:
        before, after = read_query(old), read_query(new, changes)
        return _compare_queries(before, after, outputs)
    except (UnreadablePlan, RecursionError) as error:
        return Comparison(rows=(f"its plans cannot be compared ({error}): look at it",))


def output_names(plan: str) -> tuple[str, ...]:
    """Return the names of the columns that an analysed plan gives, in order; UnreadablePlan."""
    return read_query(plan).names


def _compare_queries(old: Query, new: Query, outputs: Sequence[str] | None) -> Comparison:
    rows = _unique(_rows_reasons(old.rows, new.rows))
    changed: list[ChangedColumn] = []
    found = list(rows)
    for at, (name, before, after) in enumerate(_pairs(old, new, outputs)):
        if before is None and after is None:
            continue
        reasons = [_Reason("the query gives no such column")]
        if before is not None and after is not None:
            reasons = _reasons(before, after)
        if reasons:
            found += reasons
            changed.append(ChangedColumn(name, at, "; ".join(each.text for each in reasons)))
    return Comparison(
        tuple(changed), tuple(reason.text for reason in rows),
        by_type=bool(found) and all(reason.by_type for reason in found),
    )


_Pair = tuple[str, "Definition | None", "Definition | None"]


def _pairs(old: Query, new: Query, outputs: Sequence[str] | None) -> Iterator[_Pair]:
    """Each output with what it is before and after; None where a query does not give it."""
    if outputs is None:
        for at, name in enumerate(old.names):
            before, after = (next(iter(each.columns[at:]), None) for each in (old, new))
            yield name, before, after
        return
    seen: Counter[str] = Counter()
    for name in outputs:
        folded = name.lower()
        before, after = (_nth(each, folded, seen[folded]) for each in (old, new))
        seen[folded] += 1
        yield name, before, after


def _nth(query: Query, wanted: str, nth: int) -> Definition | None:
    found = (
        column for name, column in zip(query.names, query.columns, strict=False)
        if name.lower() == wanted
    )
    return next(islice(found, nth, None), None)


def _unique(reasons: Iterable[_Reason]) -> list[_Reason]:
    return list(dict.fromkeys(reasons))


def _reasons(old: Definition, new: Definition, clause: str = "") -> list[_Reason]:
    """Why two definitions of one column, or of what a clause looks at, differ; empty where they
    do not."""
    if old.text == new.text:
        return []
    found = _unique(_plan_reasons(old.plans, new.plans))
    if found:
        return found
    found = _unique(_column_reasons(old, new)) or [_Reason("it is computed otherwise")]
    if not clause:
        return found
    return [reason._replace(text=f"{clause}: {reason.text}") for reason in found]


def _plan_reasons(old: Sequence[Query], new: Sequence[Query]) -> Iterator[_Reason]:
    for before, after in zip(old, new, strict=False):
        yield from _rows_reasons(before.rows, after.rows)
        for one, other in zip(before.columns, after.columns, strict=False):
            yield from _reasons(one, other)


def _column_reasons(old: Definition, new: Definition) -> Iterator[_Reason]:
    if len(old.refs) == len(new.refs):
        for before, after in zip(old.refs, new.refs, strict=True):
            if (before.leaf, before.identity) != (after.leaf, after.identity):
                yield _Reason(_another(before, after))
            elif after.other:
                yield _Reason(f"{after.full_name} means something else")
        if old.text != new.text:
            for ref in new.refs:
                if ref.type is not None:
                    text = f"{ref.full_name} is {ref.type.new} now, it was {ref.type.old}"
                    yield _Reason(text, by_type=True)
        return
    gained, lost = _difference(old.refs, new.refs)
    if gained:
        yield _Reason(f"it takes {_join_names(gained)} too")
    if lost:
        yield _Reason(f"it no longer takes {_join_names(lost)}")


def _another(before: Ref, after: Ref) -> str:
    if before.full_name.lower() == after.full_name.lower() and before.leaf == after.leaf:
        was = after.identity.rpartition(".")[2]
        if was.startswith("+"):
            return f"{after.full_name} is a new column under the name of an earlier one"
        return f"{after.full_name} is what was called {was} before"
    if before.name.lower() == after.name.lower():
        return f"{after.name} now means {after.full_name}, it meant {before.full_name}"
    return f"{after.full_name} is in the place of {before.full_name}"


def _difference(
    old: Sequence[Ref], new: Sequence[Ref]
) -> tuple[list[Ref], list[Ref]]:
    before = Counter((ref.leaf, ref.identity) for ref in old)
    after = Counter((ref.leaf, ref.identity) for ref in new)
    gained = [ref for ref in new if after[ref.leaf, ref.identity] > before[ref.leaf, ref.identity]]
    lost = [ref for ref in old if before[ref.leaf, ref.identity] > after[ref.leaf, ref.identity]]
    return gained, lost


def _refs_of(parts: Iterable[Definition]) -> list[Ref]:
    return [ref for part in parts for ref in part.refs]


def _join_names(refs: Iterable[Ref]) -> str:
    return ", ".join(dict.fromkeys(ref.name for ref in refs))


def _rows_reasons(old: Rows, new: Rows) -> Iterator[_Reason]:
    """Why the rows differ, innermost first."""
    if old.operator != new.operator or len(old.inputs) != len(new.inputs):
        yield _Reason("its plan has another form")
        return
    for before, after in zip(old.inputs, new.inputs, strict=True):
        yield from _rows_reasons(before, after)
    kind = old.operator.partition(" ")[0]
    if kind == "read":
        if old.parts[0].text != new.parts[0].text:
            was, now = (each.parts[0].text.partition(" ")[2] for each in (old, new))
            if now == was + OTHER_ROWS:
                yield _Reason(f"{was} has other rows")
            else:
                yield _Reason(f"it reads {now.removesuffix(OTHER_ROWS)}, it read {was}")
        return
    clause = _CLAUSES.get(kind, kind)
    if old.unordered:
        yield from _set_reasons(clause, kind, old.parts, new.parts)
        return
    if len(old.parts) != len(new.parts):
        gained, _ = _difference(_refs_of(old.parts), _refs_of(new.parts))
        more = f"{_join_names(gained)} too" if gained else "fewer columns"
        yield _Reason(f"{clause} looks at {more}")
        return
    for one, other in zip(old.parts, new.parts, strict=True):
        yield from _reasons(one, other, clause)


def _set_reasons(
    clause: str, kind: str, old: Sequence[Definition], new: Sequence[Definition]
) -> Iterator[_Reason]:
    had, has = Counter(part.text for part in old), Counter(part.text for part in new)
    lost = [part for part in old if had[part.text] > has[part.text]]
    gained = [part for part in new if has[part.text] > had[part.text]]
    if len(lost) == len(gained):
        for before, after in zip(lost, gained, strict=True):
            yield from _reasons(before, after, clause)
        return
    if kind == "join":
        clause = "the NATURAL JOIN"  # no other join gains or loses a condition
    verb = "joins on" if kind == "join" else "compares" if kind in _COMPARING else "looks at"
    if gained:
        yield _Reason(f"{clause} now {verb} {_join_names(_refs_of(gained))} too")
    if lost:
        yield _Reason(f"{clause} no longer {verb} {_join_names(_refs_of(lost))}")
