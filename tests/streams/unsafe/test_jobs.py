"""Whom an operation concerns: everything below a source, and how each takes doubled records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.positions.plan import Job
from catalog_migrate.streams.positions.planning import dependent_jobs
from tests.decisions import Changes

if TYPE_CHECKING:
    from catalog_migrate.catalog.memory_log import MemoryLog

SETTING = """
CREATE CLUSTER main;
CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');
CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE SOURCE other (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 'u') FORMAT JSON;
CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) FORMAT JSON;
CREATE SINK p IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'q') FORMAT JSON
"""


def test_how_each_takes_it(log: MemoryLog, do: Callable[[str], Any]) -> None:
    """With KEY absorbed, without it seen again; a derived table may count twice, and what
    reads that is concerned too. What reads another source is not listed."""
    do(SETTING)
    state = read_state(log)
    source = dependencies.find(state, "source", "s")
    made = source.item.definition
    changes = Changes()
    for item_id, name, kind, contents, reads in (
        ("i90", "totals", "table", "derived", source.item_id), ("i91", "v", "view", None, "i90"),
    ):
        definition = msgspec.structs.replace(
            made, name=name, kind=kind, external=None,
            contents=contents if contents is not None else made.contents,
        )
        changes.put("item", item_id, msgspec.structs.replace(
            source.item, definition=definition, uses=(reads,), links={}, shard=None
        ))
    state = state.apply_edits(state.version, changes.effective(state))
    assert dependent_jobs(state, source.item_id) == (
        Job("sink", "default.k", "keyed"), Job("sink", "default.p", "append"),
        Job("derived table", "default.totals", "stateful"),
        Job("view", "default.v", "append"),
    )
    assert dependent_jobs(state, dependencies.find(state, "source", "other").item_id) == ()
