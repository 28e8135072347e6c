"""The lock of the broker's jars."""

from __future__ import annotations

import re

from tests.services.broker_jars import broker_jars


def test_the_lock_names_33_jars_with_size_and_checksum() -> None:
    """Thirty for the broker and one each for zstd, lz4 and snappy: 37 MB with the latter."""
    jars = broker_jars()
    assert len(jars) == 33
    assert sum(jar.size for jar in jars) == 37237400
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert len({jar.filename for jar in jars}) == 33
    assert {jar.revision for jar in jars if jar.organisation == "org.apache.kafka"} == {"4.1.1"}
