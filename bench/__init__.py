"""The figures of docs/benchmarks.md: ``python -m bench`` measures them and writes the page."""
