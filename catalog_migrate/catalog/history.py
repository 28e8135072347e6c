"""What the commits of a catalog say about themselves: who changed what, when, from where.

The log's own commits are the record: nothing else has to be written for it, and a process killed
right after its commit is in it. The audit table (``catalog/side_tables.py``) is a copy for Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Literal

import msgspec

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.records import MappingRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.log import Commit
from catalog_migrate.errors import CatalogCorrupt, UnknownSerial
from catalog_migrate.operations.steps import Executed

ROUTINE = frozenset({
    "take lease", "confirm lease", "release lease", "intent", "clean up", "reconcile", "remove",
    "compact", "ship", "stream", "snapshot", "lift holds", "count", "session", "abandon", "users",
})
"""Verbs of commits that only prepare, tidy or book: a history leaves them out unless asked."""

MANY = "*"
"""Stands for the item ids of a commit that touches more than its metadata should list."""

_RESTORE = "restore this file from a backup, or the whole catalog directory; nothing was written"


class Entry(msgspec.Struct, frozen=True):
    """One line of the history.

    ``verb`` is what was done, ``who`` the user of the operating system on ``host``, ``at`` ISO 8601
    in UTC. ``serial_before`` and ``serial_after`` are equal for a commit that left mappings, items
    and shards alone; ``serial_before`` is None for the first. ``release`` is in force after it.
    ``items`` are the ids it changed, None where the commit does not say. ``rollback_to`` is the
    serial that a rollback went back to. ``executed`` are the operations that were executed before
    it, since the commit that the same process made last.
    """

    version: int
    commit_id: str | None
    at: str | None
    verb: str
    who: str | None
    host: str | None
    serial_before: int | None
    serial_after: int
    release: str | None
    epoch: int | None
    reason: str | None
    items: tuple[str, ...] | None
    rollback_to: int | None = None
    executed: tuple[Executed, ...] = ()

    @property
    def is_routine(self) -> bool:
        """Whether it only prepared, tidied or booked."""
        return self.verb in ROUTINE and self.serial_before == self.serial_after


def entries(log: CatalogLog, *, down_to: int = 0, upto: int | None = None) -> Iterator[Entry]:
    """Yield the history, newest first, from version ``upto`` (default: the newest) to ``down_to``.

    Raises :class:`CatalogCorrupt`, naming the file, for a commit that is
    missing or not as commits are: a history is whole or it is an error. At least one commit
    further than ``down_to`` is read, for its serial.
    """
    waiting: list[tuple[Commit, int | None]] = []
    for commit in log.commits(upto=upto):
        serial = _serial(commit)
        if serial is not None:
            # one that says no serial (a compaction) left it as it found it
            for later, own in waiting:
                yield _entry(later, serial, serial if own is None else own)
            waiting = []
            if commit.version < down_to:
                return
        if commit.version >= down_to:
            waiting.append((commit, serial))
    for commit, serial in waiting:
        if serial is None:
            raise CatalogCorrupt(
                f"the file {commit.place} of the catalog's log says no serial", remedy=_RESTORE,
                file=commit.place,
            )
        yield _entry(commit, None, serial)


def version_of_serial(log: CatalogLog, serial: int) -> int:
    """Return the newest version at which the catalog had this serial.

    Raises :class:`UnknownSerial` for one that it never had.
    """
    newest: int | None = None
    for entry in entries(log):
        newest = entry.serial_after if newest is None else newest
        if entry.serial_after == serial:
            return entry.version
        if entry.serial_after < serial:
            break
    raise UnknownSerial(
        f"the catalog never had serial {serial}: it is at {newest}",
        remedy="catalog-migrate history lists the serials", serial=serial, newest=newest,
    )


def state_at(log: CatalogLog, serial: int) -> State:
    """Return the state that the catalog last had at ``serial``, read from the log's history.

    Raises :class:`UnknownSerial`, and
    :class:`CatalogCorrupt` when a file of that time is missing.
    """
    newest = log.read()
    if newest.serial == serial:
        return newest
    return log.read_at(version_of_serial(log, serial))


def list_touched_items(edits: Mapping[tuple[str, str], str | None], limit: int = 2000) -> str:
    """The item ids that a commit's edits touch, for its metadata; :data:`MANY` above ``limit``."""
    ids = [key for collection, key in edits if collection == "item"]
    return MANY if len(ids) > limit else ",".join(sorted(ids))


