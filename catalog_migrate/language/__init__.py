"""The statements an operator writes: secrets, connections, sources, sinks, clusters.

Text to frozen values (``parser``), values to text (``printer``), and whether a text is one of ours
(``recognition``). Pure: no catalog, no Spark, and no knowledge of which options a connector has;
that is decided in planning (seed 000). Releases are declared in the dialect of ``sql`` instead.
"""
