"""Verbs where ``spark.remote`` names a Spark Connect server, as far as none has to answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.engine.spark import connect
from tests.services.process import free_ports

VARIABLE = "CATALOG_MIGRATE__SPARK__REMOTE"


@pytest.fixture(autouse=True)
def _remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release in the working directory, a server that nobody started, and no Java."""
    (port,) = free_ports(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connect, "_START", 0.0)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert main(["init"]) == 0
    monkeypatch.setenv(VARIABLE, f"sc://127.0.0.1:{port}/;token=MARKED")


def test_a_server_that_does_not_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its address is named, its token is not, and nothing is written."""
    pytest.importorskip("grpc")
    assert main(["apply", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "CM0403: the Spark Connect server sc://127.0.0.1:" in said
    assert "MARKED" not in said
    assert not Path("catalog").exists()


def test_streams_are_not_run_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence says why, and which setting it is."""
    assert main(["run"]) == 1
    said = capsys.readouterr().err
    assert "CM0401: the runtime of streams needs a Spark session of its own process, and" in said
    assert "spark.remote is sc://127.0.0.1:" in said
    assert "MARKED" not in said


def test_a_token_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`config show` has the address without what stands behind it."""
    capsys.readouterr()
    assert main(["config", "show"]) == 0
    assert main(["config", "show", "--format", "json"]) == 0
    shown = capsys.readouterr().out
    assert "MARKED" not in shown
    assert shown.count("/;***") == 2


def test_doctor_asks_for_no_java(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither it nor jars are needed on this machine."""
    capsys.readouterr()
    assert main(["doctor", "--no-spark", "--format", "json"]) in (0, 1)
    names = [found["name"] for found in json.loads(capsys.readouterr().out)]
    assert "commits" in names
    assert "java" not in names
    assert "jars" not in names
