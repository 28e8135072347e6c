"""Delta's log: what stands in it, and commits that are put where none is. No Spark, no catalog.

Nothing outside knows how a log names its files or what a commit looks like.
"""
