"""Directories of files."""
