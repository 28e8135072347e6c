"""A runtime that is started again under a newer Spark goes on where the older one was killed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import create_catalog, open_log

from .runtime_process import PATIENCE, CommandProcess

ROOT = Path(__file__).parents[3]
FILES, ROWS = 6, 50

pytestmark = [pytest.mark.soak, pytest.mark.spark]


def land(directory: Path, number: int) -> None:
    """One more file of rows, there at once."""
    arriving = directory.parent / "arriving"
    first = number * ROWS
    rows = [json.dumps({"id": first + row}) for row in range(ROWS)]
    arriving.write_text("\n".join(rows) + "\n", encoding="utf-8")
    arriving.rename(directory / f"{number}.json")


def await_rows(warehouse: Path, count: int, runtime: CommandProcess) -> list[int]:
    """The ids in the source's table, sorted, once there are so many."""
    deadline = time.monotonic() + PATIENCE
    found: list[int] = []
    while time.monotonic() < deadline:
        tables = [log.parent for log in warehouse.glob("**/_delta_log") if log.is_dir()]
        for table in tables:
            rows = DeltaTable(str(table)).to_pyarrow_table()
            if "id" in rows.column_names:
                found = sorted(rows["id"].to_pylist())
        if len(found) >= count:
            return found
        assert runtime.running, runtime.output
        time.sleep(0.2)
    raise AssertionError(f"{len(found)} of {count} rows came: {runtime.output}")


@pytest.mark.parametrize("minor", ["4.0", "4.1"])
def test_from_checkpoints_of_an_older_spark(minor: str, tmp_path: Path) -> None:
    """Killed in the middle of its work; every row of every file is there once."""
    python = ROOT / "build" / f"spark-{minor}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"make test-spark VERSION={minor} sets that Spark up")
    landing, warehouse = tmp_path / "landing", tmp_path / "warehouse"
    landing.mkdir()
    create_catalog(open_log(str(tmp_path / "catalog")), warehouse=str(warehouse))
    Catalog.open(tmp_path / "catalog", mode="write").execute(
        f"CREATE CLUSTER main; CREATE CONNECTION s.c TO FILES (PATH '{landing}');"
        " CREATE SOURCE s.t (id BIGINT) IN CLUSTER main FROM FILES CONNECTION s.c"
        " (PATTERN '*.json') WITH (MAX FILES PER TRIGGER = 1)"
    )
    settings = {"catalog.uri": tmp_path / "catalog"}
    land(landing, 0)
    older = CommandProcess(
        tmp_path / "older.log", "run", "--cluster", "main", settings=settings, python=str(python)
    )
    try:
        await_rows(warehouse, ROWS, older)
        for number in range(1, FILES - 1):
            land(landing, number)
        await_rows(warehouse, 2 * ROWS, older)
    finally:
        older.kill()
    newer = CommandProcess(
        tmp_path / "newer.log", "run", "--cluster", "main", settings=settings
    )
    try:
        land(landing, FILES - 1)
        found = await_rows(warehouse, FILES * ROWS, newer)
    finally:
        newer.close()
    assert found == list(range(FILES * ROWS))