def _serial(commit: Commit) -> int | None:
    text = commit.metadata.get("serial")
    if text is None:
        return 0 if commit.metadata.get("kind") == "create" else None
    return _number(commit, "serial", text)


def _number(commit: Commit, name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise CatalogCorrupt(
            f"the file {commit.place} of the catalog's log is damaged: its {name} is {text!r}",
            remedy=_RESTORE, file=commit.place,
        )
    return int(text)


def _entry(commit: Commit, before: int | None, after: int) -> Entry:
    said = commit.metadata
    epoch = said.get("epoch")
    items = said.get("items")
    back = said.get("rollback_to")
    return Entry(
        version=commit.version, commit_id=commit.commit_id, at=_time(commit),
        verb=said.get("kind", "unknown"), who=said.get("who"), host=said.get("host"),
        serial_before=before, serial_after=after, release=said.get("release"),
        epoch=None if epoch is None else _number(commit, "epoch", epoch), reason=said.get("reason"),
        items=None if items is None or items == MANY else tuple(filter(None, items.split(","))),
        rollback_to=None if back is None else _number(commit, "rollback_to", back),
        executed=_decode_executed(said.get("executed")),
    )


def _decode_executed(text: str | None) -> tuple[Executed, ...]:
    """What a commit says was executed; nothing where a newer tool says it otherwise."""
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[Executed, ...])
    except msgspec.DecodeError:
        return ()


def _time(commit: Commit) -> str | None:
    if commit.milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(commit.milliseconds / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError) as error:
        raise CatalogCorrupt(
            f"the file {commit.place} of the catalog's log is damaged: its timestamp is "
            f"{commit.milliseconds}",
            remedy=_RESTORE, file=commit.place,
        ) from error
    return moment.isoformat(timespec="milliseconds")


# -- one object over the serials -----------------------------------------------------------------

Happening = Literal["created", "migrated", "renamed", "changed", "dropped"]


class ObjectEntry(msgspec.Struct, frozen=True):
    """One commit that changed the object: what happened, its name and global id after it.

    For a dropped object name and id are those it had.
    """

    entry: Entry
    happening: Happening
    name: str
    global_id: str


def object_history(log: CatalogLog, identity_key: str) -> Iterator[ObjectEntry]:
    """Yield the commits that changed the object under a name, newest first.

    ``identity_key`` is the durable key of a mapping. The object is the one that stands under the
    name now, else the one that stood there last; it is followed by its item id, through renames.
    Nothing is yielded for a name that nothing ever had. Raises
    :class:`CatalogCorrupt` where the history is not whole.
    """
    after = log.read()
    standing = after.mappings.get(identity_key)
    item_id = None if standing is None else standing.item_id
    for entry in entries(log):
        if entry.serial_before in (None, entry.serial_after):
            continue
        if item_id is not None and entry.items is not None and item_id not in entry.items:
            continue
        before = log.read_at(entry.version - 1)
        if item_id is None:
            found = before.mappings.get(identity_key)
            if found is None:
                continue
            item_id = found.item_id
        after = log.read_at(entry.version)
        one = _compare_item(item_id, before, after)
        if one is not None:
            yield ObjectEntry(entry, *one)


def _compare_item(item_id: str, before: State, after: State) -> tuple[Happening, str, str] | None:
    old, new = _mapping_of(before, item_id), _mapping_of(after, item_id)
    if old is None and new is None:
        return None
    if new is None:
        assert old is not None
        return "dropped", str(old.key), old.global_id
    if old is None:
        return "created", str(new.key), new.global_id
    if old.identity != new.identity:
        return "renamed", str(new.key), new.global_id
    if old.global_id != new.global_id:
        return "migrated", str(new.key), new.global_id
    if before.raw["item"].get(item_id) == after.raw["item"].get(item_id):
        return None
    return "changed", str(new.key), new.global_id


def _mapping_of(state: State, item_id: str) -> MappingRecord | None:
    return next((row for row in state.mappings.values() if row.item_id == item_id), None)
