"""Unsafe operations: the last resort when the upstream of a stream changed under it.

Read in this order: ``forecast`` (what a choice of positions doubles, skips and loses; pure),
``requests`` (a statement as a value bound to what it was planned on), ``planning`` (the dry run),
``rows`` (what must be said before anything is done, and what is on record) and ``operation``
(carrying it out, exactly once), ``client`` (whoever asks), ``restore`` (taking it back, with its
table), ``backfill`` (what was skipped), ``audit`` (counts).
"""
