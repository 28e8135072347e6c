"""An installation on disk without a JVM, its processes and its writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SECONDS = 240.0

FIRST = "CREATE TABLE s.t (writer BIGINT, n INT); CREATE TABLE s.kept (a INT);"
TEXTS = {
    "1": FIRST + "CREATE VIEW s.v (n INT) AS SELECT n FROM s.t;",
    "2": FIRST.replace("n INT", "n BIGINT") + "CREATE VIEW s.v (n BIGINT) AS SELECT n FROM s.t;",
    "3": FIRST.replace("n INT", "n STRING USING CAST(n AS STRING)").replace("a INT", "a BIGINT"),
}
"""Releases of which 2 and 3 copy ``s.t``, and 3 ``s.kept`` too."""


@dataclass
class Site:
    """A catalog in a directory, with every row that anybody was told had landed."""

    home: Path
    sources: Path
    landed: Counter[tuple[int, int]] = field(default_factory=Counter)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    verified: int = 0
    lost: int = 0
    doubled: int = 0

    @property
    def catalog(self) -> Path:
        """The catalog's directory."""
        return self.home / "catalog"

    def release(self, name: str) -> Path:
        """The directory of a release."""
        directory = self.sources / f"release-{name}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "a.sql").write_text(TEXTS[name], encoding="utf-8")
        (directory / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
        return directory

    def launch(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        margin: float = 10.0,
        stop: tuple[str, int] | None = None,
    ) -> subprocess.Popen[str]:
        """A process of a release; ``stop`` is the call before which it stops itself."""
        command = [
            sys.executable, str(HERE / "start.py"), str(self.catalog), str(self.release(name)),
            str(ttl), str(margin), *(() if stop is None else (stop[0], str(stop[1]))),
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """What a process said at its end."""
        said, wrong = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, wrong
        result: dict[str, Any] = json.loads(said)
        return result

    def start(self, name: str, *, ttl: float = 30.0, margin: float = 10.0) -> dict[str, Any]:
        """A release in this process: what a process of its own would say at its end."""
        from .start import Stopping, start

        return start(
            str(self.catalog), str(self.release(name)), ttl, margin, Stopping("", 0)
        )

    def until_stopped(self, process: subprocess.Popen[str]) -> None:
        """Wait until a process has stopped itself."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            assert state not in "ZX", process.communicate()
            time.sleep(0.02)
        raise AssertionError("it did not stop")

    def go_on(self, process: subprocess.Popen[str]) -> None:
        """Let a stopped process go on."""
        os.kill(process.pid, signal.SIGCONT)

    # rows ------------------------------------------------------------------------------------
    def shard(self, table: str) -> str:
        """Where a table's rows are."""
        from catalog_migrate.api import Catalog

        location = Catalog.open(self.catalog).show(f"s.{table}")["location"]
        assert isinstance(location, str)
        return location

    def append(self, writer: int, numbers: list[int], path: str | None = None) -> None:
        """Append rows by path; an error of delta-rs when refused."""
        import pyarrow as pa
        from deltalake import write_deltalake

        target = path or self.shard("t")
        rows = pa.table({"writer": pa.array([writer] * len(numbers), pa.int64()), "n": numbers})
        schema = self.arrow_schema(target)
        write_deltalake(target, rows.cast(schema), mode="append")
        self.landed.update((writer, n) for n in numbers)

    def arrow_schema(self, path: str) -> Any:
        """Columns of a shard, as Arrow has them."""
        import pyarrow as pa

        from catalog_migrate.delta.table import shard_columns

        types = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}
        return pa.schema([(c.name, types[c.type]) for c in shard_columns(path)])

    def rows(self) -> Counter[tuple[int, int]]:
        """Rows of s.t as they are now."""
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        found: Counter[tuple[int, int]] = Counter()
        for uri in DeltaTable(self.shard("t")).file_uris():
            found.update((r["writer"], int(r["n"])) for r in pq.read_table(uri).to_pylist())
        return found

    # checks ----------------------------------------------------------------------------------
    def verify(self, release: str) -> None:
        """The release is in force and settled, every row is there once, no stray file is."""
        from catalog_migrate.catalog.check import check
        from catalog_migrate.catalog.opening import open_log, read_state
        from catalog_migrate.delta import seal as seals

        state = read_state(open_log(str(self.catalog)))
        check(state)
        in_force = state.release_in_force()
        assert in_force is not None
        assert in_force.name == release
        assert not state.intents
        assert not state.tombstones
        assert not state.operations
        assert {s.state for s in state.shards.values()} <= {"live", "retired", "gone"}
        warehouse = Path(state.config["warehouse"].value)
        kept = {path: s.state for path, s in state.shards.items() if s.state != "gone"}
        found = {str(p.relative_to(warehouse)) for p in warehouse.glob("*/*/*") if p.is_dir()}
        assert found == set(kept)
        for path, shard_state in kept.items():
            assert seals.is_sealed(str(warehouse / path)) == (shard_state == "retired"), path
        rows = self.rows()
        self.verified += 1
        self.doubled += sum((rows - self.landed).values())
        self.lost += sum((self.landed - rows).values())
        assert rows - self.landed == Counter(), "rows twice or never written"
        assert self.landed - rows == Counter(), "rows lost"


@pytest.fixture
def sites(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Callable[[Path], Site]]:
    """Installations at release 1 with a hundred rows; no process is left afterwards."""
    made: list[Site] = []

    def make(home: Path) -> Site:
        site = Site(home, tmp_path / "releases")
        made.append(site)
        assert site.start("1")["outcome"] == "initialized"
        site.append(0, list(range(100)))
        return site

    yield make
    for site in made:
        record_property("rounds", site.verified)
        record_property("rows", sum(site.landed.values()))
        record_property("lost", site.lost)
        record_property("doubled", site.doubled)
        for process in site.processes:
            process.kill()
            process.wait()


@pytest.fixture
def site(tmp_path: Path, sites: Callable[[Path], Site]) -> Site:
    """Release 1 with a hundred rows."""
    return sites(tmp_path / "site")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB of its own.

    Spark's writer that found no room keeps its file open, deleted or not, until its objects are
    collected: there is room for that beside the rows of two releases.
    """
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"mount is not permitted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
