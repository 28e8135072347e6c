"""The verbs that need Spark, one after the other on one catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.main import main


@pytest.mark.spark
def test_a_release_is_applied_looked_at_and_applied_again(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """init, apply, status, show, sql, plan --bind, apply PLAN, apply it again, stale: all exits."""
    assert spark.version
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str]:
        capsys.readouterr()
        return main(args), capsys.readouterr().out

    assert call("init")[0] == 0
    code, out = call("apply", "--yes", "--format", "json")
    assert code == 0
    assert json.loads(out)["outcome"] == "initialized"
    status = json.loads(call("status", "--format", "json")[1])
    assert (status["release"], status["pending"]) == ("1.0", 0)
    assert call("plan", "--detailed-exitcode")[0] == 0
    shown = json.loads(call("show", "shop.orders", "--format", "json")[1])
    assert shown["location"].startswith(f"{tmp_path}/warehouse/shop/orders/")
    spark.sql("INSERT INTO shop.customers VALUES (1, 'x')")
    assert call("sql", "-c", "SELECT name, id FROM shop.customers", "--format", "json") == (
        0, '[\n  {\n    "name": "x",\n    "id": 1\n  }\n]\n'
    )
    assert call("sql", "-c", "SELECT nothing FROM shop.customers")[0] == 1
    clean = (0, "no names outlive the session: nothing can drift\n")
    assert call("drift", "--detailed-exitcode") == clean

    release = tmp_path / "release"
    (release / "release.toml").write_text('name = "1.1"\ndefault_schema = "shop"\n')
    (release / "vip.sql").write_text("CREATE VIEW vip (id BIGINT) AS SELECT id FROM customers;\n")
    code, out = call("plan", "--bind", "--detailed-exitcode")
    assert code == 2
    assert "bound: Spark's analyser accepted" in out
    assert call("plan", "--out", "plan.json")[0] == 0
    assert call("apply", "plan.json", "--yes")[1].startswith("migrated: release 1.1, ")
    assert call("apply", "plan.json", "--yes")[1].startswith("unchanged: release 1.1, ")
    (release / "vip.sql").unlink()
    assert call("apply", "plan.json", "--yes")[0] == 4

    (release / "vip.sql").write_text("CREATE VIEW vip AS SELECT * FROM customers;\n")
    assert call("release", "compile", "release")[0] == 0
    vip = next(
        each for each in json.loads((tmp_path / "release.json").read_text())["objects"]
        if each["name"] == "vip"
    )
    assert [(each["name"], each["type"]) for each in vip["columns"]] == [
        ("id", "BIGINT"), ("name", "STRING"),
    ]
    for schema in ("shop", "catalog_migrate"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
