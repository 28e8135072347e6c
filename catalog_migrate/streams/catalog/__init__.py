"""Connections, sources, sinks and clusters as the catalog has them.

``dependencies`` finds items and what depends on them, ``query_spec`` makes of a source or sink what
a query is started from, ``statement_changes`` what a statement writes, ``cluster_log`` reads and
writes the log of a cluster. Nothing here reaches a broker, a database or Spark.
"""
