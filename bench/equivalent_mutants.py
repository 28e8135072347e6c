"""Mutants that no test can kill, because nothing observable differs, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[str, str] = {}
"""By their keys (:attr:`bench.mutants.Mutant.key`)."""
