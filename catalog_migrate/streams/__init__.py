"""Streaming queries of sources and sinks: how they are declared, run, moved and watched.

Statements (pure): ``plans``, by it ``declare`` and ``alter``; ``bundled_streams`` of a release;
    what each does to the catalog is in ``effects``, what hangs on what in ``dependencies``.
Carrying them out: ``execute``, ``unsafe_client`` (asks for an unsafe operation).
Operations on running queries: ``operations``, ``operation_records``, ``trial`` (an ALTER).
The runtime: ``runtime``, ``supervisor``, ``takeover`` (of an earlier one), ``specs`` (what a query
    is started from), ``probes`` (whether it would work).
Tables that migrate under their queries: ``migrations``, ``following``.
Ports: ``ports`` has all; ``queries`` (the engine), ``upstream`` (Kafka), ``databases``
    (PostgreSQL), ``tables`` (Delta).
Sources on PostgreSQL: ``upstream_tables``, ``table_snapshots``, ``slots``.
Schema registries: ``schemas``, ``avro``, ``protobuf``.
What people see: ``show``, ``status`` (the cluster's log, holds), ``errors``.
``checkpoint`` is the only code that touches a Structured Streaming checkpoint, ``spark`` the only
    one that runs a query; ``unsafe`` moves positions.
"""
