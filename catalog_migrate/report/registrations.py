"""Drift as a report: each name that is not what is committed, ours or not, and its repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from catalog_migrate.api.registrations import Comparison
from catalog_migrate.migrations.actions import Drift
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.steps import describe_interruption, interruptions, number_steps
from catalog_migrate.report.facts import list_facts, schema_of
from catalog_migrate.report.pictures import list_neighbours, make_picture
from catalog_migrate.report.program import describe_absences, list_waves
from catalog_migrate.report.report import (
    Decision,
    Entry,
    Picture,
    Report,
    ReportObject,
    Section,
    cut_section,
    find_sign,
    make_visible,
)
from catalog_migrate.report.verdict import Verdict

_SHOWN = 50
_ACTIONS = {"missing": "create", "different": "redefine", "leftover": "drop"}
_WITH_KIND = ("function", "type")
_OURS = "names that are not ours are left alone"


def report_drift(
    found: Comparison | None, *, catalog: str | None = None, at: datetime | None = None
) -> Report:
    """Make the report of a comparison; None is one without names that outlive the session."""
    verdict = _judge(found)
    objects = () if found is None else _objects(found)
    sections = () if found is None else tuple(_sections(found))
    return make_visible(Report(
        title=f"Drift: {verdict.word}",
        verdict=verdict,
        route="names in Spark's catalog, compared with what is committed",
        header=tuple(list_facts(None if found is None else found.state, catalog=catalog, at=at)),
        sections=tuple(each for each in sections if each.entries or each.note),
        objects=objects,
        decisions=() if found is None else tuple(
            Decision(_name(each), "", each.reason, each.remedy, "remedy")
            for each in found.left if each.kind == "foreign"
        ),
        waves=() if found is None else list_waves(found.steps),
        picture=Picture() if found is None else _picture(found, objects),
    ))


def _judge(found: Comparison | None) -> Verdict:
    word = "NOTHING TO DO"
    if found is None:
        return Verdict("nothing", word, f"{word}: no names outlive the session: nothing can drift")
    if not found.found:
        return Verdict("nothing", word, f"{word}: no drift: every name is what is committed")
    if found.executed or found.repaired:
        word = "REPAIRED"
        line = f"{word}: in {counted(found.repaired, 'step')}; {len(found.left):,} left"
        return Verdict("losses" if found.left else "safe", word, line)
    word = "DRIFT"
    number = Counter[str](each.kind for each in found.found)
    kinds: tuple[tuple[Literal["missing", "different", "leftover", "foreign"], str], ...] = (
        ("missing", "missing"), ("different", "different"), ("leftover", "left over"),
        ("foreign", "not ours"),
    )
    counts = ", ".join(f"{number[kind]:,} {words}" for kind, words in kinds if number[kind])
    verb = "differs" if len(found.found) == 1 else "differ"
    line = f"{word}: {counted(len(found.found), 'name')} {verb}: {counts}"
    return Verdict("decisions" if found.steps else "blocked", word, line)


def _sections(found: Comparison) -> Iterator[Section]:
    ours = [each for each in found.found if each.kind != "foreign"]
    repaired = bool(found.executed or found.repaired)
    yield cut_section(
        "What differed" if repaired else "What differs", list(map(_entry, ours)), _SHOWN,
        part="objects",
    )
    yield cut_section(
        "What is not ours", [
            Entry(f"{each.name}: {each.reason}", "!", (f"remedy: {each.remedy}",))
            for each in found.found if each.kind == "foreign"
        ], _SHOWN, None if len(ours) == len(found.found) else "No repair touches these.",
        "decisions",
    )
    shown = tuple(Entry(line, sign) for sign, line in number_steps(found.steps, _SHOWN))
    yield Section(
        "Steps that were taken" if repaired else "Steps, in this order", shown,
        more=len(found.steps) - len(shown), part="steps",
    )
    absent = [
        Entry(f"{name}: {describe_interruption(number, back)}", "-")
        for name, number, back in interruptions(found.steps)
    ]
    yield cut_section("Which names are absent", absent, _SHOWN)
    if found.found and not repaired and found.steps:
        yield Section("Next", note=f"catalog-migrate drift --repair ({_OURS}).")


def _entry(each: Drift) -> Entry:
    sign = find_sign(_ACTIONS[each.kind])
    return Entry(f"{each.name} ({each.object}) {each.kind}: {each.reason}", sign)


def _name(each: Drift) -> str:
    """The name as steps and graphs have it: with the kind where that does not follow."""
    return f"{each.object}:{each.name}" if each.object in _WITH_KIND else each.name


def _objects(found: Comparison) -> tuple[ReportObject, ...]:
    absent = describe_absences(found.steps)
    listed = [
        ReportObject(
            name, each.object, schema_of(name), _ACTIONS.get(each.kind, "unchanged"),
            "blocked" if each.kind == "foreign" else "absent" if name in absent else "",
            because=(name,), absent=absent.get(name, ""),
            notes=(f"{each.kind}: {each.reason}", f"remedy: {each.remedy}"),
        )
        for each in found.found for name in (_name(each),)
    ]
    named = {each.name for each in listed}
    return (*listed, *(
        ReportObject(
            step.name, step.kind, schema_of(step.name),
            "drop" if step.symbol == "-" else "redefine", absent=absent.get(step.name, ""),
        )
        for step in {step.name: step for step in found.steps}.values() if step.name not in named
    ))


def _picture(found: Comparison, objects: Sequence[ReportObject]) -> Picture:
    """The names that differ, with one hop round them in what is committed."""
    if found.state is None:
        return Picture()
    graph = found.state.graph
    acted = {each.name: each.action for each in objects}
    actions = {
        name: action for name in graph
        for action in (acted.get(str(graph.key(name))),) if action is not None
    }
    chosen = {
        name for name in list_neighbours(graph, actions)
        if name in actions or graph.key(name).kind not in ("cluster", "log")
    }
    return make_picture(graph, kept=chosen, actions=actions)
