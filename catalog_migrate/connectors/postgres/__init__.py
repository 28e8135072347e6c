"""Reading the changes of PostgreSQL tables: positions, pgoutput, slots, snapshots.

``types`` are PostgreSQL's types and ours and a place in a server's log, ``pgoutput`` the pure
decoder of what the server sends, ``sessions`` how a server is talked to and what it refuses,
``server`` what is asked of a real one, ``preflight`` the checks before a source, ``snapshot`` the
rows that were there before a slot, ``moved_rows`` values that did not come with a key's change.
``survey`` is what a source depends on upstream, ``watch`` the look at it with every batch,
``drift`` what became of it; ``comparison`` and ``values`` compare a mirror with its tables. Of
what runs on Spark, ``changes`` is the stream reader and ``sink`` writes batches, beside ``ledger``.
"""
