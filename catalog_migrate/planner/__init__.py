"""Decides what a migration is. Pure: data in, data out.

``baseline`` is what the release is compared with, ``diff`` what changed and ``contents`` where the
rows of each table come from; ``policy_evaluation`` says which losses are decided. ``planning``
calls them and ``assembly`` makes the ``plan`` of it, with its ``program``; ``plan_validation`` and
``missing_data`` add what was seen outside. ``earlier_state`` and ``rollback`` plan the way back,
``column_ids`` says which column is which, ``record_format`` which records the commit needs,
``planfile`` writes, hashes and checks plan files.
"""
