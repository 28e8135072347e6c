"""What streams reach outside: options of each kind of server, what they lead to, whether it works.

``base`` says what a connector is and finds one by its name. Each of ours has a folder: ``kafka``,
``postgres``, ``files``, ``registry`` (of schemas), ``ssh``; its ``connector`` is the object,
``options`` what its items take. ``sections`` and ``values`` are what tables of options are made of
(the documentation and the test matrix come from them), ``common_options`` those of several
connectors, ``options`` the one validator. ``secrets`` are references and what they lead to,
``resolved`` options with their secrets, ``query`` what a query is started from, ``positions`` how
the offset log holds where it is, ``validation`` asks servers, ``findings`` are their answers,
``row_values`` errors without rows' values. Which statement changes a connection, and what happens
to its dependents, is not decided here.
"""
