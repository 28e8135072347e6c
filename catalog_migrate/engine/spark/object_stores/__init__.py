"""Spark on object stores: its settings and jars, and whether its commits are safe there.

``catalogmigrate`` has the Java that Spark is given, ``catalog-migrate-spark.jar`` is built of it by
``make java``.
"""
