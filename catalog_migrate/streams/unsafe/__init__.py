"""Unsafe operations: the last resort when the upstream of a stream changed under it.

Read in this order: ``forecast`` (what a choice of positions doubles, skips and loses; pure),
``requests`` (a statement as a value bound to what it was planned on), ``positions`` (where a query
stands and where a request puts it), ``planning`` (the dry run) and ``render`` (it as text),
``operation_row`` (what must be said before anything is done, and what is on record) and
``operation`` (carrying it out, exactly once), ``restore`` (taking it back, with its table),
``backfill`` (what was skipped), ``audit`` (counts), ``positions_file`` (positions as a file);
``streams/unsafe_client.py`` (the side that asks).
"""
