"""Decisions that contradict the object they stand in: found without knowing the old release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from catalog_migrate.errors import Problem
from catalog_migrate.model.names import Identity, InvalidName, parse_reference, quote_part
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.release.release import Place

BAD_DECISION = "CM0106"


def decision_problems(
    definition: ObjectDefinition, place: Place, columns: Mapping[str, Place]
) -> list[Problem]:
    """Everything wrong with the decisions and column lists of one object."""
    found: list[Problem] = []

    def report(message: str, text: str, remedy: str, at: Place = place) -> None:
        found.append(Problem(BAD_DECISION, message, at.file, at.line, at.column, text, remedy))

    present = {column.name.lower(): column for column in definition.columns}
    for name in definition.dropped:
        if name.lower() in present:
            report(
                f"{definition.key} drops column {quote_part(name)}, which it also declares",
                name, "take the column out of the list, or out of DROPPED",
            )
    claimed: dict[str, str] = {}
    for column in definition.columns:
        at = columns.get(column.name.lower(), place)
        for old in column.earlier_names:
            other = present.get(old.lower())
            if other is column:
                report(
                    f"column {quote_part(column.name)} of {definition.key} is renamed from itself",
                    old, "leave RENAMED FROM out", at,
                )
            elif other is not None and other.renamed_from is None:
                report(
                    f"column {quote_part(column.name)} of {definition.key} is renamed from "
                    f"{quote_part(old)}, which {definition.key} still declares",
                    old, f"take {quote_part(old)} out of the list, or RENAMED FROM", at,
                )
            elif claimed.setdefault(old.lower(), column.name) != column.name:
                report(
                    f"columns {quote_part(claimed[old.lower()])} and {quote_part(column.name)} of "
                    f"{definition.key} are both renamed from {quote_part(old)}",
                    old, "one column can have only one successor", at,
                )
    for clause, names in (
        ("partitioned", definition.partitioned_by), ("clustered", definition.clustered_by)
    ):
        for name in names:
            if name.lower() not in present:
                report(
                    f"{definition.key} is {clause} by {quote_part(name)}, which is not one of its "
                    "columns", name, "name a column of the table",
                )
    if definition.kind != "table":
        if definition.contents is not None:
            report(
                f"{definition.kind} {definition.key} has contents {definition.contents}",
                definition.contents, "only tables have contents",
            )
        for column in definition.columns:
            if column.using is not None or column.renamed_from is not None:
                report(
                    f"column {quote_part(column.name)} of {definition.kind} {definition.key} has "
                    "USING or RENAMED FROM", column.name, "only columns of tables hold rows",
                    columns.get(column.name.lower(), place),
                )
    return found


def dropped_tables(
    names: Iterable[tuple[str, Place]], tables: Mapping[Identity, str], default_schema: str | None
) -> tuple[tuple[str, ...], list[Problem]]:
    """The tables that a release gives up, each once, and everything that is wrong with that.

    ``tables`` are the names of those that it declares.
    """
    found: dict[Identity, str] = {}
    problems: list[Problem] = []
    for name, place in names:
        try:
            identity = parse_reference(name, default_schema)
        except InvalidName as error:
            problems.append(
                Problem(BAD_DECISION, f"DROPPED TABLE: {error.message}", *place, name, error.remedy)
            )
            continue
        if identity[0] != "relation":
            problems.append(
                Problem(
                    BAD_DECISION, f"DROPPED TABLE names {name}, which is no table", *place, name,
                    "leave it out: only tables hold rows",
                )
            )
        elif identity in tables:
            problems.append(
                Problem(
                    BAD_DECISION,
                    f"the release drops table {tables[identity]}, which it also declares", *place,
                    name, "take the CREATE TABLE out, or DROPPED TABLE",
                )
            )
        else:
            found.setdefault(identity, ".".join(map(quote_part, identity[1:])))
    return tuple(sorted(found.values())), problems
