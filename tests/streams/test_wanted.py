"""What a supervisor compares its queries with: found once a state, and by what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.dependencies import WantedQueries

if TYPE_CHECKING:
    from catalog_migrate.catalog.memory_log import MemoryLog

Do = Callable[[str], Any]


def test_once_a_query_and_state(
    log: MemoryLog, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fingerprint is computed when it is first asked for; what is not wanted has none."""
    do(
        "CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') "
        "FORMAT JSON;"
        "CREATE SOURCE r (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 'u') "
        "FORMAT JSON"
    )
    state = read_state(log)
    s, r = (dependencies.find(state, "source", name).item_id for name in ("s", "r"))
    expected = dependencies.fingerprint(state, s)
    asked: list[str] = []

    def counted(state: Any, item_id: str) -> str:
        asked.append(item_id)
        return f"of {item_id}"

    wanted = WantedQueries(state, [s])
    assert list(wanted) == [s]
    assert wanted.fingerprint(s) == expected
    monkeypatch.setattr(dependencies, "fingerprint", counted)
    assert wanted.fingerprint(s) == expected
    assert wanted.fingerprint(r) == ""
    assert asked == []
    assert WantedQueries(state, [s, r]).fingerprint(r) == f"of {r}"
    assert asked == [r]
