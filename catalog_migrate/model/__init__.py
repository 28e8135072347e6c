"""Values, the dependency graph and fingerprints: pure, no I/O, no clock, no Spark, no Delta."""
