"""Mutants that no test can kill, because nothing observable differs, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

_FROZEN = "Nothing sets a field of it, which mypy holds; nor is it a key."

EQUIVALENT: Mapping[str, str] = {
    "catalog/commits.py:commit_onto.attempt: +/-: before.version + 1 -> before.version - 1":
        "The state that is kept and returned gets the version that the log gave; no check reads"
        " it.",
    "catalog/delta_log.py:DeltaLog._outcome: no statement: self._table = None":
        "A table that was read before the failure is brought to the version asked for as any"
        " other.",
    "catalog/lease.py:Confirm: constant: True -> False": _FROZEN,
    "catalog/records.py:AllocatorRecord: constant: True -> False": _FROZEN,
    "catalog/records.py:ShardRecord: constant: True -> False": _FROZEN,
    "planner/earlier_state.py:_Walk._columns_in: constant: True -> False":
        "A table has as many ids as columns, which every commit is checked for.",
    "planner/planning.py:_Decided: constant: True -> False": _FROZEN,
    "planner/program.py:program: arguments: _seal_steps(changed, targets, old, drops)"
    " -> _seal_steps(targets, changed, old, drops)":
        "Only what changes is copied, and a name that is dropped is that of no table that stays as"
        " it is.",
    "planner/rollback.py:GoingBack: constant: True -> False": _FROZEN,
    "streams/checkpoint/targets.py:_bare.read: constant: 0 -> 1":
        "What a target of one word comes to is told by its kind: its number is never read.",
}
"""By their keys (:attr:`bench.mutants.Mutant.key`)."""
