"""Users' views and SQL functions over what a release ships: found, bound, judged, repaired.

``settings`` says which of them are looked at, ``finding`` lists what the catalog has and finds what
reads ours. ``examination`` has Spark analyse each on the shapes before and after a migration (those
of ours are ``surface``), ``judgement`` says what becomes of it, ``meaning`` whether it means the
same, ``repair`` which text binds again. ``records`` keeps that in the catalog and looks again
behind the change. Nothing of a user is created, replaced or dropped here without being asked for.
"""
