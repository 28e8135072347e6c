"""Connections: which options each type has, what they resolve to, and whether they work.

``kinds`` are the tables (the documentation and the test matrix come from them), ``values`` the
forms of single values, ``options`` the one validator, ``secrets`` references and what they lead
to, ``resolved`` what they lead to as a client is given it, ``validation`` the real probes,
``client_options`` the names that Kafka's clients know, ``row_values`` errors without rows' values.
Each connector has a folder: ``kafka``, ``postgres``, ``files``, ``registry`` (of schemas), ``ssh``.
Which statement changes a connection, and what happens to its dependents, is not decided here.
"""
