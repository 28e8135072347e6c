"""The Spark implementation of the engine port. Importing this package imports no pyspark."""
