"""A table's log: its names, its commits, their version checksums; read without delta-rs.

Commits are read, looked through, and put where no other one is. Spark's own are written over, on a
local file system: Hadoop looks whether the version's file is there and then renames over whatever
is there by then (``HDFSLogStore``, ``LocalLogStore``). A commit that another process, delta-rs for
one, put between the two is lost, although its writer was told that its rows are in the table. Ours
is refused by the store itself.

Imports next to nothing, because every plan looks at every table.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

import msgspec

from catalog_migrate.errors import CatalogMigrateError, EngineFailure, StoreFailure
from catalog_migrate.store import Store, is_seen, store_at
from catalog_migrate.store.address import Storage, is_remote
from catalog_migrate.store.local import is_there
from catalog_migrate.version import __version__

LOG = "_delta_log"
"""The folder of a table's log (Delta protocol, *Delta Log Entries*)."""

_DECODER = msgspec.json.Decoder()
_COMMIT = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


def commit_name(version: int) -> str:
    """Return the object of one commit, below the table."""
    return f"{LOG}/{version:020d}.json"


_FIRST = commit_name(0)


def checksum_name(version: int) -> str:
    """Return the object of one version checksum, below the table."""
    return f"{LOG}/{version:020d}.crc"


def decode(data: bytes) -> list[dict[str, Any]]:
    """Return the actions of a commit as its file has them; ValueError for what is none."""
    return [_DECODER.decode(line) for line in data.splitlines() if line.strip()]


class _Brief(msgspec.Struct):
    operationMetrics: Any = None  # noqa: N815 - as the file has it


_BRIEF = msgspec.json.Decoder(dict[str, _Brief])


def decode_briefly(data: bytes) -> list[dict[str, Any]]:
    """:func:`decode`, of each action no more than the metrics of its commit.

    What is left out is passed over, not made: a commit may say megabytes of what was executed.
    """
    lines = [line for line in data.splitlines() if line.strip()]
    return [
        {kind: msgspec.structs.asdict(action) for kind, action in _BRIEF.decode(line).items()}
        for line in lines
    ]


