"""Values of records, kept as they were written."""
