"""The systems that queries read from and write to: Kafka, PostgreSQL, schema registries."""
