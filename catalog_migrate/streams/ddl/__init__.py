"""Statements: CREATE, ALTER, SHOW, VALIDATE and EXPLAIN of connections, sources and sinks.

``create`` and ``alter`` plan (pure), ``plans`` finds the plan of a statement, ``execute`` executes
it, ``bundled_streams`` are those of a release.
"""
