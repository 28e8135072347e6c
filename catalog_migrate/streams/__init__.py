"""Streaming queries of sources and sinks: how they are declared, run, moved and watched.

``checkpoint`` is the only code that touches a Structured Streaming checkpoint.
"""
