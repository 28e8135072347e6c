"""Streaming queries of sources and sinks: how they are declared, run, moved and watched.

Statements (pure): ``plans``, by it ``declare`` and ``alter``; ``bundled_streams`` of a release;
    what each kind takes is in ``accepted``, what was stored before an option in
    ``earlier_options``; what a statement does to the catalog in ``effects``, what hangs on what in
    ``dependencies``.
Carrying them out: ``execute``, ``unsafe_client`` (asks for an unsafe operation).
Operations on running queries: ``operations``, ``operation_records``, ``trial`` (an ALTER),
    ``judgement`` (what it breaks, and what was sick before).
The runtime: ``runtime``, ``supervisor``, ``takeover`` (of an earlier one), ``specs`` (what a query
    is started from), ``probes`` (whether it would work), ``starts`` (how many at once),
    ``failures`` (what becomes a hold).
Tables that migrate under their queries: ``migrations``, ``following``.
Ports: ``ports`` has all; ``queries`` (the engine), ``upstream`` (Kafka), ``databases``
    (PostgreSQL), ``tables`` (Delta).
Sources on PostgreSQL: ``upstream_tables``, ``table_snapshots``, ``slots``, ``surveys`` (what is on
    record of the upstream), ``validation`` (VALIDATE SOURCE).
Values: ``exact_values`` (as they were written).
Schema registries: ``schemas``, ``avro``, ``protobuf``.
What people see: ``show``, ``status`` (the cluster's log, holds), ``log_entries``, ``lag``,
    ``health``, ``examination`` (for ``doctor``), ``errors``; over HTTP ``http_endpoint``, by it
    ``observation`` and ``exposition``.
``checkpoint`` is the only code that touches a Structured Streaming checkpoint, ``spark`` the only
    one that runs a query; ``unsafe`` moves positions.
"""
