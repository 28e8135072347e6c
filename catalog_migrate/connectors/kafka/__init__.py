"""Kafka: options, clients, probes."""
