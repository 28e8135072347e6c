"""A connector of another package, installed as any package is, and queues for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connectors import base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parent / "queue_package"


@pytest.fixture(scope="session")
def queue_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package built from its source and installed into a directory, without a network."""
    place = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, place / "source")
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps",
         "--no-build-isolation", "--python", sys.executable, "--target", str(place / "packages"),
         str(source)],
        check=True,
    )
    return place / "packages"


@pytest.fixture
def uninstall() -> Callable[[], None]:
    """Take the package away from this process, at the end of a test in any case."""

    def forget() -> None:
        sys.path[:] = [each for each in sys.path if "installed" not in Path(each).parent.name]
        for name in [each for each in sys.modules if each.startswith("catalog_migrate_queue")]:
            del sys.modules[name]
        base._find.cache_clear()

    return forget


@pytest.fixture
def installed(
    queue_package: Path, monkeypatch: pytest.MonkeyPatch, uninstall: Callable[[], None]
) -> Iterator[Path]:
    """The package, as processes find it that begin now."""
    monkeypatch.syspath_prepend(str(queue_package))
    base._find.cache_clear()
    yield queue_package
    uninstall()


@pytest.fixture
def on_executors(
    installed: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package in Spark's processes of Python too: their JVM began before it was installed."""
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(installed))
