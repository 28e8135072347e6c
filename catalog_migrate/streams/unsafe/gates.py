"""What must be open, said and confirmed before an unsafe operation begins: all of it at once."""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import UnsafeRefused
from catalog_migrate.streams import dependencies

KEY = "streams.enable_unsafe_ops"
"""The configuration of the runtime that opens the gate."""


def is_open(state: State, cluster: str) -> bool:
    """Whether the runtime of a cluster was last started with the gate open; no row is closed."""
    row = state.clusters.get(cluster)
    return row is not None and row.unsafe


def missing(
    state: State, cluster: str, *, reason: str | None, confirmed: bool, said: bool = True,
    kind: str = "source",
) -> tuple[str, ...]:
    """What is missing, in words. ``said``: the word UNSAFE, or the verb ``unsafe``, was given.

    ``kind`` is what the operation is on: its name is what is asked for.
    """
    found = []
    if not is_open(state, cluster):
        name = dependencies.display(state, cluster) if cluster else "of it"
        found.append(
            f"the gate of cluster {name} is closed: start its runtime with {KEY} = true "
            "(environment CATALOG_MIGRATE__STREAMS__ENABLE_UNSAFE_OPS=true)"
        )
    if not said:
        found.append(f"the word: UNSAFE after the name of the {kind}")
    if not (reason or "").strip():
        found.append("a reason: --reason TEXT, or REASON 'text'")
    if not confirmed:
        found.append(f"the confirmation: --yes, or the {kind}'s name typed on a terminal")
    return tuple(found)


def require(found: Iterable[str], what: str) -> None:
    """:class:`UnsafeRefused` when anything is missing."""
    listed = tuple(found)
    if listed:
        raise UnsafeRefused(
            f"{what} was refused, nothing was done", missing=listed,
            remedy="unsafe operations are the last resort; --plan (in SQL: EXPLAIN) shows what one "
            "would do and needs none of this",
        )
