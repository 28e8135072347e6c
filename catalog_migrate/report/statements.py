"""EXPLAIN of a statement as a report: who restarts and why, and what validation says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import find_effects
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.names import Identity
from catalog_migrate.model.wording import counted, list_first
from catalog_migrate.operations.steps import describe_interruption, interruptions, number_steps
from catalog_migrate.report.differences import compare_lines
from catalog_migrate.report.facts import list_facts
from catalog_migrate.report.options import list_options
from catalog_migrate.report.pictures import list_neighbours, make_picture
from catalog_migrate.report.program import list_waves
from catalog_migrate.report.report import (
    OWN_CHANGE,
    Decision,
    Difference,
    Entry,
    Picture,
    Report,
    ReportObject,
    Section,
    cut_section,
    find_sign,
    make_visible,
)
from catalog_migrate.report.unsafe import report_unsafe, show_definition
from catalog_migrate.report.verdict import Verdict
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import KINDS
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.explanation import (
    Explanation,
    list_changed_items,
    write_definition,
)
from catalog_migrate.streams.runtime.judgement import is_of_query, pause_remedy

_WORDS = {"create": "is new", "drop": "goes", "update": "changes"}
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
    waves = list_waves(found.program)
    report = Report(
        title=f"{_title(found)}: {verdict.word}",
        verdict=verdict,
        route="what the statement would do; nothing was done",
        header=tuple(list_facts(found.before, catalog=catalog, at=at)),
        decisions=tuple(_decisions(found)),
        waves=waves,
    )
    if found.effect is not None and found.effect.updates:
        case = _Case.of(found, found.effect)
        picture = _picture(case)
        report = msgspec.structs.replace(
            report, objects=_objects(case, picture), picture=picture,
            sections=tuple(
                each for each in _sections(case, len(waves)) if each.entries or each.note
            ),
        )
    return make_visible(report)


class _Case(NamedTuple):
    """An explanation of a statement that changes something, with what several parts need.

    By item id ``actions`` says what happens, the most first, and ``paths`` leads from what is
    altered to each query below it.
    """

    found: Explanation
    effect: Effect
    actions: dict[str, str]
    paths: dict[str, tuple[Identity, ...]]

    @classmethod
    def of(cls, found: Explanation, effect: Effect) -> _Case:
        """Make it, walking each graph once."""
        before, after = found.before.items, found.after.items
        actions = dict.fromkeys(effect.removed, "drop")
        for collection, key in find_effects(found.before, effect.updates):
            item_id = key.partition("/")[0] if collection == "hold" else key
            if collection not in ("item", "hold") or item_id in actions:
                continue
            actions[item_id] = (
                "drop" if item_id not in after else "create" if item_id not in before else "update"
            )
        paths = {}
        if effect.alteration is not None:
            roots = frozenset((effect.alteration.after.identity,))
            for query in effect.restarts:
                node = after[query.item_id].definition.identity
                paths[query.item_id] = found.after.graph.because(roots, node)
        for query in sorted(effect.restarts, key=lambda query: not query.restarts):
            actions.setdefault(query.item_id, "restart" if query.restarts else "unchanged")
        return cls(found, effect, actions, paths)

    def home(self, item_id: str) -> State:
        """Return the state that has an item: the one afterwards, but for what goes."""
        return self.found.after if item_id in self.found.after.items else self.found.before

    def name(self, item_id: str) -> str:
        """Return the name as graphs and steps have it."""
        return str(self.home(item_id).items[item_id].definition.key)

    def text(self, item_id: str) -> str:
        """``source shop.orders``."""
        return dependencies.by_id(self.home(item_id), item_id).text

    def path(self, item_id: str) -> tuple[str, ...]:
        """From what is altered to a query, by name."""
        graph = self.found.after.graph
        return tuple(str(graph.key(each)) for each in self.paths.get(item_id, ()))


def _title(found: Explanation) -> str:
    """The statement without what is in parentheses and strings."""
    return f"EXPLAIN {_ARGUMENTS.sub('', render(found.statement))}"


def _judge(found: Explanation) -> Verdict:
    """Say in a word what a statement comes to, refusals first."""
    effect = found.effect
    if effect is None:
        return Verdict("nothing", "CHANGES NOTHING", f"CHANGES NOTHING: {found.reads}")
    if not effect.updates:
        said = "; ".join(effect.notices) or "nothing changes, nothing restarts"
        return Verdict("nothing", "NOTHING TO DO", f"NOTHING TO DO: {said}")
    if found.refusing:
        word = "REFUSED BY VALIDATION"
        line = (
            f"{word}: {_count_items(found.refusing):,} of"
            f" {counted(_count_items(found.findings), 'object')} would not work, as seen from this"
            " process; nothing would be changed and nothing stopped"
        )
        return Verdict("blocked", word, line)
    word, line = _describe_outcome(effect)
    if effect.validate is False:
        return Verdict("unproven", word, f"{line}; not validated, the statement says so")
    late = _count_items([each for each in found.findings if each.unresolved and not each.ok])
    if late:
        line += f"; {counted(late, 'object')} could not be validated from here"
        return Verdict("unproven", word, line)
    if found.sick:
        line += f"; {counted(_count_items(found.sick), 'object')} did not work before either"
    return Verdict("losses" if effect.removed else "safe", word, line)


def _count_items(findings: Iterable[Finding]) -> int:
    return len({each.item_id for each in findings})


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


def _sections(case: _Case, waves: int) -> Iterator[Section]:
    yield _obstacles(case.found)
    yield _notices(case)
    yield _changes(case)
    yield _restarts(case)
    yield _steps(case, waves)
    yield _stops(case.found)
    yield _validation(case)
    for item_id in list_changed_items(case.effect):
        yield show_definition(case.text(item_id), write_definition(case.found.after, item_id))


def _notices(case: _Case) -> Section:
    """What is to be known; what goes with a DROP is listed as what changes."""
    going = {f"{case.text(each)} is dropped with it" for each in case.effect.removed}
    kept = (each for each in case.effect.notices if each not in going)
    return Section("To know", tuple(map(Entry, kept)))


def _obstacles(found: Explanation) -> Section:
    """What refuses it, and how it goes without the queries of it."""
    entries = [
        Entry(each.text, "!", (f"remedy: {each.remedy}",) if each.remedy else ())
        for each in found.refusing
    ]
    note = None
    if _pausable(found):
        remedy = pause_remedy(found.after, found.refusing)
        note = f"{remedy[0].upper()}{remedy[1:]}."
    return cut_section("What is in the way", entries, _SHOWN, note, "decisions")


def _pausable(found: Explanation) -> list[str]:
    """The ids of the queries that alone refuse an alteration, which goes through while they are
    paused."""
    altered = found.effect is not None and found.effect.alteration is not None
    if not altered or not all(is_of_query(found.after, each) for each in found.refusing):
        return []
    return list(dict.fromkeys(each.item_id for each in found.refusing))


def _decisions(found: Explanation) -> Iterator[Decision]:
    """What is to be done for each finding, and how it goes without the queries of them."""
    yield from map(_decision, found.refusing)
    for query in (dependencies.by_id(found.after, each) for each in _pausable(found)):
        yield Decision(
            query.text, "", "or go on without it: it starts on the new definition with RESUME",
            f"PAUSE {query.mapping.kind.upper()} {query.item.definition.item_name};", "write",
        )


def _decision(finding: Finding) -> Decision:
    return Decision(
        finding.subject, f"option {finding.option}" if finding.option else "",
        finding.message, finding.remedy or "", "remedy",
    )


def _changes(case: _Case) -> Section:
    entries = []
    for item_id, action in case.actions.items():
        if action not in _WORDS:
            continue
        lines = tuple(
            f"{each.aspect} {each.name}".rstrip() + _describe_change(each)
            for each in _differences(case, item_id)
            if action == "update" and each.aspect != "definition"
        )
        entries.append(
            Entry(f"{case.text(item_id)} {_WORDS[action]}", find_sign(action), lines)
        )
    return cut_section("What changes", entries, _SHOWN, part="objects")


def _describe_change(each: Difference) -> str:
    if each.before is None:
        return f" set to {each.after}"
    if each.after is None:
        return f" removed (was {each.before})"
    return f": {each.before} -> {each.after}"


def _restarts(case: _Case) -> Section:
    """Every query below what is altered: those that restart first."""
    effect = case.effect
    if effect.alteration is None:
        return Section("")
    ordered = sorted(effect.restarts, key=lambda each: not each.restarts)
    entries = []
    for each in ordered[:_SHOWN]:
        path = case.path(each.item_id)
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


def _steps(case: _Case, waves: int) -> Section:
    found, effect = case.found, case.effect
    title = "Steps, in this order"
    if found.program:
        steps = number_steps(found.program, _STEPS_SHOWN)
        entries = tuple(Entry(line, sign) for sign, line in steps)
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
    """Which queries are stopped, from which step to which."""
    stopped = [
        Entry(f"{name}: {describe_interruption(number, back, lasting='on')}", "-")
        for name, number, back in interruptions(found.program)
    ]
    return cut_section("What is stopped meanwhile", stopped, _SHOWN)


def _validation(case: _Case) -> Section:
    """What was tried: what does not work first."""
    found, effect = case.found, case.effect
    title = "Validation, from this process"
    if effect.validate is False:
        return Section(title, note="None: the statement says VALIDATE = false.")
    verdicts = found.findings
    if not verdicts:
        return Section(title)
    bad = sorted(
        (each for each in verdicts if not each.ok), key=lambda each: each in found.sick
    )
    entries = [
        Entry(
            ("sick before: " if each in found.sick else "") + each.text,
            "!" if each in found.refusing else "?",
            (f"remedy: {each.remedy}",) if each.remedy else (),
        )
        for each in bad[:_SHOWN]
    ]
    well = list(dict.fromkeys(each.subject for each in verdicts if each.ok))
    note = f"Nothing found: {', '.join(list_first(well, _SHOWN))}." if well else None
    return Section(title, tuple(entries), note, max(len(bad) - _SHOWN, 0))


# -- objects ---------------------------------------------------------------------------------------


def _objects(case: _Case, picture: Picture) -> tuple[ReportObject, ...]:
    """What changes, then what restarts, then what does not, then what is shown beside them."""
    decisions: dict[str, list[Decision]] = {}
    for finding in case.found.refusing:
        decisions.setdefault(finding.item_id, []).append(_decision(finding))
    notes = _notes(case)
    listed = []
    for item_id, action in case.actions.items():
        definition = case.home(item_id).items[item_id].definition
        differences = _differences(case, item_id) if action in _WORDS else ()
        listed.append(ReportObject(
            case.name(item_id), definition.kind, definition.schema or "", action,
            "blocked" if item_id in decisions else "", because=case.path(item_id),
            why=OWN_CHANGE if action == "update" and differences else "", differences=differences,
            decisions=tuple(decisions.get(item_id, ())), notes=tuple(notes[item_id]),
        ))
    names = {each.name for each in listed}
    beside = (node for node in picture.nodes if node.name not in names)
    return (
        *listed, *(ReportObject(node.name, node.kind, node.group, "unchanged") for node in beside)
    )


def _notes(case: _Case) -> dict[str, list[str]]:
    """Why each restarts, when it is stopped, and what its validation found."""
    found = case.found
    notes: dict[str, list[str]] = {item_id: [] for item_id in case.actions}
    for each in case.effect.restarts:
        notes[each.item_id] = [each.reason]
    stops = {
        name: f"stopped {describe_interruption(number, back, lasting='on')}"
        for name, number, back in interruptions(found.program)
    }
    for item_id in case.actions:
        notes[item_id] += filter(None, [stops.get(case.name(item_id))])
    for finding in found.findings:
        sick = "sick before: " if finding in found.sick else ""
        notes.setdefault(finding.item_id, []).append(f"validation: {sick}{finding.text}")
    return notes


def _cluster_of(state: State, item_id: str) -> str:
    return dependencies.display(state, state.items[item_id].links.get("cluster", ""))


def _differences(case: _Case, item_id: str) -> tuple[Difference, ...]:
    """What of an item differs, and the statements that would create it before and after."""
    states = (case.found.before, case.found.after)
    old, new = (
        state.items[item_id].definition if item_id in state.items else None for state in states
    )
    before, after = (
        write_definition(state, item_id) if item_id in state.items
        and state.items[item_id].definition.kind in KINDS.values() else None
        for state in states
    )
    found = list(list_options(old, new))
    if old is not None and new is not None and old.item_name != new.item_name:
        found.insert(0, Difference("name", "", str(old.item_name), str(new.item_name)))
    if before != after:
        lines = compare_lines(before, after)
        found.append(Difference("definition", "", before, after, lines))
    return tuple(found)


def _picture(case: _Case) -> Picture:
    """What changes and restarts, with one hop round it; sources and sinks are in their clusters."""
    before, after = case.found.before.graph, case.found.after.graph
    actions = {
        case.home(item_id).items[item_id].definition.identity: action
        for item_id, action in case.actions.items()
    }
    if any(
        item_id in case.found.before.items and name not in before
        for item_id, name in zip(case.actions, actions, strict=True)
    ):
        before = after  # a new name is not a new object
    start = set(actions).union(*case.paths.values())
    near = list_neighbours(before, start) | list_neighbours(after, start)
    chosen = {
        name for name in near if name in actions
        or (after if name in after else before).key(name).kind not in ("cluster", "log")
    }
    return make_picture(after, before=before, kept=chosen, actions=actions)
