"""Validation of a connection with everything below it, and the probe of one query.

Validation runs before a commit, on definitions that may not be committed yet; a probe runs when a
query was started, because an idle sink on a dead broker makes progress and shows no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from catalog_migrate.catalog.state import State
from catalog_migrate.connections.secrets import Redactor
from catalog_migrate.errors import CatalogMigrateError, UnresolvedSecret, ValidationFailed
from catalog_migrate.streams import wiring
from catalog_migrate.streams.spark.columns import written_columns
from catalog_migrate.streams.specs import Resolve, resolve_secret, resolved_connection, spec_of
from catalog_migrate.streams.upstream import identify, require_same


@dataclass(frozen=True, slots=True)
class Verdict:
    """What validation says of one item; ``remedy`` is there when it is not ``ok``.

    ``unresolved``: a secret has no value in this process; in the runtime's it may have one.
    """

    item_id: str
    name: str
    ok: bool
    message: str
    remedy: str = ""
    option: str = ""
    unresolved: bool = False

    def __str__(self) -> str:
        where = f"{self.name}, option {self.option}" if self.option else self.name
        text = f"{where}: {self.message}"
        return f"{text} (remedy: {self.remedy})" if self.remedy and not self.ok else text


def validate(
    state: State, target: str, dependents: Sequence[str], warehouse: str, *,
    resolve: Resolve = resolve_secret, timeout: float = 10.0,
) -> list[Verdict]:
    """Probe the connections at and below ``target``, and each dependent's own access.

    Everything at once in threads; the answers in the order connections, then dependents. Names
    and options only, never a secret's value.
    """
    connections = [
        item_id for item_id, item in state.items.items()
        if item.definition.kind == "connection"
        and (item_id == target or target in wiring.effective(state, item_id).chain
             or target in wiring.effective(state, item_id).secrets.values())
    ]
    jobs = [
        *((_connection, item_id) for item_id in sorted(connections, key=lambda i: int(i[1:]))),
        *((_query, item_id) for item_id in dependents),
    ]
    if not jobs:
        return []
    with ThreadPoolExecutor(min(16, len(jobs)), thread_name_prefix="validate") as pool:
        answers = pool.map(
            lambda job: job[0](state, job[1], warehouse, resolve, timeout), jobs
        )
        return [verdict for answer in answers for verdict in answer]


def probe_query(
    state: State, item_id: str, warehouse: str, *, resolve: Resolve = resolve_secret,
    timeout: float = 10.0,
) -> Verdict:
    """Whether a query's own access works now: the first thing that does not, else all is well."""
    verdicts = _query(state, item_id, warehouse, resolve, timeout)
    return next((verdict for verdict in verdicts if not verdict.ok), verdicts[-1])


def require_valid(verdicts: Sequence[Verdict], what: str) -> None:
    """:class:`ValidationFailed` with all that is wrong."""
    bad = [verdict for verdict in verdicts if not verdict.ok]
    if bad:
        raise ValidationFailed(
            f"{what} was refused by validation, nothing was changed",
            verdicts=[str(verdict) for verdict in bad],
            remedy="mend what is named; where it cannot be reached from here, ALTER CONNECTION … "
            "WITH (VALIDATE = false) goes on without",
        )


def _connection(
    state: State, item_id: str, _: str, resolve: Resolve, timeout: float
) -> list[Verdict]:
    from catalog_migrate.connections.validation import validate_connection

    name = f"connection {wiring.display(state, item_id)}"
    try:
        resolved = resolved_connection(state, item_id, resolve=resolve)
    except CatalogMigrateError as error:
        return [_refusal(item_id, name, error)]
    connector = wiring.effective(state, item_id).connector
    redactor = Redactor.of(resolved)
    return [
        Verdict(
            item_id, name, finding.ok, redactor.scrub(finding.message),
            redactor.scrub(finding.remedy or ""), finding.option or "",
        )
        for finding in validate_connection(connector, resolved, timeout=timeout)
    ]


def _refusal(item_id: str, name: str, error: CatalogMigrateError) -> Verdict:
    return Verdict(
        item_id, name, False, error.message, error.remedy or "",
        unresolved=isinstance(error, UnresolvedSecret),
    )


def _query(
    state: State, item_id: str, warehouse: str, resolve: Resolve, timeout: float
) -> list[Verdict]:
    from catalog_migrate.connections.validation import validate_sink, validate_source

    item = state.items[item_id]
    name = f"{item.definition.kind} {item.definition.item_name}"
    try:
        spec = spec_of(state, item_id, warehouse, resolve=resolve)
    except CatalogMigrateError as error:
        return [_refusal(item_id, name, error)]
    redactor = Redactor.of(spec.connection)
    is_source = spec.kind == "source"
    check = validate_source if is_source else validate_sink
    columns = spec.columns if is_source else written_columns(spec)
    connector = spec.external.connector or ""
    verdicts = [
        Verdict(
            item_id, name, finding.ok, redactor.scrub(finding.message),
            redactor.scrub(finding.remedy or ""), finding.option or "",
        )
        for finding in check(
            connector, spec.connection, spec.external, columns, timeout=timeout
        )
    ]
    stream = state.streams.get(item_id)
    if stream is not None and stream.upstream and all(verdict.ok for verdict in verdicts):
        try:
            require_same(spec, stream, identify(spec))
        except CatalogMigrateError as error:
            verdicts.append(
                Verdict(item_id, name, False, redactor.scrub(error.message), error.remedy or "")
            )
    return verdicts or [Verdict(item_id, name, True, "there and accessible")]
