"""EXPLAIN of a statement as a report: who restarts and why, and what validation says."""

from __future__ import annotations

import re
from datetime import datetime

from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import Identity
from catalog_migrate.model.wording import counted
from catalog_migrate.program.operations import interruptions, numbered
from catalog_migrate.report.differences import compare_lines
from catalog_migrate.report.facts import list_facts
from catalog_migrate.report.options import list_options
from catalog_migrate.report.pictures import list_neighbours, make_picture
from catalog_migrate.report.program import list_waves
from catalog_migrate.report.report import (
    Decision,
    Difference,
    Entry,
    Picture,
    Report,
    ReportObject,
    Section,
    make_visible,
)
from catalog_migrate.report.unsafe import report_unsafe
from catalog_migrate.report.verdict import Verdict
from catalog_migrate.sql.printer import render
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import Effect, Restart
from catalog_migrate.streams.explanation import Explanation, changed_items, definition_of
from catalog_migrate.streams.judgement import pause_remedy
from catalog_migrate.streams.probes import Verdict as Finding

_SHOWN = 50
_STEPS_SHOWN = 100
_ARGUMENTS = re.compile(
    r"(?: (?:SET|DROP|RESET|AS|IS|REASON|WITH|TO|FROM|INTO))*\s*[('\";\n].*", re.DOTALL
)


def report_statement(
    found: Explanation, *, catalog: str | None = None, at: datetime | None = None
) -> Report:
    """Make the report of an EXPLAIN; ``catalog`` is where it is, ``at`` when the report is made."""
    if found.unsafe is not None:
        return report_unsafe(
            found.unsafe, found.program, lacking=found.lacking, state=found.before,
            catalog=catalog, at=at,
        )
    verdict = _judge(found)
    title = _title(found)
    sections = () if found.effect is None else _sections(found, found.effect)
    return make_visible(Report(
        title=f"{title}: {verdict.word}",
        verdict=verdict,
        route="what the statement would do; nothing was done",
        header=tuple(list_facts(found.before, catalog=catalog, at=at)),
        sections=tuple(each for each in sections if each.entries or each.note),
        objects=() if found.effect is None else _objects(found, found.effect),
        decisions=_decisions(found),
        waves=list_waves(found.program),
        picture=Picture() if found.effect is None else _picture(found, found.effect),
    ))


def _title(found: Explanation) -> str:
    """The statement without what stands in parentheses and strings."""
    return f"EXPLAIN {_ARGUMENTS.sub('', render(found.statement))}"


def _judge(found: Explanation) -> Verdict:
    """Say in a word what a statement comes to, refusals first."""
    effect = found.effect
    if effect is None:
        return Verdict("nothing", "CHANGES NOTHING", f"CHANGES NOTHING: {found.reads}")
    if effect.changes is None:
        said = "; ".join(effect.notices) or "nothing changes, nothing restarts"
        return Verdict("nothing", "NOTHING TO DO", f"NOTHING TO DO: {said}")
    if found.refusing:
        word = "REFUSED BY VALIDATION"
        number = len({each.item_id for each in found.refusing})
        asked = len({each.item_id for each in found.judgement.verdicts})
        line = (
            f"{word}: {number:,} of {counted(asked, 'object')} would not work, as seen from this"
            " process; nothing would be changed and nothing stopped"
        )
        return Verdict("blocked", word, line)
    word, line = _describe_outcome(effect)
    late = [each for each in found.judgement.verdicts if each.unresolved and not each.ok]
    if effect.validate is False:
        return Verdict("unproven", word, f"{line}; not validated, the statement says so")
    if late:
        number = len({each.item_id for each in late})
        line += f"; {counted(number, 'object')} could not be validated from here"
        return Verdict("unproven", word, line)
    if found.judgement.sick:
        number = len({each.item_id for each in found.judgement.sick})
        line += f"; {counted(number, 'object')} did not work before either"
    return Verdict("losses" if effect.removed else "safe", word, line)


