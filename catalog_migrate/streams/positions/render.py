"""A plan of an unsafe operation as text, for people."""

from __future__ import annotations

from collections.abc import Sequence

from catalog_migrate.model.wording import align, counted
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.positions.plan import ItemPlan, Job, Row, UnsafePlan

HEAD = ("partition", "current", "target", "low", "high", "doubled", "skipped", "expired", "")

NEXT = "positions are the next record to read"
NEXT_CHANGE = "positions are where the next transaction to read may commit"

_TAKES = {
    "append": "sees doubled rows again",
    "keyed": "its key absorbs doubled rows",
    "stateful": "its result may count doubled rows twice",
}


def render(plan: UnsafePlan, steps: Sequence[str] = (), *, limit: int = 50) -> str:
    """The plan: for each item its properties, partitions and whom it concerns, then the totals.

    ``steps`` are the lines of its program, ``limit`` is how many partitions of an item are listed.
    """
    lines: list[str] = []
    for item in plan.items:
        lines += [f"{item.kind} {item.name}"]
        if item.keys:
            lines.append(f"  properties that change: {', '.join(item.keys)}")
            lines += [f"    {line}" for line in item.definition.splitlines()]
        lines += [f"  new: topic {topic} {why}" for topic, why in item.foreign.items()]
        lines += _partitions(item, limit)
        if item.snapshot:
            lines.append(f"  new snapshot: {', '.join(item.snapshot)}")
        lines += [f"  note: {note}" for note in item.notes]
        lines += [f"  REFUSED by validation: {finding}" for finding in item.findings]
        lines += [f"  below: {job.kind} {job.name}: {describe_job(job)}" for job in item.jobs]
    if not plan.changes:
        return "\n".join([*lines, "nothing changes, nothing restarts"])
    totals = f"{sentence(plan.totals)}{describe_unread(plan)}{kept_by_sinks(plan)}"
    return "\n".join([*lines, *steps, totals])


def describe_job(job: Job) -> str:
    """How what reads an item takes records that come again."""
    return f"{job.takes}, {_TAKES[job.takes]}"


def describe_unread(plan: UnsafePlan) -> str:
    """Write how many records of topics that are no longer read were not read; else nothing."""
    unread = sum(item.unread or 0 for item in plan.items)
    verb = "stays" if unread == 1 else "stay"
    return f"; {counted(unread, 'unread record')} of former topics {verb} behind" if unread else ""


def kept_by_sinks(plan: UnsafePlan) -> str:
    """The rows that no RESTORE of a table reaches, beside the records that the totals count."""
    staying = [item for item in plan.items if item.stays]
    if not staying:
        return ""
    most = "" if all(item.totals.exact for item in staying) else "at most "
    rows = sum(item.stays or 0 for item in staying)
    names = ", ".join(f"{item.kind} {item.name}" for item in staying)
    goes, stays = ("goes", "stays") if rows == 1 else ("go", "stay")
    return f"; {most}{counted(rows, 'row')} that {goes} from the table {stays} below {names}"


def sentence(totals: Totals) -> str:
    """Write the totals in words: ``at most 3 records doubled, …``."""
    most = "" if totals.exact else "at most "
    return (
        f"{most}{counted(totals.doubled, 'record')} doubled, {most}{totals.skipped:,} skipped; "
        f"{totals.expired:,} already expired"
    )


def _partitions(item: ItemPlan, limit: int) -> list[str]:
    if not item.rows:
        return []
    head = ("table", *HEAD[1:]) if item.rows[0].log else HEAD
    cells = [head, *(_cells(row) for row in item.rows[:limit])]
    meaning = NEXT_CHANGE if item.rows[0].log else NEXT
    lines = [f"  {meaning}", *(f"  {line}" for line in align(cells, right=range(1, len(HEAD) - 1)))]
    if len(item.rows) > limit:
        lines.append(f"  … and {len(item.rows) - limit} partitions more (--format json has all)")
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (row.current, row.target, row.low, row.high)
    return (
        row.name, *map(row.format_position, numbers),
        str(row.doubled), str(row.skipped), str(row.expired), row.note,
    )
