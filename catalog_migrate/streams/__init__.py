"""Streaming queries of sources and sinks: how they are declared, run, moved and watched.

``catalog`` has what is on record, ``formats`` the formats of records, ``upstreams`` the systems
outside, ``checkpoint`` is the only code that touches a Structured Streaming checkpoint, ``spark``
the only one that runs a query. ``runtime`` drives the queries of a cluster, ``positions`` moves
them (unsafe operations), ``ddl`` has the statements.
"""
