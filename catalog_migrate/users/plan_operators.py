"""An analysed plan, read operator by operator from its leaves up: what each column that it gives
comes down to, and what decides over its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from catalog_migrate.users.column_changes import Key, ShapeChange, ShapeChanges
from catalog_migrate.users.plan_columns import (
    OTHER_ROWS,
    Definition,
    Expressions,
    Query,
    Ref,
    Rows,
    Scope,
    as_compared,
    combine,
    make,
    of_use,
    passing_definition,
    without_seeds,
)
from catalog_migrate.users.plan_text import (
    Node,
    UnreadablePlan,
    attributes_of,
    lists_of,
    read_plan,
    split_columns,
    split_items,
)

_PASSES = frozenset({
    "SubqueryAlias", "View", "ResolvedHint", "Repartition", "RepartitionByExpression",
    "RebalancePartitions", "CollectMetrics", "WithWindowDefinition", "PipeOperator",
})  # fmt: skip
"""Operators that change neither columns nor rows."""
_NAMING = frozenset({"SubqueryAlias", "View", "Project"})
"""Operators over a relation that may have its name."""
_ONLY_LEFT = ("LeftSemi", "LeftAnti")
"""Joins that give the columns of their first input alone."""


def read_query(plan: str, changes: ShapeChanges | None = None) -> Query:
    """Read an analysed plan; ``changes`` say what the columns of its relations were called before.

    UnreadablePlan where it cannot be read for sure.
    """
    return _Reading(changes or {}).scope(read_plan(plan), (), {}).as_query()


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator with what its inputs give."""

    node: Node
    inputs: Sequence[Scope]
    expressions: Expressions
    reading: _Reading

    @property
    def text(self) -> str:
        return self.node.text

    @property
    def rows(self) -> tuple[Rows, ...]:
        return tuple(each.rows for each in self.inputs)

    def with_rows(self, rows: Rows) -> Scope:
        """Return the columns of the one input, other rows."""
        (given,) = self.inputs
        return Scope(given.outputs, given.definitions, rows)

    def define_each(self, items: Sequence[str]) -> tuple[Definition, ...]:
        return tuple(as_compared(self.expressions.define(each)) for each in items)


class _Reading:
    """Reads one plan."""

    def __init__(self, changes: ShapeChanges) -> None:
        self._changes = changes
        self._leaves = 0
        self._uses = 0
        self._shared: dict[str, tuple[int, Scope]] = {}  # common table expressions by their id

    def scope(
        self, node: Node, above: tuple[Node, ...], outer: Mapping[int, tuple[str, Definition]]
    ) -> Scope:
        """Return what an operator gives; ``outer`` are columns of the queries around its own."""
        if node.name == "CTERelationRef" and (scope := self._use(node)) is not None:
            return scope
        if not node.children and node.name != "OneRowRelation":
            return self._leaf(node, above)
        above = (*above, node) if node.name in _NAMING else ()
        inputs = [self.scope(child, above, outer) for child in node.children]
        if node.name in _PASSES and len(inputs) == 1:
            return inputs[0]
        known = {
            **outer, **dict(chain.from_iterable(each.definitions.items() for each in inputs))
        }
        plans = [self.scope(plan, (), known).as_query() for plan in node.subqueries]
        operator = _Operator(node, inputs, Expressions(known, plans), self)
        return _READERS.get(node.name, _unknown)(operator)

    def share(self, number: str, scope: Scope) -> None:
        """Keep what a common table expression gives."""
        self._shared[number] = len(self._shared), scope

    def _leaf(self, node: Node, above: Sequence[Node]) -> Scope:
        number, self._leaves = self._leaves, self._leaves + 1
        relation, label = _relation_of(node, above)
        change = self._changes.get(relation)
        identity = relation if change is None else change.continues
        outputs = list(attributes_of(node.text))
        definitions = {
            each: (name, _column(number, identity, label, name, change)) for name, each in outputs
        }
        text = ".".join(filter(None, identity)) or node.name
        if not outputs:  # a Range prints no columns
            text = f"{node.name} {without_seeds(node.text)}"
        if change is not None and change.rows:
            text += OTHER_ROWS
        return Scope(outputs, definitions, Rows("read", (Definition(f"{number} {text}"),)))

    def _use(self, node: Node) -> Scope | None:
        """One use of a common table expression; None inside of it, where it is recursive."""
        place, shared = self._shared.get(node.text.partition(",")[0], (0, None))
        outputs = list(attributes_of(node.text))
        if shared is None or len(shared.outputs) != len(outputs):
            return None
        use, self._uses = self._uses, self._uses + 1
        definitions = {
            each: (name, of_use(column, use))
            for (name, each), column in zip(outputs, shared.columns, strict=True)
        }
        return Scope(outputs, definitions, Rows(f"use {use} of {place}"))


