"""A metastore's password, given by reference, is found nowhere while a cluster works with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.services.metastore import MADE_BY_HIVE, POSTGRES_DRIVER
from tests.services.postgres import PostgresServer
from tests.services.process import free_ports
from tests.services.spark_cluster import SparkCluster
from tests.streams.running.test_secrets_nowhere import command_lines, forms

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PASSWORD = "MARKED-metastore/+='\"ü"
JDO = "spark.hadoop.javax.jdo.option.Connection"


def looked_at(process: subprocess.Popen[str], port: int) -> tuple[bytes, bytes]:
    """Every command line while a process runs, and Spark's pages of settings as they were last."""
    lines, shown = b"", b""
    while process.poll() is None:
        lines += command_lines()
        try:
            known = json.loads(asked(port, "api/v1/applications"))
            settings = asked(port, f"api/v1/applications/{known[0]['id']}/environment")
            shown = asked(port, "environment/") + settings
        except (OSError, ValueError):
            pass  # not yet there, or no more
        time.sleep(0.3)
    return lines, shown


def asked(port: int, page: str) -> bytes:
    """A page of Spark's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
        text = answer.read()
        assert isinstance(text, bytes)
        return text


def test_a_password_of_the_metastore_is_found_nowhere(
    postgres: PostgresServer, user_name: str, tmp_path: Path
) -> None:
    """Command lines, Spark's page and event log, directories and logs of executors, our output.

    ``doctor`` has a cluster's executors write rows, and PostgreSQL keep names.
    """
    from catalog_migrate.engine.spark.jars import ensure_jars

    postgres.create_user(user_name, PASSWORD)
    postgres.create_database(user_name)
    (port,) = free_ports(1)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "password").write_text(PASSWORD)
    seen = tmp_path / "seen"
    for name in ("events", "local"):
        (seen / name).mkdir(parents=True)
    conf: dict[str, Any] = {
        "spark.executor.memory": "640m", "spark.ui.enabled": "true", "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (seen / "events").as_uri(),
        "spark.local.dir": str(seen / "local"),
        "spark.driver.extraClassPath": ensure_jars(jars=[POSTGRES_DRIVER])[0],
        "spark.sql.catalogImplementation": "hive",
        f"{JDO}URL": f"jdbc:postgresql://127.0.0.1:{postgres.port}/{user_name}",
        f"{JDO}DriverName": "org.postgresql.Driver",
        f"{JDO}UserName": user_name,
        f"{JDO}Password": f"file:{hidden / 'password'}",
        **{f"spark.hadoop.{name}": value for name, value in MADE_BY_HIVE.items()},
    }
    with SparkCluster(seen / "cluster", workers=1) as cluster:
        (seen / "catalog_migrate.toml").write_text("\n".join([
            "[spark_conf]", f'spark.master = "{cluster.address}"',
            *(f"{name} = {json.dumps(value)}" for name, value in conf.items()),
        ]))
        process = subprocess.Popen(
            [sys.executable, "-m", "catalog_migrate.cli.main", "doctor", "--format", "json"],
            cwd=seen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "SPARK_LOCAL_DIRS": str(seen / "local")},
        )
        looked: list[bytes] = []
        looking = threading.Thread(
            target=lambda: looked.extend(looked_at(process, port))
        )
        looking.start()
        said, complaints = process.communicate()
        looking.join()
        assert cluster.applications() == 1
    findings = {each["name"]: each for each in json.loads(said)}
    assert findings["spark"]["ok"], findings
    assert findings["names"]["ok"], findings
    assert findings["names"]["text"].endswith("names outlive the session")
    # it was really there to be found
    lines, page = looked
    assert f"spark.ui.port={port}".encode() in lines
    assert f"{JDO}UserName".removeprefix("spark.hadoop.").encode() in page
    files = {str(path.relative_to(seen)): path for path in seen.rglob("*") if path.is_file()}
    assert any("stderr" in name for name in files), "no executor left a log"
    assert any(name.startswith("events/") for name in files)
    everything = {
        "command lines": lines, "page": page, "said": (said + complaints).encode(),
        **{name: path.read_bytes() for name, path in files.items()},
    }
    marked = forms(PASSWORD)
    assert [name for name, data in everything.items() if any(one in data for one in marked)] == []
