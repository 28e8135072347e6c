"""What the names in a shard's log directory say, nothing of it read: no log, an empty commit.

Imports next to nothing, because every plan looks at every table.
"""

from __future__ import annotations

import os
import re

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.paths import local_path

_DIGITS = 20
_FIRST = "0" * _DIGITS + ".json"
_COMMIT = re.compile(r"\d{20}\.json\Z")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.")


def why_no_log(path: str) -> str | None:
    """Why no Delta log is seen at ``path``; None where one is: the look that costs next to nothing.

    Nothing is read. A directory that may not be read, or a mount that does not answer, shows none.
    """
    directory = f"{local_path(path)}/_delta_log"
    try:
        if os.path.exists(f"{directory}/{_FIRST}"):  # a third of what listing the names takes
            return None
        with os.scandir(directory) as entries:
            seen = any(
                _COMMIT.match(entry.name) or _CHECKPOINT.match(entry.name) for entry in entries
            )
    except OSError as error:
        return error.strerror or str(error)
    return None if seen else "its log is empty"


def refuse_damaged_log(path: str) -> None:
    """EngineFailure where a commit of the log is an empty file, as a power failure leaves one.

    Spark and delta-rs take it for a commit that changed nothing, and the rows that it added are
    gone without a word: nothing is to be copied from there.
    """
    from catalog_migrate.engine.spark.failures import failing

    directory = os.path.join(local_path(path), "_delta_log")
    with failing(f"read the log of {path}"), os.scandir(directory) as entries:
        found = [(entry.name, entry) for entry in entries]
    since = max(
        (int(name[:_DIGITS]) for name, _ in found if _CHECKPOINT.match(name)), default=-1
    )
    empty = sorted(
        entry.path for name, entry in found
        if _COMMIT.match(name) and int(name[:_DIGITS]) > since and not entry.stat().st_size
    )
    if empty:
        raise EngineFailure(
            f"a commit in the log of {path} is an empty file: {empty[0]}",
            condition="DELTA_LOG_FILE_EMPTY",
            remedy="restore the file from a backup; rows of the table are missing without it",
        )