def _with(operator: _Operator) -> Scope:
    main = operator.inputs[-1]
    return Scope(main.outputs, main.definitions, Rows("with", (), operator.rows))


def _common_scope(operator: _Operator) -> Scope:
    (given,) = operator.inputs
    operator.reading.share(operator.text.partition(",")[0], given)
    return given


def _one_row(_: _Operator) -> Scope:
    return Scope([], {}, Rows("one row"))


def _project(operator: _Operator) -> Scope:
    outputs, definitions = _columns(operator.text[1:-1], operator.expressions)
    return Scope(outputs, definitions, operator.inputs[0].rows)


def _filter(operator: _Operator) -> Scope:
    parts = operator.define_each(_split_conditions(operator.text))
    return operator.with_rows(Rows("filter", parts, operator.rows, unordered=True))


def _join(operator: _Operator) -> Scope:
    manner, _, condition = operator.text.partition(", ")
    left, right = operator.inputs
    parts = operator.define_each(_split_conditions(condition))
    return Scope(
        left.outputs if manner in _ONLY_LEFT else left.outputs + right.outputs,
        {**left.definitions, **right.definitions},
        Rows(f"join {manner}", parts, operator.rows, unordered=True),
    )


def _lateral_join(operator: _Operator) -> Scope:
    (left,), plans = operator.inputs, operator.node.subqueries
    if len(plans) != 1:
        return _unknown(operator)
    # it is read once more, for the ids of its columns
    right = operator.reading.scope(plans[0], (), operator.expressions.known)
    known = {**operator.expressions.known, **right.definitions}
    condition = Expressions(known, operator.expressions.plans).define(operator.text)
    return Scope(
        left.outputs + right.outputs,
        {**left.definitions, **right.definitions},
        Rows("lateral join", (condition,), (left.rows, right.rows)),
    )


def _aggregate(operator: _Operator) -> Scope:
    *groups, items = lists_of(operator.text)
    parts = operator.define_each(split_items(groups[0]) if groups else ())
    outputs, definitions = _columns(items, operator.expressions)
    return Scope(outputs, definitions, Rows("group", parts, operator.rows, unordered=True))


def _window(operator: _Operator) -> Scope:
    (given,) = operator.inputs
    outputs, definitions = _columns(lists_of(operator.text)[0], operator.expressions)
    return Scope(given.outputs + outputs, {**given.definitions, **definitions}, given.rows)


def _generate(operator: _Operator) -> Scope:
    (given,), at = operator.inputs, operator.text.rfind("[")
    generator = operator.expressions.define(operator.text[:at])
    outputs = list(attributes_of(operator.text[at:]))
    definitions = {
        number: (name, make(f"{generator.text} ({place})", generator.refs, generator.plans))
        for place, (name, number) in enumerate(outputs)
    }
    return Scope(
        given.outputs + outputs, {**given.definitions, **definitions},
        Rows("generate", (generator,), operator.rows),
    )


def _distinct(operator: _Operator) -> Scope:
    columns = tuple(map(as_compared, operator.inputs[0].columns))
    return operator.with_rows(Rows("distinct", columns, operator.rows, unordered=True))


def _union(operator: _Operator) -> Scope:
    outputs = operator.inputs[0].outputs
    if any(len(each.outputs) != len(outputs) for each in operator.inputs):
        raise UnreadablePlan("a UNION of queries of different length")
    definitions = {
        number: (name, combine("union", [each.columns[at] for each in operator.inputs]))
        for at, (name, number) in enumerate(outputs)
    }
    return Scope(outputs, definitions, Rows("union", (), operator.rows))


def _set(operator: _Operator) -> Scope:
    """EXCEPT and INTERSECT: of the first input, what compares with the second."""
    left, right = operator.inputs
    if len(left.outputs) != len(right.outputs):
        raise UnreadablePlan("a set operator over queries of different length")
    kind = operator.node.name.lower()
    pairs = tuple(
        combine(kind, list(map(as_compared, pair)))
        for pair in zip(left.columns, right.columns, strict=True)
    )
    rows = Rows(f"{kind} {operator.text}", pairs, operator.rows, unordered=True)
    return Scope(left.outputs, left.definitions, rows)


def _expand(operator: _Operator) -> Scope:
    """ROLLUP, CUBE, UNPIVOT: each row once for each list."""
    lists = lists_of(operator.text)
    outputs = list(attributes_of(f"[{lists[-1]}]"))
    branches = [split_items(each) for each in lists_of(lists[0])]
    if any(len(branch) != len(outputs) for branch in branches):
        raise UnreadablePlan("an Expand of another form")
    definitions = {
        number: (
            name,
            combine("expand", [operator.expressions.define(each[at]) for each in branches]),
        )
        for at, (name, number) in enumerate(outputs)
    }
    return Scope(outputs, definitions, Rows(f"expand {len(branches)}", (), operator.rows))


