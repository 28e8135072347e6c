"""What an alteration breaks, and what was sick before it.

An alteration is judged by what fails validation because of it. A finding that the old definition
has too, for the same cause, has nothing to do with it: its query is *sick before*, which neither
refuses the alteration nor takes it back. Where the old definition cannot be probed any more
(the broker has moved, the password was rotated at the server already), a query counts as sick that
was failing for that cause when the alteration was requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.findings import code_of
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import names_upstream
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import probe_connections, refusal, validate

Refusals = Mapping[str, CatalogMigrateError]
"""What the engine refused to plan, by item id."""

_TOOK = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds)\b")
"""Times in what a client reports, another one with each try."""


def sick_notice(finding: object) -> str:
    """Return what to say of one that was sick before."""
    return f"sick before, and not waited for: {finding}"


def judge(
    before: State, after: State, target: str, dependents: Sequence[str], *, ports: Ports,
    find_failing: Callable[[], Mapping[str, str]],
    plan: Callable[[State, Sequence[str]], Refusals] = lambda _state, _items: {},
) -> tuple[Finding, ...]:
    """Validate ``target`` and its dependents under the new definition, and compare what fails with
    the old one: what the alteration breaks is an error, what was sick before it a warning.

    ``find_failing`` gives the errors of queries that fail now, by item id; ``plan`` what the engine
    refuses to plan of a state. The old definition is probed only for what fails.
    """
    found = validate(after, target, dependents, ports=ports)
    named = {each.item_id for each in found if not each.ok}
    refusals = {
        item_id: error for item_id, error in plan(after, dependents).items()
        if item_id not in named
    }
    found += _findings_of(after, refusals)
    bad = [each for each in found if not each.ok]
    connections = {each.item_id for each in found if not is_of_query(after, each)}
    if not bad or (connections and connections <= named):
        # where nothing answers under the new definition, nothing is known of it
        return tuple(found)
    queries = sorted({each.item_id for each in bad if is_of_query(after, each)})
    old = validate(before, target, queries, ports=ports)
    old += _findings_of(before, plan(before, sorted(refusals)) if refusals else {})
    stood = {_cause(each) for each in old if not each.ok}
    unreachable = _unreachable(before, queries, ports)
    errors = find_failing() if unreachable else {}

    def is_sick(finding: Finding) -> bool:
        if _cause(finding) in stood:
            return True
        item_id = finding.item_id
        return item_id in unreachable and _is_of_finding(
            errors.get(item_id, ""), finding, names_upstream(after, item_id)
        )

    return tuple(
        msgspec.structs.replace(each, severity="warning") if not each.ok and is_sick(each) else each
        for each in found
    )


def find_refusals(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return what refuses a statement."""
    return tuple(each for each in findings if each.severity == "error")


def sick(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return what was sick before an alteration."""
    return tuple(each for each in findings if each.severity == "warning")


def is_of_query(state: State, finding: Finding) -> bool:
    """Return whether a finding is of a source or a sink, not of a connection."""
    return dependencies.is_query(state.items[finding.item_id])


def is_same_failure(error: str, earlier: str) -> bool:
    """Return whether a query fails of what it failed of earlier; times in both may differ."""
    return _without_times(error) == _without_times(earlier)


def pause_remedy(state: State, refusing: Iterable[Finding]) -> str:
    """What to do about what refuses an alteration; queries that need not follow may be paused."""
    remedy = "fix what is named"
    names = {
        each.item_id: f"PAUSE {state.items[each.item_id].definition.kind.upper()}"
        f" {dependencies.display(state, each.item_id)}"
        for each in refusing if is_of_query(state, each)
    }
    if names:
        remedy += f", or run it without them: {'; '.join(names.values())}; then the statement again"
    return remedy


def _findings_of(state: State, refusals: Refusals) -> list[Finding]:
    return [refusal(state, item_id, error) for item_id, error in sorted(refusals.items())]


def _cause(finding: Finding) -> tuple[str, str | None, str]:
    return finding.item_id, finding.option, _without_times(finding.message)


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
        each.item_id for each in probe_connections(
            before, sorted({used for all_used in uses.values() for used in all_used}), ports=ports
        ) if not each.ok
    }
    return {item_id for item_id, used in uses.items() if down.intersection(used)}


def _is_of_finding(error: str, finding: Finding, names: Iterable[str]) -> bool:
    """Whether a query's error and a finding name the same object upstream, and the same to be wrong
    with it."""
    if error and finding.message in error:
        return True
    code = finding.code if finding.code in (MISSING, FORBIDDEN) else code_of(finding.message)
    return code != "" and code == code_of(error) and any(
        _has_name(finding.message, name) and _has_name(error, name) for name in names
    )


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None
