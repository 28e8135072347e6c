"""A holder is stopped past its lease, another process takes over, then it wakes up."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = pytest.mark.crash

TTL, MARGIN = 3.0, 1.0

MOMENTS = [
    ("append intent", 1), ("create_shard", 1), ("copy_rows", 1), ("append intent", 2),
    ("seal", 1), ("seal.done", 1), ("copy_rows.done", 1), ("append migrate", 1),
    ("append reconcile", 1),
]  # fmt: skip
"""Calls before (or right after) which the holder is stopped; no row comes between, so that there is
no tail to copy."""

ROUNDS = [(moment, successor) for moment in MOMENTS for successor in ("1", "2")]
if int(os.environ.get("CRASH_FAULTS", "1")) < 2:
    ROUNDS = [(("seal", 1), "1")]


@pytest.mark.parametrize(
    ("moment", "successor"), ROUNDS, ids=[f"{m[0]} {m[1]}, then {s}" for m, s in ROUNDS]
)
def test_a_holder_that_wakes_after_its_lease_does_nothing(
    site: Any, moment: tuple[str, int], successor: str
) -> None:
    """Its successor finishes or undoes what it began; awake again, it changes nothing."""
    frozen = site.launch("2", ttl=TTL, margin=MARGIN, stop=moment)
    site.until_stopped(frozen)
    first = site.start(successor, ttl=TTL, margin=MARGIN)
    committed = moment[0] == "append reconcile"
    if successor == "2":
        assert first["outcome"] == ("resumed" if committed else "migrated"), first
    elif committed:
        assert first["outcome"] == "fenced_out", first
    else:
        assert first["outcome"] in {"resumed", "unchanged"}, first
    if first["outcome"] == "resumed" and successor == "1":
        site.append(1, [1, 2, 3])  # the seal, if there was one, is off
    site.go_on(frozen)
    said = site.end(frozen)
    in_force = "2" if successor == "2" or committed else "1"
    if (successor, first["outcome"]) == ("1", "unchanged"):
        # nobody took the lease over: the release in force had nothing to do
        assert "outcome" in said or said["error"] == "LeaseLost", said
    elif not committed:
        assert said["error"] in {"LeaseLost", "EngineFailure", "PrepareFailed"}, said
    if in_force == "2":
        site.verify("2")
    assert site.start("2", ttl=TTL, margin=MARGIN)["outcome"] in {
        "migrated", "unchanged", "resumed"
    }  # fmt: skip
    site.append(2, [1])
    site.verify("2")