def _describe_outcome(effect: Effect) -> tuple[str, str]:
    number = len(effect.removed)
    if number:
        word = f"DROPS {counted(number, 'object').upper()}"
        return word, f"{word}: {effect.summary}"
    if effect.alteration is None:
        return "ACCEPTED", f"ACCEPTED: {effect.summary}"
    number = len(effect.affected)
    word = f"RESTARTS {_queries(number).upper() if number else 'NOTHING'}"
    below = f" of {len(effect.restarts):,} below it" if effect.restarts else ""
    return word, f"{word}{below}: {effect.summary}"


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number:,} queries"


# -- sections --------------------------------------------------------------------------------------


def _sections(found: Explanation, effect: Effect) -> tuple[Section, ...]:
    if effect.changes is None:
        return ()
    return (
        _obstacles(found),
        _notices(found, effect),
        _changes(found, effect),
        _restarts(found, effect),
        _steps(found, effect),
        _stops(found),
        _validation(found, effect),
        *(
            Section("Definition afterwards", (Entry(
                dependencies.by_id(found.after, item_id).text,
                details=tuple(definition_of(found.after, item_id).splitlines()),
            ),))
            for item_id in changed_items(effect)
        ),
    )


def _notices(found: Explanation, effect: Effect) -> Section:
    """What is to be known; what goes with a DROP is listed as what changes."""
    going = {f"{dependencies.by_id(found.before, each).text} is dropped with it"
             for each in effect.removed}
    kept = (each for each in effect.notices if each not in going)
    return Section("To know", tuple(map(Entry, kept)))


def _obstacles(found: Explanation) -> Section:
    """What refuses it, and how it goes without the queries of it."""
    entries = [
        Entry(_describe_finding(each), "!", (f"remedy: {each.remedy}",) if each.remedy else ())
        for each in found.refusing
    ]
    note = None
    if _pausable(found):
        remedy = pause_remedy(found.after, found.refusing)
        note = f"{remedy[0].upper()}{remedy[1:]}."
    return Section(
        "What stands in the way", tuple(entries[:_SHOWN]), note,
        max(len(entries) - _SHOWN, 0), "decisions",
    )


def _pausable(found: Explanation) -> list[str]:
    """The queries that alone refuse an alteration, which goes through while they are paused."""
    altered = found.effect is not None and found.effect.alteration is not None
    if not altered or not all(each.is_query for each in found.refusing):
        return []
    return list(dict.fromkeys(each.name for each in found.refusing))


def _decisions(found: Explanation) -> tuple[Decision, ...]:
    """What is to be done for each finding, and how it goes without the queries of them."""
    return (
        *(
            Decision(
                each.name, f"option {each.option}" if each.option else "",
                each.message.removeprefix(f"{each.name}: "), each.remedy, "remedy",
            )
            for each in found.refusing
        ),
        *(
            Decision(
                name, "", "or go on without it: it starts on the new definition with RESUME",
                f"PAUSE {kind.upper()} {rest};", "write",
            )
            for name in _pausable(found) for kind, _, rest in (name.partition(" "),)
        ),
    )


def _describe_finding(finding: Finding) -> str:
    """A finding without its remedy."""
    remedy = f" (remedy: {finding.remedy})" if finding.remedy else ""
    return str(finding).removesuffix(remedy)


def _changes(found: Explanation, effect: Effect) -> Section:
    entries = [Entry(f"{dependencies.by_id(found.before, each).text} goes", "-")
               for each in effect.removed]
    for item_id in changed_items(effect):
        text = dependencies.by_id(found.after, item_id).text
        new = effect.alteration is None
        lines = tuple(
            f"{each.aspect} {each.name}{_describe_change(each)}"
            for each in _differences(found, item_id) if each.aspect != "definition"
        )
        head, sign = (f"{text} is new", "+") if new else (f"{text} changes", "~")
        entries.append(Entry(head, sign, lines))
    return Section("What changes", tuple(entries), part="objects")


