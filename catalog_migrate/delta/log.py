"""The names in a table's log directory, and the actions of a commit; read without delta-rs.

Imports next to nothing, because every plan looks at every table.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.paths import local_path

LOG = "_delta_log"
"""The directory of a table's log (Delta protocol, *Delta Log Entries*)."""

_DIGITS = 20
COMMIT = re.compile(r"(\d{20})\.json\Z")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")
"""Names of commits and checkpoints; the group is the version."""


def log_directory(path: str) -> Path:
    """The log directory of the table at ``path``."""
    return Path(local_path(path)) / LOG


def commit_name(version: int) -> str:
    """The file of one commit within the log directory."""
    return f"{version:0{_DIGITS}d}.json"


def has_log(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is that of a Delta table; what stands in its log is not looked at."""
    return os.path.isdir(os.path.join(path, LOG))


def table_around(path: str) -> str | None:
    """The table that a directory lies in, the innermost one; None outside all tables."""
    return next((str(above) for above in Path(path).parents if has_log(above)), None)


def read_commit(path: str, version: int) -> Iterator[dict[str, Any]]:
    """The actions of one commit; EngineFailure when it is gone or cannot be read."""
    file = log_directory(path) / commit_name(version)
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except (OSError, ValueError) as error:
        raise EngineFailure(f"cannot read version {version} of {path}: {error}") from error


def rows_added(path: str, first: int, upto: int) -> int:
    """Rows that the commits from version ``first`` to before ``upto`` appended to a table."""
    added = (
        action["add"]
        for version in range(first, upto)
        for action in read_commit(path, version)
        if action.get("add", {}).get("dataChange")
    )
    return sum(int(json.loads(each.get("stats") or "{}").get("numRecords", 0)) for each in added)


def why_no_log(path: str) -> str | None:
    """Why no Delta log is seen at ``path``; None where one is: the look that costs next to nothing.

    Nothing is read. A directory that may not be read, or a mount that does not answer, shows none.
    """
    directory = f"{local_path(path)}/{LOG}"
    try:
        if os.path.exists(f"{directory}/{commit_name(0)}"):
            return None  # a third of what listing the names takes
        with os.scandir(directory) as entries:
            seen = any(
                COMMIT.match(entry.name) or CHECKPOINT.match(entry.name) for entry in entries
            )
    except OSError as error:
        return error.strerror or str(error)
    return None if seen else "its log is empty"


def refuse_damaged_log(path: str) -> None:
    """EngineFailure where a commit of the log is an empty file, as a power failure leaves one.

    Spark and delta-rs take it for a commit that changed nothing, and the rows that it added are
    gone without a word: nothing is to be copied from there.
    """
    from catalog_migrate.engine_failures import failing  # what a plan does not import

    with failing(f"read the log of {path}"), os.scandir(log_directory(path)) as entries:
        found = [(entry.name, entry) for entry in entries]
    since = max(
        (int(name[:_DIGITS]) for name, _ in found if CHECKPOINT.match(name)), default=-1
    )
    empty = sorted(
        entry.path for name, entry in found
        if COMMIT.match(name) and int(name[:_DIGITS]) > since and not entry.stat().st_size
    )
    if empty:
        raise EngineFailure(
            f"a commit in the log of {path} is an empty file: {empty[0]}",
            condition="DELTA_LOG_FILE_EMPTY",
            remedy="restore the file from a backup; rows of the table are missing without it",
        )
