"""Catalogs of earlier versions of this tool, frozen as the rows of their logs.

``write`` makes them with the version at hand; the files beside it were written by the last version
that stored no program with a commit and no ids of columns (plan format 1.0). The shards that the
rows speak of are built by the same starts, so a log from then fits the world of now.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count
from pathlib import Path

from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.planner.planfile import encode_plan
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

HERE = Path(__file__).with_name("frozen")
KILLED = {"rest": "", "intent": "copy_rows.done", "tombstones": "drop.done"}
"""Frozen catalogs, and the call after which the start of release 2 was killed."""

ONE = """
CREATE TABLE orders (id INT NOT NULL, amount INT, note STRING);
CREATE TABLE old (id INT);
CREATE TABLE still (id INT);
CREATE FUNCTION twice (x INT) RETURNS INT RETURN x * 2;
CREATE VIEW big (id INT, amount INT) AS SELECT id, amount FROM s.orders;
CREATE VIEW first (id INT) AS SELECT id FROM s.old;
"""
TWO = """
CREATE TABLE orders (id INT NOT NULL, amount BIGINT, remark STRING RENAMED FROM note,
  CONSTRAINT positive CHECK (id > 0));
CREATE TABLE fresh (id INT);
CREATE TABLE still (id INT, more STRING);
CREATE FUNCTION twice (x INT) RETURNS INT RETURN x + x;
CREATE VIEW big (id INT, amount BIGINT) AS SELECT id, amount FROM s.orders;
CREATE VIEW first (id INT) AS SELECT id FROM s.fresh;
"""
THREE = TWO.replace("CREATE TABLE fresh (id INT);", "CREATE TABLE fresh (id INT, x INT);")


class Killed(BaseException):
    """The process ends here."""


class Place:
    """A metastore, shards and a log, which starts bring forward."""

    def __init__(self) -> None:
        self.world, self.log, self.tokens = World(), MemoryLog(), count()

    def start(self, text: str, name: str, killed: str = "", **more: object) -> BootstrapReport:
        """Bring a release in; the process is killed at the first call of ``killed``."""
        def on_call(call: str) -> None:
            if call == killed:
                raise Killed

        engine = SimulatedEngine(self.world, persistent=True, on_call=on_call)
        return migrate(
            engine, self.log, load_texts([("all.sql", text)], name=name, default_schema="s"),
            warehouse="/w", holder="start",
            clock=SimulatedClock(1_700_000_000.0 + 10_000 * next(self.tokens)),
            token=lambda: f"{next(self.tokens):06d}", approve=["s.old"], **more,
        )

    def frozen(self) -> list[object]:
        """The log as JSON: of each commit id, metadata and rows."""
        store, found, first = self.log._store, [], 0
        for (commit_id, metadata), end in zip(store.commits, store.ends, strict=True):
            said = {**metadata, "who": "operator", "host": "host"}
            found.append([commit_id, said, [list(row) for row in store.rows[first:end]]])
            first = end
        return found

    def thaw(self, name: str) -> None:
        """Put a frozen log in the place of this one; the lineage, which is random, is kept."""
        text = (HERE / f"{name}.json").read_text()
        _, _, rows = json.loads(text)[0]
        lineage = next(json.loads(value)["value"] for _, key, value, _ in rows if key == "lineage")
        text = text.replace(lineage, read_state(self.log).lineage)
        self.log = MemoryLog()
        for version, (commit_id, metadata, rows) in enumerate(json.loads(text)):
            self.log._write(
                "append" if version else "create", [LogRow(*row) for row in rows], version - 1,
                commit_id, metadata,
            )


def made(name: str) -> Place:
    """The installation of a frozen catalog, made anew."""
    place = Place()
    place.start(ONE, "1")
    for path in place.world.shards:
        if "/orders/" in path:
            place.world.append(path, [{"id": 1, "amount": 2, "note": "kept"}])
    with suppress(Killed):
        place.start(TWO, "2", KILLED[name])
    return place


def write() -> None:
    """Write the frozen catalogs of the version at hand."""
    for name in KILLED:
        if name == "rest":
            place = made(name)
            plan = place.start(THREE, "3", read_only=True).plan
            assert plan is not None
            (HERE / "plan.json").write_bytes(encode_plan(plan))
        text = json.dumps(made(name).frozen(), indent=1, ensure_ascii=False)
        (HERE / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    write()