def _describe_change(each: Difference) -> str:
    if each.before is None:
        return f" set to {each.after}"
    if each.after is None:
        return f" removed (was {each.before})"
    return f": {each.before} -> {each.after}"


def _restarts(found: Explanation, effect: Effect) -> Section:
    """Every query below what is altered: those that restart first."""
    if effect.alteration is None:
        return Section("")
    ordered = sorted(effect.restarts, key=lambda each: not each.restarts)
    entries = []
    for each in ordered[:_SHOWN]:
        path = _path(found, effect, each)
        head = f"{each.kind} {each.name}{'' if each.restarts else ' does not restart'}"
        entries.append(Entry(
            f"{head}: {each.reason}", "*" if each.restarts else "",
            (f"because: {' -> '.join(path)}",) if each.restarts and len(path) > 2 else (),
        ))
    note = (
        f"{len(effect.affected):,} of {_queries(len(effect.restarts))} below it."
        if effect.restarts else "No query uses it."
    )
    return Section(
        "What restarts", tuple(entries), note, max(len(ordered) - _SHOWN, 0), "objects"
    )


def _steps(found: Explanation, effect: Effect) -> Section:
    title = "Steps, in this order"
    if found.program:
        entries = tuple(Entry(line, sign) for sign, line in numbered(found.program, _STEPS_SHOWN))
        waves = len({step.wave for step in found.program})
        note = (
            f"{counted(len(found.program), 'step')} in {counted(waves, 'wave')}, by the runtime:"
            " steps of one wave go side by side."
        )
        return Section(title, entries, note, len(found.program) - len(entries), "steps")
    if not effect.affected:
        return Section(title)
    names = sorted({_cluster_of(found.after, each) for each in effect.affected})
    return Section(title, note=(
        f"No runtime of cluster {', '.join(names)} is alive:"
        f" {_queries(len(effect.affected))} will start on the"
        " new definition with the next"
        f" {' and '.join(f'`catalog-migrate run --cluster {name}`' for name in names)}."
    ), part="steps")


def _stops(found: Explanation) -> Section:
    """Which queries stand still, from which step to which."""
    stopped = [
        Entry(f"{name}: {_describe_stop(number, back)}", "-")
        for name, number, back in interruptions(found.program)
    ]
    return Section(
        "What is stopped meanwhile", tuple(stopped[:_SHOWN]), more=max(len(stopped) - _SHOWN, 0)
    )


def _describe_stop(number: int, back: int | None) -> str:
    return f"from step {number} on" if back is None else f"from step {number} to step {back}"


def _validation(found: Explanation, effect: Effect) -> Section:
    """What was tried: what does not work first."""
    title = "Validation, from this process"
    if effect.validate is False:
        return Section(title, note="None: the statement says VALIDATE = false.")
    verdicts = found.judgement.verdicts
    if not verdicts:
        return Section(title)
    bad = sorted(
        (each for each in verdicts if not each.ok), key=lambda each: each in found.judgement.sick
    )
    entries = [
        Entry(
            ("sick before: " if each in found.judgement.sick else "") + _describe_finding(each),
            "!" if each in found.refusing else "?",
            (f"remedy: {each.remedy}",) if each.remedy else (),
        )
        for each in bad[:_SHOWN]
    ]
    well = list(dict.fromkeys(each.name for each in verdicts if each.ok))
    left = f", … and {len(well) - _SHOWN:,} more" if len(well) > _SHOWN else ""
    note = f"Nothing found: {', '.join(well[:_SHOWN])}{left}." if well else None
    return Section(title, tuple(entries), note, max(len(bad) - _SHOWN, 0))


# -- objects ---------------------------------------------------------------------------------------


