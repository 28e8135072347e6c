"""Unsafe operations: the last resort when the upstream of a stream changed under it.

Read in this order: ``forecast`` (what a choice of positions doubles, skips and loses; pure),
``requests`` (a statement as a value bound to what it was planned on), ``positions`` (the position
of a query, and the one that a request chooses), ``planning`` (the dry run) and ``render`` (it as
text), ``operation_row`` (what must be said before anything is done, and what is on record) and
``operation`` (executes it, exactly once), ``restore`` (undo, with its table), ``backfill`` (what
was skipped), ``audit`` (counts), ``positions_file`` (positions as a file), ``client`` (asks for an
operation and waits for it).
"""
