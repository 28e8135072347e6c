"""A process that appends rows to s.t by path, without a pause, until it is told to stop.

Run as ``writer.py CATALOG WRITER``. Says ``writing`` after its first rows, and appends until a line
comes on stdin *and* it has written to the table of an upgrade. A refused row is looked for where
the table is by then, and written again. Ends with a line of JSON: ``landed`` (the numbers of the
acknowledged rows), ``refused`` (messages), ``after`` (rows that landed after the first refusal).
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from catalog_migrate.api import Catalog

SECONDS = 200.0


def main(catalog: str, writer: int) -> None:
    """Append, and say what became of each row."""

    def shard() -> str:
        return str(Catalog.open(catalog).show("s.t")["location"])

    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    path, types = shard(), {"integer": pa.int32(), "long": pa.int64()}
    landed: list[int] = []
    refused: list[str] = []
    number = after = 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and not (told.is_set() and after):
        try:
            table = DeltaTable(path)
            kind = types[next(f.type.type for f in table.schema().fields if f.name == "n")]
            columns = {"writer": pa.array([writer], pa.int64()), "n": pa.array([number], kind)}
            write_deltalake(path, pa.table(columns), mode="append")
        except DeltaError as error:
            refused.append(str(error))
            time.sleep(0.05)
            path = shard()
            continue
        landed.append(number)
        after += bool(refused)
        number += 1
        if number == 3:
            print("writing", flush=True)
    print(json.dumps({"landed": landed, "refused": refused, "after": after}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
