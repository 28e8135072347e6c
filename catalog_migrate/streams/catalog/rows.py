"""Rows of a statement's answer."""

from __future__ import annotations

import msgspec


class Rows(msgspec.Struct, frozen=True):
    """A table for people and programs: ``values`` has one tuple a row."""

    columns: tuple[str, ...]
    values: tuple[tuple[object, ...], ...]
