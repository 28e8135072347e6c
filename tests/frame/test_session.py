"""The local Spark session: its settings, and what the user reads when Spark does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.engine.spark.session import session_conf


def test_names_end_with_the_session_unless_a_metastore_is_given(tmp_path: Path) -> None:
    """Without a metastore Spark's in-memory catalog is used, with one embedded Derby."""
    assert session_conf([])["spark.sql.catalogImplementation"] == "in-memory"
    conf = session_conf([], metastore=str(tmp_path / "names"))
    assert conf["spark.sql.catalogImplementation"] == "hive"
    assert conf["spark.hadoop.javax.jdo.option.ConnectionURL"] == (
        f"jdbc:derby:;databaseName={tmp_path / 'names'};create=true"
    )


def test_a_session_has_delta_utc_ansi_and_no_ui(tmp_path: Path) -> None:
    """The settings on which views and conversions depend are fixed, callers may add their own."""
    conf = session_conf(
        ["a.jar", "b.jar"], warehouse_dir=str(tmp_path),
        extra={"spark.ui.enabled": "true", "spark.jars": "theirs.jar"},
    )
    assert conf["spark.jars"] == "a.jar,b.jar,theirs.jar"
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.ansi.enabled"] == "true"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.sql.warehouse.dir"] == str(tmp_path)
    assert conf["spark.ui.enabled"] == "true"


def test_executors_elsewhere_reach_the_driver() -> None:
    """On a cluster Spark finds the driver's address itself, unless it is given."""
    on_cluster = {"spark.master": "spark://master:7077"}
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(
        session_conf([], extra=on_cluster)
    )
    given = session_conf([], extra={**on_cluster, "spark.driver.host": "10.0.0.7"})
    assert given["spark.driver.host"] == "10.0.0.7"
    assert "spark.driver.bindAddress" not in given


def _python(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


@pytest.mark.spark
def test_what_the_jvm_said_is_quoted_when_it_does_not_start(tmp_path: Path) -> None:
    """What Java says of an agent that is not there stands in the error, with the remedy."""
    answer = _python(
        "from catalog_migrate.engine.spark.session import local_session\n"
        "from catalog_migrate.errors import PrerequisiteMissing\n"
        "try:\n"
        "    local_session(conf={'spark.driver.extraJavaOptions': '-javaagent:none.jar'})\n"
        "except PrerequisiteMissing as error:\n"
        "    print(error)\n",
        tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("CM0500: Spark did not start: ")
    assert "Error opening zip file or JAR manifest missing : none.jar" in answer.stdout
    assert "remedy: " in answer.stdout


@pytest.mark.spark
def test_a_setting_of_the_command_line_reaches_the_jvm(tmp_path: Path) -> None:
    """``--conf`` hands a setting through as Spark calls it."""
    answer = _python(
        "from catalog_migrate.cli.main import main\n"
        "main(['doctor', '--conf', 'spark.driver.extraJavaOptions=-javaagent:none.jar'])\n",
        tmp_path,
    )
    assert "Error opening zip file or JAR manifest missing : none.jar" in answer.stdout
