"""The version of this tool; the one place that the package metadata and every report read."""

__version__ = "0.1.0"