def info_in(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what a commit says of itself, empty where it says nothing."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def transactions_in(actions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the versions of applications that actions carry, the last of each."""
    marks = [action["txn"] for action in actions if "txn" in action]
    return {str(mark.get("appId", "")): int(mark.get("version", 0)) for mark in marks}


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
    """Return whether a path, by its spelling, is that of a file in the log of a table."""
    return LOG in PurePath(path).parts


def find_log_problem(path: str) -> str | None:
    """Why no Delta log is seen at ``path``; None where one is: the look that costs next to nothing.

    Nothing is read. A directory that may not be read, or a mount that does not answer, shows none;
    StoreFailure where an object store does not answer, which says nothing of what is there.
    """
    if path.startswith("/") and is_there(f"{path}/{_FIRST}"):
        return None
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


OURS = "catalog_migrate."
"""Begins the names under which a commit of the catalog says more of itself than Delta asks."""

OVERTAKEN = frozenset({
    "DELTA_METADATA_CHANGED", "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_WRITE", "FENCED",
})
"""Conditions of a commit of ours that others came before; the next attempt may go through."""
_RACES = 200
"""Versions that other writers may take from one commit before it is given up."""

# -- what a commit did to a table ------------------------------------------------------------------


class Change(NamedTuple):
    """What one commit did to a table.

    ``operation`` is what its writer calls it, ``transactions`` the versions of applications that it
    carries. ``adds`` and ``removes`` tell of rows, not of files that are only put together;
    ``redefines`` of schema, properties or comments.
    """

    version: int
    operation: str | None
    transactions: Mapping[str, int]
    adds: bool
    removes: bool
    redefines: bool
    changes_protocol: bool


def read_change(path: str, version: int) -> Change:
    """Return what a version of the table at ``path`` did; EngineFailure when it cannot be read."""
    actions = read_actions(path, version)
    info = info_in(actions)
    marks = [action["txn"] for action in actions if "txn" in action]
    before = {action["remove"]["path"] for action in actions if "remove" in action}
    return Change(
        version, info.get("operation"),
        {str(mark.get("appId", "")): mark.get("version", 0) for mark in marks},
        any(
            # one that was there has only lost rows, by a deletion vector
            action["add"].get("dataChange") and action["add"]["path"] not in before
            for action in actions if "add" in action
        ),
        any(action.get("remove", {}).get("dataChange") for action in actions),
        any("metaData" in action for action in actions),
        any("protocol" in action for action in actions),
    )


def read_actions(path: str, version: int) -> list[dict[str, Any]]:
    """Return the actions of one commit; EngineFailure when it is missing or cannot be read."""
    try:
        return decode(store_at(path).read(commit_name(version)))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineFailure(f"cannot read version {version} of {path}: {error}") from error


def is_same_commit(one: str, other: str, version: int) -> bool:
    """Return whether a version of one table is, byte for byte, in the log of another too."""
    name, there = commit_name(version), store_at(other)
    return there.exists(name) and there.read(name) == store_at(one).read(name)


# -- a commit of ours ------------------------------------------------------------------------------


def put_commit(
    path: str, actions: Sequence[Mapping[str, Any]], *, follows: int, operation: str,
    behind_data: bool = True, app_id: str = "", epoch: int = 0, timed: bool = False,
) -> int:
    """Commit actions behind version ``follows``; the version that they have.

    With ``behind_data`` whatever others commit after ``follows`` goes before it, as long as it
    leaves metadata and protocol as they are (Delta protocol, *Transaction Identifiers* and
    *Change Metadata*). ``app_id`` and ``epoch`` are left in the table as an application's
    transaction. ``timed``: the table has in-commit timestamps, of which each is above the one
    before (Delta protocol, *In-Commit Timestamps*).

    EngineFailure ``DELTA_METADATA_CHANGED`` or ``DELTA_CONCURRENT_APPEND`` where it may not go
    behind what came, ``FENCED`` where that carries a later epoch; all are transient.
    """
    from catalog_migrate.engine_failures import failing

    now = int(time.time() * 1000)
    info = {
        "timestamp": now, "operation": operation, "operationParameters": {},
        "readVersion": follows, "isBlindAppend": False,
        "engineInfo": f"catalog-migrate/{__version__}", "txnId": uuid4().hex,  # bytes of its own
    }
    marks = [{"txn": transaction(app_id, epoch)}] if app_id else []
    table = store_at(path)
    version = follows + 1
    with failing(f"commit to {path}"):
        while True:
            at = {"inCommitTimestamp": _next_time(table, path, version, now)} if timed else {}
            data = encode([{"commitInfo": {**at, **info}}, *marks, *actions])
            if _put(table, path, version, data):
                return version
            if version - follows == _RACES:
                raise lost_race_error(path, "DELTA_CONCURRENT_APPEND", "others took every version")
            _refuse_before(path, version, app_id, epoch, behind_data=behind_data)
            version += 1


def transaction(app_id: str, version: int) -> dict[str, Any]:
    """Return what a ``txn`` action says: the newest version of an application that a table has."""
    return {"appId": app_id, "version": version, "lastUpdated": int(time.time() * 1000)}


def _next_time(table: Store, path: str, version: int, now: int) -> int:
    """The in-commit timestamp of a version: now, and above that of the version before."""
    try:
        said = info_in(decode(table.read(commit_name(version - 1)))).get("inCommitTimestamp")
    except FileNotFoundError:
        try:  # a log that was cleaned up
            said = json.loads(table.read(checksum_name(version - 1))).get("inCommitTimestampOpt")
        except FileNotFoundError:
            raise EngineFailure(
                f"version {version - 1} of {path} is missing: its in-commit timestamp is needed",
                condition="DELTA_LOG_FILE_NOT_FOUND",
                remedy="write to the table once with Spark, and start again",
            ) from None
    return now if said is None else max(now, int(said) + 1)


def encode(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Actions as they stand in a commit, one a line."""
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in actions).encode()


def refuse_later_epoch(path: str, held: int | None, epoch: int) -> None:
    """EngineFailure ``FENCED`` when ``held``, the epoch that the table carries, is a later one."""
    if (held or 0) > epoch:
        raise _fenced_error(path, epoch)


def lost_race_error(path: str, condition: str, why: str) -> EngineFailure:
    """Return the transient failure of a change that others came before."""
    return EngineFailure(
        f"cannot change {path} in place: {why} meanwhile", condition=condition, transient=True
    )


def _put(table: Store, path: str, version: int, data: bytes) -> bool:
    """Whether the version was free. One below a checkpoint is too, once the log was cleaned up."""
    before = version - 1
    if not table.exists(commit_name(before)) and (before not in versions_of(table.names(LOG))[1]):
        raise lost_race_error(path, "DELTA_CONCURRENT_WRITE", "its log was cleaned up")
    return table.put_if_absent(commit_name(version), data)


def _refuse_before(path: str, version: int, app_id: str, epoch: int, *, behind_data: bool) -> None:
    """EngineFailure when ours may not follow this commit of somebody else."""
    if not behind_data:
        raise lost_race_error(path, "DELTA_CONCURRENT_APPEND", "others wrote to it")
    change = read_change(path, version)
    if change.transactions.get(app_id, epoch) > epoch:
        raise _fenced_error(path, epoch)
    if change.redefines or change.changes_protocol:
        raise lost_race_error(path, "DELTA_METADATA_CHANGED", "others changed its metadata")


def _fenced_error(path: str, epoch: int) -> EngineFailure:
    """Transient, because the next attempt asks for the lease first, and that is lost."""
    return EngineFailure(
        f"{path} is worked on under a later epoch than {epoch}", condition="FENCED", transient=True
    )


# -- a log whose every commit is wanted ------------------------------------------------------------


class Commit(NamedTuple):
    """One commit as it stands in a log.

    ``place`` is its file, for messages; ``milliseconds`` since 1970 when it was made, by its
    writer's clock (None where the log has none); ``metadata`` what was written with it under
    :data:`OURS`, its id among it as ``commit_id``.
    """

    version: int
    place: str
    commit_id: str | None
    milliseconds: int | None
    metadata: Mapping[str, str]


Damage = Callable[[str, str, Exception | None], Exception]
"""What is raised for (place of a file, what it is or lacks, its cause)."""


class CommitLog:
    """The log of one table, whose commits are all to be whole; remembers those it found so.

    A listing tells the newest version for a tenth of a millisecond, and a look into each new file
    finds what delta-rs would pass over in silence: a commit file cut off between two actions.
    """

    def __init__(self, table: Store, damage: Damage) -> None:
        """``damage`` makes the error for a commit that is missing or not as commits are."""
        self._table = table
        self._damage = damage
        self._verified = -1

    def newest(self) -> int | None:
        """The newest version, None when there is no commit; an error when one before is missing."""
        return self._scan()[1]

    def verify(self) -> int | None:
        """Like :meth:`newest`, after a look into every commit file not yet found whole."""
        first, newest = self._scan()
        if newest is None:
            return None
        for version in range(max(first, self._verified + 1), newest + 1):
            self._look(version, decode_briefly)
        self._verified = newest
        return newest

    def list_checkpoint(self) -> list[str]:
        """Return the files of the newest checkpoint, by which a reader begins; none without one."""
        prefix = f"{self._scan()[0] - 1:020d}.checkpoint"
        return [f"{LOG}/{name}" for name in self._names() if name.startswith(prefix)]

    def whole(self) -> int | None:
        """Return the newest version, after a listing that shows every commit since the very first.

        History needs the files that a checkpoint makes superfluous for reading the state.
        """
        newest = self._scan()[1]
        if newest is None:
            return None
        present, _ = versions_of(self._names())
        for version in range(newest + 1):
            if version not in present:
                self._missing(version)
        return newest

    def commit_id(self, version: int) -> str | None:
        """The commit id that a version carries, None for a version or an id that is not there."""
        try:
            found = self._info(version).get(f"{OURS}commit")
        except CatalogMigrateError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return found if isinstance(found, str) else None

    def commit(self, version: int) -> Commit:
        """One commit with what it says about itself."""
        place, info = self.place(version), self._info(version)
        said: dict[str, str] = {}
        for name, value in info.items():
            if name.startswith(OURS):
                if not isinstance(value, str):
                    self._raise_damage(place, f"is damaged: its {name} is {value!r}")
                said[name.removeprefix(OURS)] = value
        milliseconds = info.get("timestamp")
        if milliseconds is not None and _number(milliseconds) is None:
            self._raise_damage(place, f"is damaged: its timestamp is {milliseconds!r}")
        return Commit(
            version, place, said.pop("commit", None),
            None if milliseconds is None else _number(milliseconds), said,
        )

    def transactions(self, version: int) -> Mapping[str, int]:
        """The versions of applications that a commit carries; none of a commit that is not there.

        Raises what :meth:`commit` does for one that cannot be read.
        """
        try:
            actions = decode(self._table.read(commit_name(version)))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            self._raise_damage(self.place(version), f"is truncated or damaged: {error}", error)
        return transactions_in(actions)

    def place(self, version: int) -> str:
        """Return the file of one version, for messages."""
        return self._table.place(commit_name(version))

    def _info(self, version: int) -> Mapping[str, Any]:
        return self._look(version, decode)

    def _look(
        self, version: int, decoded: Callable[[bytes], list[dict[str, Any]]]
    ) -> Mapping[str, Any]:
        """What a commit says about itself; an error names its file if it is not whole."""
        place = self.place(version)
        try:
            actions = decoded(self._table.read(commit_name(version)))
        except FileNotFoundError as error:
            self._raise_damage(place, "is missing", error)
        except StoreFailure:  # nobody could look: that is no damage
            raise
        except OSError as error:
            self._raise_damage(place, f"cannot be read: {error.strerror}", error)
        except (ValueError, RecursionError) as error:
            self._raise_damage(place, f"is truncated or damaged: {error}", error)
        if not all(map(_is_action, actions)):
            self._raise_damage(place, "is damaged: it holds something else than actions")
        if not any("commitInfo" in action for action in actions):
            self._raise_damage(place, "is truncated or damaged: it holds no commit")
        info = info_in(actions)
        self._check_files(place, info, actions)
        return info

    def _check_files(
        self, place: str, info: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Compare the data files that a commit names with how many it says that it has."""
        metrics = info.get("operationMetrics")
        if not isinstance(metrics, dict | None):
            self._raise_damage(place, f"is damaged: its metrics are {metrics!r}")
        promised = (metrics or {}).get("num_added_files")
        if promised is None:
            return
        number, added = _number(promised), sum("add" in action for action in actions)
        if number is None:
            self._raise_damage(place, f"is damaged: it names {promised!r} data files")
        if number != added:
            self._raise_damage(place, f"is truncated: {added} of {promised} data files are named")

    def _scan(self) -> tuple[int, int | None]:
        """(first version whose commit file is needed, newest version)."""
        versions, checkpoints = versions_of(self._names())
        if not versions and not checkpoints:
            return 0, None
        first = max(checkpoints) + 1 if checkpoints else 0
        newest = max([*versions, *checkpoints])
        # the commit file of the checkpoint itself carries the commit id and is wanted too
        for version in range(max(first - 1, 0), newest + 1):
            if version not in versions:
                self._missing(version)
        return first, newest

    def _names(self) -> list[str]:
        try:
            return list(self._table.names(LOG))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except StoreFailure:
            raise
        except OSError as error:
            self._raise_damage(self._table.place(LOG), f"cannot be read: {error.strerror}", error)

    def _missing(self, version: int) -> NoReturn:
        self._raise_damage(self.place(version), "is missing")

    def _raise_damage(self, place: str, what: str, cause: Exception | None = None) -> NoReturn:
        raise self._damage(place, what, cause) from cause


class RemoteCommitLog(CommitLog):
    """A log on an object store, where a listing takes as long as all that is in it is many.

    An object is there whole or not at all, and a commit once read never changes. Raises
    StoreFailure when the store does not answer.
    """

    def __init__(self, table: Store, damage: Damage) -> None:
        super().__init__(table, damage)
        self._newest: int | None = None
        self._read: dict[int, Mapping[str, Any]] = {}
        self._lock = threading.RLock()

    def newest(self) -> int | None:
        """The newest version, None when there is no commit: by one listing of what came since."""
        with self._lock:
            known = self._newest
            after = "" if known is None else commit_name(known - 1).rpartition("/")[2]
            commits, checkpoints = versions_of(self._table.names(LOG, after))
            self._newest = max([*commits, *checkpoints], default=None)
            return self._newest

    def verify(self) -> int | None:
        """Like :meth:`newest`."""
        return self.newest()

    def whole(self) -> int | None:
        """Like :meth:`newest`."""
        return self.newest()

    def _info(self, version: int) -> Mapping[str, Any]:
        with self._lock:
            if version not in self._read:
                self._read[version] = super()._info(version)
            return self._read[version]


def commit_log(table: str, storage: Storage, damage: Damage) -> CommitLog:
    """Return the log of the table at an address; nothing is read yet."""
    store = store_at(table, storage)
    return RemoteCommitLog(store, damage) if is_remote(table) else CommitLog(store, damage)


def _is_action(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _number(value: Any) -> int | None:
    """A count as delta-rs (a number) and Spark (a text) write it, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


# -- version checksums -----------------------------------------------------------------------------

# Files beside commits (Delta protocol, *Version Checksum File*). Spark writes one with each commit
# and reads it instead of replaying the log; delta-rs writes none, so that the first touch of a
# shard that it created costs Spark three to seven jobs. A new table's is known, and a commit that
# touches no data file carries the one of the version before it over. They are for tables that
# nobody else knows of yet: readers believe a checksum, also beside a commit that a Spark has since
# written over, and none is written beside a commit to a table that others write to.

_EMPTY: dict[str, Any] = {
    "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "setTransactions": [],
    "domainMetadata": [], "allFiles": [],
}
_CARRIED = frozenset({"commitInfo", "metaData", "protocol"})
_IN_COMMIT_TIMESTAMP = "delta.enableInCommitTimestamps"


def write_checksum(path: str, version: int) -> bool:
    """Write the checksum of a version whose commit changes metadata or protocol alone.

    Returns whether one was written: not where the version before has none, where the commit does
    anything else, and where Spark has written its own. It is never needed, only fast.
    """
    checksum = _checksum(path, version)
    if checksum is None:
        return False
    data = json.dumps(checksum, separators=(",", ":")) + "\n"
    try:
        return store_at(path).put_if_absent(checksum_name(version), data.encode(), durable=False)
    except OSError:
        return False  # the log is whole without it


def _checksum(path: str, version: int) -> dict[str, Any] | None:
    """The checksum of a version, None where it does not follow from the one before it."""
    try:
        if version == 0:
            checksum = dict(_EMPTY)
        else:
            checksum = json.loads(store_at(path).read(checksum_name(version - 1)))
        actions = read_actions(path, version)
    except (OSError, ValueError, EngineFailure):
        return None
    checksum.pop("txnId", None)
    for action in actions:
        if not action.keys() <= _CARRIED:
            return None
        if "metaData" in action:
            checksum["metadata"] = action["metaData"]
        if "protocol" in action:
            checksum["protocol"] = action["protocol"]
    metadata = checksum.get("metadata")
    if metadata is None or "protocol" not in checksum:
        return None
    configuration: dict[str, str] = metadata.get("configuration") or {}
    # then every commit and every checksum carries a time of its own
    return None if configuration.get(_IN_COMMIT_TIMESTAMP, "").lower() == "true" else checksum
