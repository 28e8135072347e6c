"""A Spark Connect server for tests, from PySpark's own jars with Delta, on this machine alone."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from catalog_migrate.engine.spark.jars import ensure_jars, locate_pyspark
from catalog_migrate.engine.spark.object_stores import settings as object_stores
from catalog_migrate.engine.spark.session import session_conf
from catalog_migrate.store.address import Storage
from tests.services import spark_classes
from tests.services.process import ServerProcess, free_ports


class SparkConnect:
    """A running server with names of its own, in memory; :attr:`address` is ``sc://host:port``.

    Its settings are those of the local session, by ``storage`` it reaches an object store. Clients
    share its names, and each has its own temporary views and settings.
    """

    def __init__(self, home: Path, *, storage: Storage | None = None) -> None:
        self.home = home
        """The directory in which it stands."""
        pyspark = locate_pyspark()
        (self._port,) = free_ports(1)
        jars = ensure_jars()
        if storage is not None:
            jars = [*jars, *ensure_jars(jars=object_stores.s3_jars()), object_stores.own_jar()]
        conf = session_conf(
            jars, warehouse_dir=str(home / "spark-warehouse"), on_s3=storage is not None
        )
        if storage is not None:
            hadoop = object_stores.hadoop_settings(storage)
            conf |= {f"spark.hadoop.{key}": value for key, value in hadoop.items()}
        # it stands beside the sessions of the tests: little memory, and nothing compiled twice
        conf["spark.driver.memory"] = "640m"
        conf["spark.driver.extraJavaOptions"] += " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        conf["spark.connect.grpc.binding.address"] = "127.0.0.1"
        conf["spark.connect.grpc.binding.port"] = str(self._port)
        command = [
            str(pyspark / "bin" / "spark-submit"),
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--name", "connect",
            "--properties-file", str(spark_classes.PROPERTIES),
        ]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        self._server = ServerProcess(
            [*command, "spark-internal"], log=home / "spark-connect.log", cwd=home,
            env={**os.environ, "SPARK_HOME": str(pyspark), "PYSPARK_PYTHON": sys.executable},
        )
        self._server.await_ready(self._listens, "Spark Connect did not listen")

    def __enter__(self) -> SparkConnect:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()  # it keeps nothing

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"sc://127.0.0.1:{self._port}"

    def _listens(self) -> bool:
        socket.create_connection(("127.0.0.1", self._port), 1).close()
        return True
