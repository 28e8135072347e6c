"""A standalone Spark cluster for tests, from PySpark's own jars, on this machine alone."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from catalog_migrate.engine.spark.jars import locate_pyspark
from tests.services.process import ServerProcess, free_ports


class SparkCluster:
    """A master and its workers; :attr:`address` is ``spark://host:port``.

    Each worker has ``cores`` and 1 GiB for executors, which are processes of their own.
    """

    def __init__(self, home: Path, *, workers: int = 2, cores: int = 1) -> None:
        self._home = home
        self._pyspark = locate_pyspark()
        self._port, self._page = free_ports(2)
        self._servers: list[ServerProcess] = []
        try:
            self._start("master", "--port", str(self._port), "--webui-port", str(self._page))
            self._await(0)
            for _ in range(workers):
                self._start(
                    "worker", "--port", "0", "--webui-port", "0", "-c", str(cores), "-m", "1g",
                    self.address,
                )
            self._await(workers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """What ``spark.master`` is to be."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a session of this machine that works on it."""
        return {
            "spark.master": self.address, "spark.executor.memory": "640m",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        }

    def kill_worker(self) -> None:
        """SIGKILL one worker with its executors."""
        self._servers.pop().kill()

    def applications(self) -> int:
        """How many applications have registered so far."""
        page = self._ask()
        return len(page["activeapps"]) + len(page["completedapps"])

    def close(self) -> None:
        """End all of it; nothing is kept."""
        while self._servers:
            self._servers.pop().kill()

    def _start(self, role: str, *arguments: str) -> None:
        home = self._home / f"{role}{len(self._servers)}"
        home.mkdir(parents=True)
        self._servers.append(ServerProcess(
            [
                str(self._pyspark / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{role}.{role.title()}", "--host", "127.0.0.1",
                *arguments,
            ],
            log=home / "log", cwd=home,
            env={
                **os.environ, "SPARK_HOME": str(self._pyspark), "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(home / "work"),
                "SPARK_LOCAL_DIRS": str(home / "local"), "SPARK_DAEMON_MEMORY": "256m",
            },
        ))

    def _ask(self) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
            return json.load(answer)

    def _await(self, workers: int) -> None:
        self._servers[-1].await_ready(
            lambda: bool(self._ask()["aliveworkers"] == workers), "the Spark cluster is not there"
        )
