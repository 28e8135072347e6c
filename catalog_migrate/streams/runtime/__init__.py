"""The runtime of a cluster: starts, watches and stops its queries, and executes operations.

``runtime`` is the process, ``supervisor`` its queries, ``alter_operation`` an ALTER under running
queries, ``fencing`` refuses what an earlier runtime still runs, ``shard_handover`` follows tables
that a migration replaced, ``client`` is the side that asks for an operation and waits.
``http_endpoint`` shows health and metrics.
"""
