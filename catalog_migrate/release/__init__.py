"""A release: what the software declares, read from SQL or a manifest, resolved and checked."""
