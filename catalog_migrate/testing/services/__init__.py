"""Real services for tests and the demonstration: a Kafka broker and a PostgreSQL server.

Started as child processes on free ports of 127.0.0.1, and gone when the process that started them
is gone. Nothing of the product may import this package.
"""
