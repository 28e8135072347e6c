"""Mutants that no test can kill, because nothing observable differs, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[str, str] = {
    "streams/checkpoint/targets.py:_bare.read: constant: 0 -> 1":
        "What a target of one word comes to is told by its kind: its number is never read.",
}
"""By their keys (:attr:`bench.mutants.Mutant.key`)."""
