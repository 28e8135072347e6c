"""The world: Spark's names and Delta's shards, behind one port. Knows nothing of plans."""
