"""The dry run of an unsafe operation as a report: records doubled and skipped, positions, users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from catalog_migrate.catalog.state import State
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.steps import Step, number_steps
from catalog_migrate.report.facts import list_base, list_making, schema_of
from catalog_migrate.report.options import list_options
from catalog_migrate.report.program import list_waves
from catalog_migrate.report.report import (
    OWN_CHANGE,
    Decision,
    Difference,
    Edge,
    Entry,
    Node,
    Picture,
    Report,
    ReportObject,
    Section,
    cut_section,
    make_visible,
)
from catalog_migrate.report.verdict import Verdict
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.positions.operation_row import Missing
from catalog_migrate.streams.positions.plan import ItemPlan, Job, Refusal, Row, UnsafePlan
from catalog_migrate.streams.positions.render import (
    HEAD,
    NEXT,
    NEXT_CHANGE,
    describe_job,
    describe_unread,
    kept_by_sinks,
    sentence,
)
from catalog_migrate.streams.positions.requests import ItemRequest
from catalog_migrate.version import __version__

_SHOWN = 50


def report_unsafe(
    plan: UnsafePlan, program: Sequence[Step] = (), *, lacking: Sequence[Missing] = (),
    state: State | None = None, catalog: str | None = None, at: datetime | None = None,
) -> Report:
    """Make the report of a dry run.

    ``program`` is what the runtime would execute, and ``lacking`` what is missing for it to begin,
    where that is known; ``state`` and ``catalog`` say what it was planned on.
    """
    verdict = _judge(plan)
    names = ", ".join(f"{item.kind} {item.name}" for item in plan.items)
    return make_visible(Report(
        title=f"Unsafe operation on {names}: {verdict.word}",
        verdict=verdict,
        route=_route(plan),
        header=tuple(_facts(plan, state, catalog, at)),
        sections=tuple(
            each for each in _sections(plan, program, lacking)
            if each.entries or each.note or each.table
        ),
        objects=_objects(plan),
        decisions=tuple(_decisions(plan, lacking)),
        waves=list_waves(program),
        picture=_picture(plan),
    ))


def _facts(
    plan: UnsafePlan, state: State | None, catalog: str | None, at: datetime | None
) -> Iterator[tuple[str, str]]:
    yield from list_base(
        catalog=catalog, catalog_id=plan.lineage, serial=None if state is None else state.serial
    )
    if plan.reason:
        yield "Reason", plan.reason
    if plan.at:
        yield "Planned at", plan.at
    yield from list_making(__version__, at)


def _route(plan: UnsafePlan) -> str:
    doing = f"undo of operation {plan.request.undoes}" if plan.request.undoes else "a dry run"
    return f"{doing}: nothing was done"


def _judge(plan: UnsafePlan) -> Verdict:
    """Say in a word what becomes of records: skipped ones are lost, doubled ones come again."""
    if not plan.changes:
        word = "NOTHING TO DO"
        return Verdict("nothing", word, f"{word}: nothing changes, nothing restarts")
    outcome = f"{sentence(plan.totals)}{describe_unread(plan)}{kept_by_sinks(plan)}"
    if plan.refused:
        word = "REFUSED BY VALIDATION"
        number = sum(len(item.findings) for item in plan.items)
        return Verdict(
            "blocked", word, f"{word}: {counted(number, 'finding')}; it would be {outcome}"
        )
    doubled, skipped = plan.totals.doubled, plan.totals.skipped or plan.totals.expired
    if doubled or skipped:
        words = " AND ".join(
            word for word, number in (("DOUBLES", doubled), ("SKIPS", skipped)) if number
        )
        word = f"{words} RECORDS"
        return Verdict("losses", word, f"{word}: {outcome}")
    word = "NO RECORD DOUBLED OR SKIPPED"
    return Verdict("safe", word, f"{word}: {outcome}" if outcome != sentence(Totals()) else word)


# -- sections --------------------------------------------------------------------------------------


def _sections(
    plan: UnsafePlan, program: Sequence[Step], lacking: Sequence[Missing]
) -> Iterator[Section]:
    if plan.changes:
        yield _losses(plan)
        yield Section("What is in the way", (
            *(
                Entry(finding, "!", (f"REFUSED by validation: {item.kind} {item.name}",))
                for item in plan.items for finding in item.findings
            ),
            *(Entry(f"missing: {each}", "?") for each in lacking),
        ), part="decisions")
    for item, part in zip(plan.items, plan.request.parts, strict=True):
        yield from _item_sections(item, part)
    below = [
        Entry(f"{job.kind} {job.name}", details=(describe_job(job),))
        for job in _jobs(plan)
    ]
    yield cut_section("Who is below", below, _SHOWN)
    shown = tuple(Entry(line, sign) for sign, line in number_steps(program, _SHOWN))
    yield Section(
        "Steps, in this order", shown, more=len(program) - len(shown), part="steps",
    )


def _losses(plan: UnsafePlan) -> Section:
    entries = [
        Entry(
            f"{item.kind} {item.name}: {sentence(item.totals)}",
            "!" if item.totals.skipped or item.totals.expired else "?",
        )
        for item in plan.items
        if item.totals.doubled or item.totals.skipped or item.totals.expired
    ]
    note = None if entries else "Nothing: no record is doubled or skipped."
    return Section("What is doubled and skipped", tuple(entries), note)


def _item_sections(item: ItemPlan, part: ItemRequest) -> Iterator[Section]:
    """Of one source or sink: its properties, its positions, and what is to be known of them."""
    name = f"{item.kind} {item.name}"
    options = [
        f"{each.name}: {each.before or '-'} -> {each.after or '-'}"
        for each in list_options(part.before, part.after)
    ]
    entries = []
    if item.keys:
        head = f"properties that change: {', '.join(item.keys)}"
        entries.append(Entry(head, "~", tuple(options)))
    entries += [Entry(f"new: topic {topic} {why}", "!") for topic, why in item.foreign.items()]
    if item.snapshot:
        entries.append(Entry(f"new snapshot: {', '.join(item.snapshot)}", "~"))
    entries += [Entry(f"note: {note}") for note in item.notes]
    yield Section(f"What changes: {name}", tuple(entries))
    if item.rows:
        note = NEXT_CHANGE if item.rows[0].log else NEXT
        first = "table" if item.rows[0].log else HEAD[0]
        yield Section(
            f"Positions: {name}", note=f"{note[0].upper()}{note[1:]}.",
            more=max(len(item.rows) - _SHOWN, 0),
            table=((first, *HEAD[1:-1], "note"), *(_cells(row) for row in item.rows[:_SHOWN])),
        )
    if item.definition:
        yield show_definition(name, item.definition)


def show_definition(name: str, statement: str) -> Section:
    """Make the section of the statement that would create ``name`` afterwards."""
    return Section("Definition afterwards", (Entry(name, lines=tuple(statement.splitlines())),))


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name, *map(row.format_position, (row.current, row.target, row.low, row.high)),
        *(f"{number:,}" for number in (row.doubled, row.skipped, row.expired)), row.note,
    )


def _decisions(plan: UnsafePlan, lacking: Sequence[Missing]) -> Iterator[Decision]:
    for item in plan.items:
        # a plan of before has the remedy in the finding
        refusals = item.refusals or tuple(Refusal(finding) for finding in item.findings)
        for each in refusals:
            yield Decision(f"{item.kind} {item.name}", "", each.text, each.remedy, "remedy")
    for lack in lacking:
        yield Decision(plan.items[0].name, "", f"missing: {lack.what}", lack.remedy, "remedy")


# -- objects ---------------------------------------------------------------------------------------


def _objects(plan: UnsafePlan) -> tuple[ReportObject, ...]:
    found = []
    for item, part in zip(plan.items, plan.request.parts, strict=True):
        totals = item.totals
        loses = bool(totals.skipped or totals.expired)
        name = _name(item.kind, item.name)
        found.append(ReportObject(
            name, item.kind, schema_of(item.name), "update" if plan.changes else "unchanged",
            "blocked" if item.findings else "loses" if loses else "",
            because=(name,), why=OWN_CHANGE if item.keys else "",
            differences=tuple(_differences(item, part)),
            lost=(sentence(totals),) if loses or totals.doubled else (),
            notes=(
                *(f"topic {topic} {why}" for topic, why in item.foreign.items()), *item.notes,
                *(f"REFUSED by validation: {each}" for each in item.findings),
            ),
        ))
    for job in _jobs(plan):
        found.append(ReportObject(
            _name(job.kind, job.name), job.kind, schema_of(job.name), "unchanged",
            notes=(describe_job(job),),
        ))
    return tuple(found)


def _name(kind: str, name: str) -> str:
    """A name as steps and graphs have it: a sink may be called as its source is."""
    return f"sink:{name}" if kind == "sink" else name


def _differences(item: ItemPlan, part: ItemRequest) -> Iterator[Difference]:
    yield from list_options(part.before, part.after)
    for row in item.rows:
        if row.moves:
            low, target, high = map(row.format_position, (row.low, row.target, row.high))
            after = (
                f"{target} of {low} to {high}; {row.doubled:,} doubled, {row.skipped:,} skipped,"
                f" {row.expired:,} expired"
            )
            note = f"; {row.note}" if row.note else ""
            yield Difference("position", row.name, row.format_position(row.current), after + note)


def _jobs(plan: UnsafePlan) -> Sequence[Job]:
    """What is below, once, without what the operation is on itself."""
    on = {(item.kind, item.name) for item in plan.items}
    return [
        job for job in dict.fromkeys(job for item in plan.items for job in item.jobs)
        if (job.kind, job.name) not in on
    ]


def _picture(plan: UnsafePlan) -> Picture:
    """What the operation is on, and what reads that, directly or not."""
    nodes: dict[tuple[str, str], Node] = {}
    for item in plan.items:
        action = "update" if plan.changes else "unchanged"
        nodes[item.kind, item.name] = Node(
            _name(item.kind, item.name), item.kind, schema_of(item.name), action
        )
    for job in _jobs(plan):
        nodes[job.kind, job.name] = Node(
            _name(job.kind, job.name), job.kind, schema_of(job.name)
        )
    number = {key: place for place, key in enumerate(nodes)}
    edges = {
        (number[item.kind, item.name], number[job.kind, job.name])
        for item in plan.items for job in item.jobs
    }
    return Picture(tuple(nodes.values()), tuple(Edge(*ends) for ends in sorted(edges)))
