"""Connections: which options each type has, what they resolve to, and whether they work.

``kinds`` are the tables (the documentation and the test matrix come from them), ``values`` the
forms of single values, ``options`` the one validator, ``secrets`` references and what they lead
to, ``clients`` what each client library wants to be given, ``tunnels`` where a client connects when
the server stands behind SSH, ``validation`` the real probes, ``offset_ranges`` parts of a topic,
``client_options`` the names that Kafka's clients know, ``row_values`` errors without rows' values.
Which statement changes a connection, and what happens to its dependents, is not decided here.
"""
