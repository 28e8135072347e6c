"""Delta's log: the names and actions of commits, and commits that are put where none is. No Spark.

The catalog's own log is read by ``catalog/delta_files.py``, which asks more of a commit.
"""