def _sort(operator: _Operator) -> Scope:
    parts = operator.define_each(split_items(lists_of(operator.text)[0]))
    return operator.with_rows(Rows("sort", parts, operator.rows))


def _sample(operator: _Operator) -> Scope:
    without_seed = operator.text.rpartition(",")[0]
    return operator.with_rows(Rows(f"sample {without_seed}", (), operator.rows))


def _limit(operator: _Operator) -> Scope:
    part = operator.expressions.define(operator.text)
    return operator.with_rows(Rows("limit", (part,), operator.rows))


def _unknown(operator: _Operator) -> Scope:
    """An operator that is not known looks at all that it gets and prints."""
    name = operator.node.name
    part = operator.expressions.define(operator.text)
    outputs = [each for scope in operator.inputs for each in scope.outputs]
    definitions = dict(chain.from_iterable(s.definitions.items() for s in operator.inputs))
    for column, number in attributes_of(f"[{operator.text}"):
        if number not in definitions:
            made = make(f"{name} {len(definitions)} {part.text}", part.refs, part.plans)
            definitions[number] = (column, made)
            outputs.append((column, number))
    columns = tuple(as_compared(each) for scope in operator.inputs for each in scope.columns)
    return Scope(outputs, definitions, Rows(name, (part, *columns), operator.rows))


_READERS: Mapping[str, Callable[[_Operator], Scope]] = {
    "WithCTE": _with, "CTERelationDef": _common_scope, "OneRowRelation": _one_row,
    "Project": _project, "Filter": _filter, "Join": _join, "LateralJoin": _lateral_join,
    "Aggregate": _aggregate, "Window": _window, "Generate": _generate, "Distinct": _distinct,
    "Union": _union, "UnionLoop": _union, "Except": _set, "Intersect": _set, "Expand": _expand,
    "Sort": _sort, "Sample": _sample, "GlobalLimit": _limit, "LocalLimit": _limit,
    "Offset": _limit, "Tail": _limit,
}


def _relation_of(leaf: Node, above: Sequence[Node]) -> tuple[Key, str]:
    """The relation that a leaf is: by the nearest name with a schema, else the nearest name."""
    names: list[tuple[str, ...]] = []
    own = re.match(r"([\w$]+(?:\.[\w$]+)+)\[", leaf.text) or re.match(
        r"\[[^\]]*\] ([\w$]+(?:\.[\w$]+)+)", leaf.text
    ) or re.match(r"\[`?([\w$]+`?(?:\.`?[\w$]+`?)+)", leaf.text)
    if own is not None:
        names.append(_parts(own[1]))
    for node in reversed(above):
        if node.name == "View":
            names.append(_parts(node.text.lstrip("(").partition(", [")[0]))
        elif node.name == "SubqueryAlias":
            names.append(_parts(node.text))
    found = next((name for name in names if len(name) > 1), names[0] if names else ("",))
    schema, name = found[-2] if len(found) > 1 else "", found[-1]
    return (schema.lower(), name.lower()), ".".join(found[-2:])


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.strip().replace("`", "").split("."))


def _column(
    leaf: int, identity: Key, label: str, name: str, change: ShapeChange | None
) -> Definition:
    """A column of a leaf, by the name that it had before."""
    folded = name.lower()
    known, retyped, other = folded, None, False
    if change is not None:
        known = f"+{folded}" if folded in change.added else change.renamed.get(folded, folded)
        retyped = change.retyped.get(folded)
        other = folded in change.meaning
    table = ".".join(identity)
    return passing_definition(Ref(leaf, label, name, f"{table}.{known}", retyped, other))


def _columns(
    text: str, expressions: Expressions
) -> tuple[list[tuple[str, int]], dict[int, tuple[str, Definition]]]:
    """The columns of a list, and what they are."""
    outputs: list[tuple[str, int]] = []
    definitions: dict[int, tuple[str, Definition]] = {}
    for expression, name, number in split_columns(text, expressions.known):
        outputs.append((name, number))
        if expression is None:
            definitions[number] = (name, expressions.known[number][1])
        else:
            definitions[number] = (name, expressions.define(expression))
    return outputs, definitions


def _split_conditions(text: str) -> list[str]:
    """The conditions that AND combines."""
    text = text.strip()
    inner = _unwrap(text)
    if inner is None:
        return [text] if text else []
    depth = start = 0
    found: list[str] = []
    for at, sign in enumerate(inner):
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth = max(depth - 1, 0)
        elif depth == 0 and inner.startswith(" AND ", at):
            found.append(inner[start:at])
            start = at + 5
    if not found:
        return [text]
    found.append(inner[start:])
    return list(chain.from_iterable(map(_split_conditions, found)))


def _unwrap(text: str) -> str | None:
    """What is in the one pair of brackets that a text is, else None."""
    if not text.startswith("(") or not text.endswith(")"):
        return None
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 else None
    return None
