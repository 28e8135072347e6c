"""Users' views and SQL functions over what a release ships: found, bound, judged, repaired.

``settings`` says which of them are looked at, ``finding`` lists what the catalog has and finds what
reads ours, ``judgement`` says what becomes of each. Nothing of a user is created, replaced or
dropped here without being asked for.
"""
