"""A process that appends to a Delta table without a pause until it is refused.

Run as ``appending.py PATH WRITER``. Each commit is one row (writer, n), n from 0. Prints, as one
line of JSON, how many commits were acknowledged and what refused the last one.
"""

from __future__ import annotations

import json
import sys

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError


def main(path: str, writer: int) -> None:
    """Append until refused."""
    number = 0
    while True:
        row = Table.from_pydict(
            {
                "writer": Array([writer], type=DataType.int64()),
                "n": Array([number], type=DataType.int64()),
            }
        )
        try:
            write_deltalake(path, row, mode="append")
        except DeltaError as error:
            print(json.dumps({"landed": number, "refused": str(error)}))
            return
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
