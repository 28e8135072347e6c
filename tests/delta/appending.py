"""A process that appends to a Delta table without a pause until it is refused.

Run as ``appending.py PATH WRITER [sealed]``. Each commit is one row (writer, n), n from 0. Prints,
as one line of JSON, how many commits were acknowledged, how many refused, and what refused the last
one. With ``sealed`` only a seal ends it: what is refused for a change of metadata is tried again.
"""

from __future__ import annotations

import json
import sys

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from catalog_migrate.delta.seal import is_sealed


def main(path: str, writer: int, *, to_the_seal: bool) -> None:
    """Append until refused."""
    number = refused = 0
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
            refused += 1
            if to_the_seal and not is_sealed(path):
                continue
            print(json.dumps({"landed": number, "times": refused, "refused": str(error)}))
            return
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), to_the_seal="sealed" in sys.argv[3:])
