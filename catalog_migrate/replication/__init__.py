"""Reading the changes of PostgreSQL tables: positions, pgoutput, slots, snapshots.

``position`` is a place in a server's log, ``pgoutput`` the pure decoder of what the server sends,
``types`` PostgreSQL's types and ours, ``server`` what is asked of a real server, ``snapshot`` the
rows that stood before a slot. No module knows Spark: the stream reader is in
``catalog_migrate/streams/spark/postgres_changes.py``.
"""
