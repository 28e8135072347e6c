"""The one language front end: a lexer, a cursor, and two grammars on them.

``tokens`` is the lexer, ``cursor`` walks over one statement and turns what it refuses into errors
with their places. ``release_dialect`` reads what a release declares; ``parser`` and ``clauses``
read what an operator writes (``statements`` are its values, ``printer`` the way back).
``references`` finds the names in a query and ``substitution`` puts others in their place, ``stars``
the columns in that of a ``*`` (``qualified`` knows how that was written before), ``grammar`` tells
whether Spark could parse it. Pure: no I/O, no Spark, no catalog, and no knowledge
of which options a connector has.
"""