def _objects(found: Explanation, effect: Effect) -> tuple[ReportObject, ...]:
    """What changes, then what restarts, then what does not."""
    refusing: dict[str, list[Finding]] = {}
    for each in found.refusing:
        refusing.setdefault(each.item_id, []).append(each)
    remedies = {each.name: each for each in _decisions(found) if each.verb == "remedy"}
    stops = {
        name: f"stopped {_describe_stop(number, back)}"
        for name, number, back in interruptions(found.program)
    }
    notes: dict[str, list[str]] = {}
    for each in found.judgement.verdicts:
        sick = "sick before: " if each in found.judgement.sick else ""
        notes.setdefault(each.item_id, []).append(f"validation: {sick}{_describe_finding(each)}")
    listed = []

    def add(
        state: State, item_id: str, action: str, because: tuple[str, ...] = (),
        differences: tuple[Difference, ...] = (), why: str = "",
    ) -> None:
        definition = state.items[item_id].definition
        bad = refusing.get(item_id, [])
        name = str(definition.key)
        listed.append(ReportObject(
            name, definition.kind, definition.schema or "", action,
            "blocked" if bad else "", because=because, differences=differences,
            decisions=tuple(remedies[each.name] for each in bad if each.name in remedies),
            notes=tuple(filter(None, (why, stops.get(name), *notes.get(item_id, ())))),
        ))

    for item_id in changed_items(effect):
        action = "create" if effect.alteration is None else "update"
        add(found.after, item_id, action, differences=_differences(found, item_id))
    for item_id in effect.removed:
        add(found.before, item_id, "drop", differences=_differences(found, item_id))
    itself = set(changed_items(effect))
    for query in sorted(effect.restarts, key=lambda query: not query.restarts):
        if query.item_id not in itself:
            action = "restart" if query.restarts else "unchanged"
            add(
                found.after, query.item_id, action, _path(found, effect, query), why=query.reason
            )
    told = {each.name for each in listed}
    others = [
        ReportObject(node.name, node.kind, node.group, "unchanged")
        for node in _picture(found, effect).nodes if node.name not in told
    ]
    return (*listed, *others)


def _path(found: Explanation, effect: Effect, query: Restart) -> tuple[str, ...]:
    """From what is altered to a query that restarts for it."""
    if effect.alteration is None:
        return ()
    graph = found.after.graph
    root = frozenset((found.after.items[effect.alteration.item_id].definition.identity,))
    node = found.after.items[query.item_id].definition.identity
    return tuple(str(graph.key(each)) for each in graph.because(root, node))


def _cluster_of(state: State, item_id: str) -> str:
    return dependencies.display(state, state.items[item_id].links.get("cluster", ""))


def _differences(found: Explanation, item_id: str) -> tuple[Difference, ...]:
    """What of an item differs, and the statements that would create it before and after."""
    old, new = (
        state.items[item_id].definition if item_id in state.items else None
        for state in (found.before, found.after)
    )
    before, after = (
        definition_of(state, item_id) if item_id in state.items else None
        for state in (found.before, found.after)
    )
    options = list(list_options(old, new))
    if before != after:
        options.append(Difference(
            "definition", "", before, after, compare_lines(before or "", after or "")
        ))
    return tuple(options)


def _picture(found: Explanation, effect: Effect) -> Picture:
    """What changes and restarts, with one hop round it; sources and sinks are in their clusters."""
    before, after = found.before.graph, found.after.graph
    actions: dict[Identity, str] = {}
    for each in effect.restarts:
        if each.restarts:
            actions[found.after.items[each.item_id].definition.identity] = "restart"
    for item_id in changed_items(effect):
        actions[found.after.items[item_id].definition.identity] = (
            "create" if effect.alteration is None else "update"
        )
    for item_id in effect.removed:
        actions[found.before.items[item_id].definition.identity] = "drop"
    below = [found.after.items[each.item_id].definition.identity for each in effect.restarts]
    paths = [
        step for each in effect.restarts if effect.alteration is not None
        for step in after.because(
            frozenset((effect.alteration.after.identity,)),
            found.after.items[each.item_id].definition.identity,
        )
    ]
    start = {*actions, *below, *paths}
    near = list_neighbours(before, start) | list_neighbours(after, start)
    chosen = {
        name for name in near
        if (after if name in after else before).key(name).kind not in ("cluster", "log")
    }

    return make_picture(after, before=before, kept=chosen, actions=actions)
