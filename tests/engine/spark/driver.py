"""A query in a process of its own: ``python -m tests.engine.spark.driver ADDRESS PLACE NUMBER``.

It reads ``ADDRESS/source`` with its checkpoint at ``ADDRESS/checkpoint``, and writes each batch
that it executes to ``PLACE/batches-NUMBER``. It ends when its query fails, or when ``PLACE/stop``
is there, and prints why. The store's options come by the environment.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from catalog_migrate.engine.spark.session import local_session


def main(address: str, place: Path, number: int) -> None:
    spark = local_session(
        str(place / f"warehouse-{number}"), addresses=[address],
        conf={"spark.master": "local[1]", "spark.driver.memory": "768m"},
    )

    def execute(rows: Any, batch: int) -> None:
        found = sorted(row["number"] for row in rows.collect())
        with (place / f"batches-{number}").open("a") as file:
            print(json.dumps([batch, found]), file=file)

    query = (
        spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(f"{address}/source")
        .writeStream.foreachBatch(execute).option("checkpointLocation", f"{address}/checkpoint")
        .start()
    )
    while query.isActive and not (place / "stop").exists():
        time.sleep(0.1)
    failure = query.exception()
    query.stop()
    print("stopped" if failure is None else failure)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
