"""Whether a connection, a source or a sink would work: real questions to real servers, in time.

Nothing is written anywhere. Every failure says which option is at fault and what to do; what
works is a finding too. The process that will run the queries should ask: another one may see other
networks and other secrets.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog_migrate.connectors.base import find_connector
from catalog_migrate.connectors.options import section_of
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import Finding, findings_of
from catalog_migrate.model.objects import Column, External
from catalog_migrate.sql.statements import QueryKind


def validate_connection(
    connector: str, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0,
) -> tuple[Finding, ...]:
    """Ask what a connection's effective, resolved options lead to, in ``timeout`` plus 3 seconds.

    ``subject`` names it in the findings (``connection public.c``).
    """
    try:
        return find_connector(connector).check(resolved, subject=subject, timeout=timeout)
    except ConnectionFailed as error:
        return findings_of(error, subject)


def validate_query(
    connector: str, kind: QueryKind, resolved: Resolved, external: External,
    columns: Sequence[Column] = (), *, subject: str | None = None, timeout: float = 10.0,
) -> tuple[Finding, ...]:
    """Ask whether the own access of a source or sink works; ``columns`` are those that a sink
    writes."""
    subject = kind if subject is None else subject
    section_of(connector, kind, where=subject)
    found = find_connector(connector)
    side = found.source if kind == "source" else found.sink
    assert side is not None  # it has a section
    try:
        return side.check(resolved, external, columns, subject=subject, timeout=timeout)
    except ConnectionFailed as error:
        return findings_of(error, subject)
