"""Unsafe operations: the last resort when the upstream of a stream changed under it.

A statement becomes a ``Request``, what was found for it an ``UnsafePlan`` with an item for each of
its parts, what is written an ``UnsafeCommit`` with a move for each, on record as an ``UnsafeAct``;
the client returns an ``Outcome``, and the checkpoint gets an ``Edit``.

Read in this order: ``requests`` (a statement as a value bound to what it was planned on), ``plan``
(a plan as value and file), ``forecast`` (what a choice of positions doubles, skips and loses;
pure), ``positions`` (a survey: the position of a query, and the one that a request chooses),
``planning`` (the dry run) and ``render`` (it as text), ``operation_row`` (what must be given before
anything is done, and its first row) and ``operation`` (executes it, exactly once), ``restore``
(undo, with its table), ``backfill`` (what was skipped), ``audit`` (counts), ``positions_file``
(positions as a file), ``client`` (requests an operation and waits for it). What a record holds is
in ``streams/catalog/operation_records.py``.
"""
