"""Delta's protocol: the names, commits and forms of tables, and whatever writes to a log. No Spark.

Nothing outside this package knows the names in a log or the JSON of a commit. Tables lie at
addresses of :mod:`catalog_migrate.store`.
"""
