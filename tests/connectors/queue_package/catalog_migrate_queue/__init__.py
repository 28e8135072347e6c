"""Queues in a directory, as a connector of catalog_migrate."""

from catalog_migrate_queue.connector import CONNECTOR

__all__ = ["CONNECTOR"]
