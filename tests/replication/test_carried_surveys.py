"""What a stream's position has of a survey that is not on record yet, on a real server."""

from __future__ import annotations

import pytest

from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.changes import Settings, StreamReader
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.postgres.watch import OpenServer, Watcher
from catalog_migrate.errors import ChangesMissing
from tests.services.upstream import Upstream


def test_a_partition_came_and_went_between_two_starts(upstream: Upstream) -> None:
    """The position has the survey with which it was reached; a start that is behind other DDL
    compares with that, and one whose record is newer does not."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)",
    )
    slot = upstream.slot("s")
    with server.create_slot(upstream.connection, slot) as made:
        start = made.position
    names = survey.names_of(["t"])
    (table,) = survey.discover(upstream.connection, ["t"], publication="p")
    with session(upstream.connection) as opened:
        recorded = survey.read_survey(opened, "p", names).survey
        watch = survey.Watch(slot, "p", names, {"public.t": ("id",)}, recorded, "MIRROR")
        settings = Settings(
            upstream.connection, slot, "p", {"public.t": table.expected()}, start, watch=watch
        )
        upstream.sql("INSERT INTO t VALUES (1)")
        reader = StreamReader(settings)
        first = reader.latestOffset(start.offset())
        assert first["catalog"] == recorded.fingerprint
        upstream.sql(
            "CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
            "INSERT INTO t VALUES (11)",
        )
        reached = Position.of(reader.latestOffset(first))
        assert reached.after == recorded.fingerprint
        carried = survey.survey_from(reached.survey)
        assert carried is not None
        assert carried.fingerprint == reached.catalog != recorded.fingerprint
        (batch,) = reader.partitions(first, reached.offset())
        assert sum(each.num_rows for each in reader.read(batch)) >= 1  # type: ignore[arg-type]
        assert reader.latestOffset(reached.offset()) == reached.offset()
        reader.stop()
        upstream.sql("ALTER TABLE t DETACH PARTITION t_2")
        asked = OpenServer(opened, upstream.connection)
        with pytest.raises(ChangesMissing, match=r"its partition public\.t_2 was detached"):
            Watcher(watch).look(asked, reached)
        upstream.sql("GRANT INSERT ON t TO PUBLIC")
        newer = survey.read_survey(opened, "p", names).survey
        later = survey.Watch(slot, "p", names, watch.columns, newer, "MIRROR")
        upstream.sql("GRANT SELECT ON t TO PUBLIC")
        assert Watcher(later).look(asked, reached) != newer.fingerprint
