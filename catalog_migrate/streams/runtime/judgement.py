"""What an alteration breaks, and what was sick before it.

An alteration is judged by what fails validation because of it. A finding that the old definition
has too, for the same cause, has nothing to do with it: its query is *sick before*, which neither
refuses the alteration nor takes it back. Where the old definition cannot be asked any more
(the broker has moved, the password was rotated at the server already), a query counts as sick that
was failing for that cause when the alteration was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.findings import Finding
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import names_upstream
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import probe_connections, refusal, validate

Refusals = Mapping[str, CatalogMigrateError]
"""What the engine refused to plan, by item id."""

_TOOK = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds)\b")
"""Times in what a client reports, another one with each try."""

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(words, re.IGNORECASE)) for kind, words in (
        ("missing", r"there is no|not there|is gone|missing|does not exist|not present in metadata"
         r"|does not host this topic|unknown.?topic"),
        ("forbidden", r"may not|not authorized|permission denied|authorization"),
    )
)
"""What is wrong with an object upstream, in the words of the server or client that reports it."""


class Judgement(msgspec.Struct, frozen=True):
    """All verdicts under the new definition: those of ``broken`` are by the alteration, those of
    ``sick`` stood before it."""

    verdicts: tuple[Finding, ...] = ()
    broken: tuple[Finding, ...] = ()
    sick: tuple[Finding, ...] = ()

    @property
    def sick_queries(self) -> dict[str, str]:
        """The sources and sinks that were sick before, by item id, with the finding."""
        return {each.item_id: str(each) for each in reversed(self.sick) if each.is_query}

    @property
    def notices(self) -> tuple[str, ...]:
        """What to say of all that was sick before."""
        return tuple(map(sick_notice, map(str, self.sick)))


def sick_notice(finding: str) -> str:
    """What to say of one that was sick before."""
    return f"sick before, and not waited for: {finding}"


def judge(
    before: State, after: State, target: str, dependents: Sequence[str], *, ports: Ports,
    find_failing: Callable[[], Mapping[str, str]],
    plan: Callable[[State, Sequence[str]], Refusals] = lambda _state, _items: {},
) -> Judgement:
    """Validate ``target`` and its dependents under the new definition, and compare what fails with
    the old one.

    ``find_failing`` gives the errors of queries that fail now, by item id; ``plan`` what the engine
    refuses to plan of a state. The old definition is asked only about what fails.
    """
    verdicts = validate(after, target, dependents, ports=ports)
    named = {each.item_id for each in verdicts if not each.ok}
    refusals = {
        item_id: error for item_id, error in plan(after, dependents).items()
        if item_id not in named
    }
    verdicts += _verdicts_of(after, refusals)
    bad = [each for each in verdicts if not each.ok]
    if not bad:
        return Judgement(tuple(verdicts))
    connections = {each.item_id for each in verdicts if not each.is_query}
    if connections and connections <= named:
        # nothing answers under the new definition, so nothing is known of it
        return Judgement(tuple(verdicts), tuple(bad))
    queries = sorted({each.item_id for each in bad if each.is_query})
    old = validate(before, target, queries, ports=ports)
    old += _verdicts_of(before, plan(before, sorted(refusals)) if refusals else {})
    stood = {_cause(each) for each in old if not each.ok}
    unreachable = _unreachable(before, queries, ports)
    errors = find_failing() if unreachable else {}

    def is_sick(verdict: Finding) -> bool:
        if _cause(verdict) in stood:
            return True
        item_id = verdict.item_id
        return item_id in unreachable and _is_of_finding(
            errors.get(item_id, ""), verdict.message, names_upstream(after, item_id)
        )

    sick = [each for each in bad if is_sick(each)]
    return Judgement(
        tuple(verdicts), tuple(each for each in bad if each not in sick), tuple(sick)
    )


def is_same_failure(error: str, earlier: str) -> bool:
    """Whether a query fails of what it failed of earlier; times in both may differ."""
    return _without_times(error) == _without_times(earlier)


def pause_remedy(state: State, broken: Iterable[Finding]) -> str:
    """What to do about what refuses an alteration; queries that need not follow may be paused."""
    remedy = "fix what is named"
    names = {
        each.item_id: f"PAUSE {state.items[each.item_id].definition.kind.upper()}"
        f" {dependencies.display(state, each.item_id)}" for each in broken if each.is_query
    }
    if names:
        remedy += f", or run it without them: {'; '.join(names.values())}; then the statement again"
    return remedy


def _verdicts_of(state: State, refusals: Refusals) -> list[Finding]:
    return [refusal(state, item_id, error) for item_id, error in sorted(refusals.items())]


def _cause(verdict: Finding) -> tuple[str, str | None, str]:
    return verdict.item_id, verdict.option, _without_times(verdict.message)


def _without_times(text: str) -> str:
    return _TOOK.sub("…", text)


def _unreachable(before: State, queries: Iterable[str], ports: Ports) -> set[str]:
    """The queries whose connections do not answer as they were."""
    uses = {
        item_id: [
            used for used in before.items[item_id].links.values()
            if before.items[used].definition.kind == "connection"
        ] for item_id in queries
    }
    down = {
        verdict.item_id for verdict in probe_connections(
            before, sorted({used for all_used in uses.values() for used in all_used}), ports=ports
        ) if not verdict.ok
    }
    return {item_id for item_id, used in uses.items() if down.intersection(used)}


def _is_of_finding(error: str, finding: str, names: Iterable[str]) -> bool:
    """Whether a query's error and a finding name the same object upstream, and the same to be wrong
    with it."""
    kind = _kind(finding)
    if error and finding in error:
        return True
    return kind is not None and kind == _kind(error) and any(
        _has_name(finding, name) and _has_name(error, name) for name in names
    )


def _kind(text: str) -> str | None:
    return next((kind for kind, words in _KINDS if words.search(text)), None)


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None
