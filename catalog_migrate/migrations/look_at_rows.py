"""Looks at the rows of tables that are to be copied, for a plan: would the new table take them?

A start need not: its copy fails on such a row before the commit. A plan that says SAFE has to know.
"""

from __future__ import annotations

from msgspec.structs import replace

from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import RowsRefused, RowsRequest
from catalog_migrate.errors import EngineFailure
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.model.names import quote_part
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.planner.plan_validation import RefusedPart, RowsFound, with_rows
from catalog_migrate.planner.proofs import RowsAtRisk, rows_at_risk, rows_unseen

_FIX = "correct those rows of {table}, or {what}"


def look_at_rows(work: ExecutionContext, state: State, migration: Migration) -> Migration:
    """Return the migration with the rows that its tables would not take; writes nothing.

    Tables with a text that does not bind are left out: there is nothing to evaluate.
    """
    refused = {entry.name for entry in migration.plan.blocked}
    asked: list[tuple[Target, RowsAtRisk, str]] = []
    found: list[RowsFound] = []
    for target in migration.targets:
        if str(target.definition.key) in refused:
            continue
        if rows_unseen(target):
            found.append(RowsFound(target, None))
        item = state.items.get(target.item_id)
        if item is None or item.shard is None:
            continue
        risk = rows_at_risk(target, item.definition.checks)
        if risk:
            asked.append((target, risk, work.absolute(item.shard)))
    for number, (target, risk, path) in enumerate(asked):
        name = str(target.definition.item_name)
        work.on_progress(Progress("look at rows", number, len(asked), name))
        found.append(RowsFound(target, _find_refused_parts(work, target, risk, path)))
    return with_rows(migration, found)


def _find_refused_parts(
    work: ExecutionContext, target: Target, risk: RowsAtRisk, path: str
) -> list[RefusedPart] | None:
    """What the rows are refused for; None when they cannot be read from here."""
    definition = target.definition
    try:
        version = work.retrying(lambda: work.engine.shard_version(path))
        if version is None:
            return None
        if work.retrying(lambda: work.engine.shard_size(path))[0] == 0:
            return []
        request = RowsRequest(
            definition.item_name, path, version, target.projection,
            [replace(column, comment=None) for column in definition.columns],
            risk.columns, risk.checks,
        )
        found = work.retrying(lambda: work.engine.find_refused_rows(request))
    except EngineFailure:
        return None
    return [_part(target, each) for each in found]


def _part(target: Target, refused: RowsRefused) -> RefusedPart:
    """What is wrong with which rows, and what to do, in the words of the release."""
    definition = target.definition
    some = "a row" if refused.rows is None else counted(refused.rows, "row")
    check = next((c for c in definition.checks if c.name == refused.part), None)
    column = next((c for c in definition.columns if c.name == refused.part), None)
    if check is not None and (refused.fault == "check" or column is None):
        said = f"the CHECK {quote_part(check.name)} ({check.expression})"
        how = f"fails on {some} [{refused.condition}]" if refused.fault == "fails" else (
            f"does not hold on {some}"
        )
        what = "correct the CHECK, or what fills its columns, in the release"
        return RefusedPart(
            None, f"{said} {how}", _FIX.format(table=definition.key, what=what)
        )
    assert column is not None
    written = dict(target.projection).get(column.name) or column.generated or ""
    label = f"{quote_part(column.name)} = {written}"
    if column.using is not None and column.using in written:
        label = f"{quote_part(column.name)} USING {column.using}"
    how = {
        "null": f"is NULL on {some}, and the column is NOT NULL",
        "long": f"is longer than {column.type} on {some}",
        "generated": f"is not what the column is generated as on {some}",
        "fails": f"fails on {some} [{refused.condition}]",
        "check": "",
    }[refused.fault]
    what = {
        "null": "write a USING that gives a value (coalesce), or let the column be NULL",
        "fails": "write a USING that does not fail (try_cast, with coalesce where NULL is not"
        " allowed)",
    }.get(refused.fault, "correct the USING of the column")
    return RefusedPart(
        column.name, f"column {label} {how}", _FIX.format(table=definition.key, what=what)
    )
