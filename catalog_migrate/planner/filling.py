"""A new table that is filled from tables in force: what its query reads there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.model.names import Identity, ItemName, quote_part, split_name
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.planner.contents import Movement
from catalog_migrate.planner.diff import Compared
from catalog_migrate.planner.plan import Blocked, Fill
from catalog_migrate.planner.policy_evaluation import Approvals, Risk
from catalog_migrate.sql.references import Occurrence, occurrences, splice, whole_relation
from catalog_migrate.sql.tokens import tokenise

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.planner.baseline import BaselineObject

FILL_SOURCE_MISSING = "CM0334"

_READ = ("table", "view", "function")


def plan_filling(
    compared: Compared,
    old: Mapping[Identity, BaselineObject],
    new: Mapping[Identity, Compared],
    graph: DependencyGraph,
    approvals: Approvals,
) -> Movement:
    """How a new table gets its first rows by its ``FILLED FROM``.

    ``old`` are the objects in force and ``graph`` theirs, ``new`` those of the release: where
    nothing has a name in force, the object of the release that has it, or had it, leads to the one
    in force that it continues. Without any object in force the table starts empty, and so it does
    by an approval where what the query reads is missing.
    """
    query = compared.definition.filled_from
    if query is None or not old:
        return Movement()
    continued = _names_in_force(new)
    found: set[Identity] = set()
    missing: list[str] = []
    pieces: list[tuple[int, int, str | None]] = []
    for name in occurrences(tokenise(query)):
        identity = _identity(name, compared.definition)
        if identity is None:
            continue
        earlier = identity if identity in old else continued.get(identity, identity)
        if earlier not in old:
            if name.kind == "relation":
                schema = name.parts[-2] if len(name.parts) > 1 else compared.definition.schema
                missing.append(str(ItemName(schema, name.parts[-1])))
            continue
        found.add(earlier)
        standing = old[earlier].definition
        pieces.append((
            name.start, name.end, f"{quote_part(standing.schema)}.{quote_part(standing.name)}"
        ))
    if missing:
        return _without(compared, missing, approvals)
    reached = found | graph.dependencies(found)
    objects = tuple(
        old[identity].definition for identity in graph.topological()
        if identity in reached and old[identity].definition.kind in _READ
    )
    text = splice(query, pieces)
    return Movement("fill", fill=Fill(text, objects, _whole_table(text, old)))


def _whole_table(query: str, old: Mapping[Identity, BaselineObject]) -> Identity | None:
    """The table whose rows a query reads as they are; None for any other query."""
    whole = whole_relation(query)
    found = None if whole is None else ("relation", *whole)
    return found if found is not None and old[found].definition.kind == "table" else None


def _names_in_force(new: Mapping[Identity, Compared]) -> dict[Identity, Identity]:
    """The name in force of each renamed object, by the name that it gets and those it had."""
    found: dict[Identity, Identity] = {}
    for identity, compared in new.items():
        if compared.old_identity is None or compared.old_identity == identity:
            continue
        names = (split_name(name) for name in compared.definition.earlier_names)
        for schema, bare in ((compared.definition.schema, identity[2]), *names):
            folded = (schema or compared.definition.schema).lower(), bare.lower()
            found.setdefault((identity[0], *folded), compared.old_identity)
    return found


def _identity(name: Occurrence, definition: ObjectDefinition) -> Identity | None:
    """What a name in the query may mean; None for what is not an object of a release."""
    if name.name is None or name.kind == "type":
        return None
    schema, bare = name.name
    return name.kind, schema or definition.schema.lower(), bare


def _without(compared: Compared, missing: Sequence[str], approvals: Approvals) -> Movement:
    """What is read is not in force: nothing can be taken from it."""
    names = ", ".join(dict.fromkeys(missing))
    reason = f"FILLED FROM reads {names}, which the release in force does not have"
    if approvals.cover("start_empty", compared.key):
        return Movement(risks=(Risk("start_empty", f"{reason}: the table starts empty"),))
    return Movement(blocked=(
        Blocked(
            str(compared.key), FILL_SOURCE_MISSING, reason,
            f"--approve {compared.key.item_name} (the table starts empty), or read in FILLED FROM"
            " what is in force",
        ),
    ))
