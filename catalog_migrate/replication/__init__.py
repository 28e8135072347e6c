"""Reading the changes of PostgreSQL tables: positions, pgoutput, slots, snapshots.

``types`` are PostgreSQL's types and ours and a place in a server's log, ``pgoutput`` the pure
decoder of what the server sends, ``sessions`` how a server is talked to and what it refuses,
``server`` what is asked of a real one, ``snapshot`` the rows that stood before a slot. No
module knows Spark: the stream reader is in ``catalog_migrate/streams/spark/postgres_changes.py``.
"""
