"""Formats of records: Avro, Protobuf, and values kept as they were written."""
