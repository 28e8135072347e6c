"""Prepares, commits and drives the world to what is committed.

``prepare`` builds beside the old state and ``copy_rows`` fills what it builds, ``commit`` turns a
prepared migration into one compare-and-set, ``cleanup`` undoes attempts that died, ``reconcile``
compares the committed state with the world and repairs the difference. Plans are decided elsewhere;
Spark and Delta are reached through the engine port only.
"""
