"""The durable catalog: records, the log they are appended to, commits, leases, intents.

What is committed here is in force; nothing in this package touches Spark's catalog or a row.
Of a shard it writes only the mark that says whose it is.
"""
