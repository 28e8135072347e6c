"""The names in a table's log, and what a look at them tells; read without delta-rs.

Imports next to nothing, because every plan looks at every table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

import msgspec

from catalog_migrate.errors import CatalogMigrateError, EngineFailure
from catalog_migrate.store import is_seen, store_at

LOG = "_delta_log"
"""The folder of a table's log (Delta protocol, *Delta Log Entries*)."""

_DECODER = msgspec.json.Decoder()
_COMMIT = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


def commit_name(version: int) -> str:
    """The object of one commit, below the table."""
    return f"{LOG}/{version:020d}.json"


def checksum_name(version: int) -> str:
    """The object of one version checksum, below the table."""
    return f"{LOG}/{version:020d}.crc"


def decode(data: bytes) -> list[dict[str, Any]]:
    """The actions of a commit as its file has them; ValueError for what is none."""
    return [_DECODER.decode(line) for line in data.splitlines() if line.strip()]


def versions_of(names: Iterable[str]) -> tuple[set[int], set[int]]:
    """(versions that have a commit, versions that have a checkpoint) among names of a log."""
    commits, checkpoints = set(), set()
    for name in names:
        if match := _COMMIT.match(name):
            commits.add(int(match[1]))
        elif match := _CHECKPOINT.match(name):
            checkpoints.add(int(match[1]))
    return commits, checkpoints


def has_log(path: str) -> bool:
    """Whether a Delta table is seen at an address; what stands in its log is not looked at."""
    return is_seen(f"{path}/{LOG}")


def is_in_log(path: str) -> bool:
    """Whether a path, by its spelling, is that of a file in the log of a table."""
    return LOG in PurePath(path).parts


def why_no_log(path: str) -> str | None:
    """Why no Delta log is seen at ``path``; None where one is: the look that costs next to nothing.

    Nothing is read. A directory that may not be read, or a mount that does not answer, shows none;
    StoreFailure where an object store does not answer, which says nothing of what is there.
    """
    table = store_at(path)
    try:
        if table.exists(commit_name(0)):
            return None  # a third of what listing the names takes
        seen = any(versions_of(table.names(LOG)))
    except CatalogMigrateError:
        raise
    except OSError as error:
        return error.strerror or str(error)
    return None if seen else "its log is empty"


def refuse_damaged_log(path: str) -> None:
    """EngineFailure where a commit of the log is an empty file, as a power failure leaves one.

    Spark and delta-rs take it for a commit that changed nothing, and the rows that it added are
    missing without a word: nothing is to be copied from there.
    """
    from catalog_migrate.engine_failures import failing  # what a plan does not import

    table = store_at(path)
    with failing(f"read the log of {path}"):
        sizes = table.sizes(LOG)
        commits, checkpoints = versions_of(sizes)
        since = max(checkpoints, default=-1)
        empty = [
            version for version in sorted(commits)
            if version > since and not sizes[commit_name(version).rpartition("/")[2]]
        ]
    if empty:
        raise EngineFailure(
            f"a commit in the log of {path} is an empty file: {table.place(commit_name(empty[0]))}",
            condition="DELTA_LOG_FILE_EMPTY",
            remedy="restore the file from a backup; rows of the table are missing without it",
        )
