"""Applications on the shared metastore, each a process with a Spark session of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.services.metastore import HiveMetastore, SlowWire


class Process:
    """One application: :meth:`ask` and :meth:`answer`, or :meth:`do` for both.

    ``storage`` are the options by which it reaches an object store.
    """

    def __init__(
        self, home: Path, address: str, storage: Mapping[str, str] | None = None
    ) -> None:
        home.mkdir()
        if storage is not None:
            (home / "storage.json").write_text(json.dumps(dict(storage)))
        (home / "settings.json").write_text(json.dumps({
            "spark.master": "local[2]", "spark.driver.memory": "768m",
            "spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": address,
        }))
        self._said = home / "said"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.metastores.application", str(home)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            )

    def ask(self, order: str, *arguments: object) -> None:
        """Have it begin with an order (see :mod:`tests.metastores.application`)."""
        assert self._process.stdin is not None
        print(json.dumps([order, *arguments]), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """What became of the order that it was given."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._said.read_text()[-4000:]
        return json.loads(line)

    def do(self, order: str, *arguments: object) -> Any:
        """Give an order and wait for it."""
        self.ask(order, *arguments)
        return self.answer()

    def end(self) -> None:
        """SIGKILL: nothing of it is needed any more."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def wire(metastore: HiveMetastore) -> Iterator[SlowWire]:
    """The way on which applications reach the metastore, fast unless a test slows it."""
    with SlowWire(metastore) as wire:
        yield wire


@pytest.fixture(scope="module")
def applications(
    wire: SlowWire, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Process]]:
    """Three applications whose sessions are there."""
    home = tmp_path_factory.mktemp("applications")
    started = [Process(home / str(number), wire.address) for number in range(3)]
    try:
        for each in started:
            assert each.answer() == "ready"
        yield started
    finally:
        for each in started:
            each.end()
