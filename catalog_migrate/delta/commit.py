"""Commits of metadata that are put only where no other commit is.

Spark's own are not, on a local file system: Hadoop looks whether the version's file is there and
then renames over whatever is there by then (``HDFSLogStore``, ``LocalLogStore``). A commit that
another process, delta-rs for one, put between the two is gone, although its writer was told that
its rows are in the table. A hard link is refused by the file system itself.

No version checksum is written beside a commit to a table that others write to: it would answer for
the commit after a Spark has written over that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from catalog_migrate.delta.log import commit_name, log_directory, read_commit
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.version import __version__

if TYPE_CHECKING:
    from deltalake import DeltaTable

_RACES = 200
"""Versions that other writers may take from one commit before it is given up."""
_OF_THE_TABLE = frozenset({"metaData", "protocol"})


def put_commit(
    path: str,
    actions: Sequence[Mapping[str, Any]],
    *,
    follows: int,
    operation: str,
    behind_data: bool = True,
    app_id: str = "",
    epoch: int = 0,
) -> int:
    """Commit actions of metadata behind version ``follows``; the version that they have.

    With ``behind_data`` whatever others commit after ``follows`` goes before it, as long as it
    leaves metadata and protocol as they are (Delta protocol, *Transaction Identifiers* and
    *Change Metadata*). ``app_id`` and ``epoch`` are left in the table as an application's
    transaction. EngineFailure ``DELTA_METADATA_CHANGED`` or ``DELTA_CONCURRENT_APPEND`` where it
    may not go behind what came, ``FENCED`` where that carries a later epoch; all are transient.
    """
    log = log_directory(path)
    told = {
        "timestamp": int(time.time() * 1000), "operation": operation, "operationParameters": {},
        "readVersion": follows, "isBlindAppend": False,
        "engineInfo": f"catalog-migrate/{__version__}",
    }
    mark = {"appId": app_id, "version": epoch, "lastUpdated": told["timestamp"]}
    lines = [{"commitInfo": told}, *([{"txn": mark}] if app_id else []), *actions]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    partial = log / f".{uuid4().hex}.tmp"
    with failing(f"commit to {path}"):
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            version = follows + 1
            while not _link(partial, log, version, path):
                if version - follows == _RACES:
                    raise lost(path, "DELTA_CONCURRENT_APPEND", "others took every version")
                _refuse_before(path, version, app_id, epoch, behind_data=behind_data)
                version += 1
        finally:
            partial.unlink(missing_ok=True)
        _make_durable(log)
    return version


def refuse_later_epoch(table: DeltaTable, path: str, app_id: str, epoch: int) -> None:
    """EngineFailure ``FENCED`` when a holder of a later epoch has left its mark in the table."""
    if app_id and (table.transaction_version(app_id) or 0) > epoch:
        raise _fenced(path, epoch)


def _link(partial: Path, log: Path, version: int, path: str) -> bool:
    """Whether the version was free. One below a checkpoint is too, once the log was cleaned up."""
    before = version - 1
    if not (log / commit_name(before)).exists() and not any(log.glob(f"{before:020d}.checkpoint*")):
        raise lost(path, "DELTA_CONCURRENT_WRITE", "its log was cleaned up")
    try:
        os.link(partial, log / commit_name(version))
    except FileExistsError:
        return False
    return True


def _refuse_before(
    path: str, version: int, app_id: str, epoch: int, *, behind_data: bool
) -> None:
    """EngineFailure when ours may not follow this commit of somebody else."""
    if not behind_data:
        raise lost(path, "DELTA_CONCURRENT_APPEND", "others wrote to it")
    for action in read_commit(path, version):
        mark = action.get("txn")
        if mark is not None and mark["appId"] == app_id and mark["version"] > epoch:
            raise _fenced(path, epoch)
        if not _OF_THE_TABLE.isdisjoint(action):
            raise lost(path, "DELTA_METADATA_CHANGED", "others changed its metadata")


def lost(path: str, condition: str, why: str) -> EngineFailure:
    """The transient failure of a change that others came before."""
    return EngineFailure(
        f"cannot change {path} in place: {why} meanwhile", condition=condition, transient=True
    )


def _fenced(path: str, epoch: int) -> EngineFailure:
    """Transient, because the next attempt asks for the lease first, and that is lost."""
    return EngineFailure(
        f"{path} is worked on under a later epoch than {epoch}", condition="FENCED", transient=True
    )


def _make_durable(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
