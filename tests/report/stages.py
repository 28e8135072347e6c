"""Catalogs with a runtime in a simulation, for the reports of statements on them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from catalog_migrate.report.report import Report
from catalog_migrate.report.statements import report_statement
from tests.simulation.streaming import StreamWorld
from tests.streams.test_operations import Stage

ALTER = "ALTER CONNECTION c SET (BROKER 'b:9092')"


def wide_stage(directory: Path) -> Stage:
    """A connection with ten dependents, six sources and four sinks, all of which run."""
    stage = Stage(directory, StreamWorld({"t": [3, 2], "u": [4], "o": [0]}))
    stage.run("".join(
        f"CREATE SOURCE s{number} (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c"
        f" (TOPIC 't') FORMAT JSON; CREATE SINK k{number} IN CLUSTER main FROM s{number}"
        " INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id);"
        for number in range(4)
    ))
    for _ in range(30):
        stage.turn()
    return stage


def report_of(stage: Stage, statement: str) -> Report:
    """The report of EXPLAIN of a statement."""
    (result,) = stage.run(f"EXPLAIN {statement}")
    assert result.explanation is not None
    return report_statement(result.explanation, catalog="s3://lake/catalog")


def explain_alter() -> Report:
    """The report of an ALTER CONNECTION with ten dependents."""
    with TemporaryDirectory() as directory:
        return report_of(wide_stage(Path(directory)), ALTER)
