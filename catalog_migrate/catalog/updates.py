"""What a commit writes, as values: records that are put and deleted, or made of the newest ones.

An update says what it comes to in a state (:meth:`Update.apply`); a commit asks for that again
wherever another writer came before it. Anything that prints, compares and has that method is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from catalog_migrate.catalog.records import ConfigRecord, ItemRecord, Record, name_item
from catalog_migrate.catalog.state import State, find_differences

if TYPE_CHECKING:
    from catalog_migrate.model.objects import Hashes


class _Fixed(msgspec.Struct, frozen=True):
    def apply(self, _: State) -> tuple[Edit]:
        """Return itself."""
        return (cast("Edit", self),)


class Put(_Fixed, frozen=True):
    """Set the record of a key."""

    collection: str
    key: str
    record: Record


class Delete(_Fixed, frozen=True):
    """Remove the record of a key; nothing happens where there is none."""

    collection: str
    key: str


class RaiseSerial(_Fixed, frozen=True):
    """Count the commit: it changes mappings, items or committed shards.

    Without any other effective edit the serial stays too.
    """


class RaiseFormat(msgspec.Struct, frozen=True):
    """Raise the record format of the catalog to this one, where it is an older one."""

    format: int

    @property
    def notice(self) -> str:
        """Return what it means for other versions, to announce it."""
        return (
            f"the record format of the catalog is raised to {self.format}: a version of"
            " catalog-migrate that does not know it is refused from then on (CM0110)"
        )

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the setting, where it changes."""
        if int(state.setting("format_version")) >= self.format:
            return ()
        return (Put("config", "format_version", ConfigRecord(value=str(self.format))),)


Edit = Put | Delete | RaiseSerial
"""An update that is the same in every state."""


class Update(Protocol):
    """What a commit writes; a value."""

    def apply(self, state: State) -> Iterable[Edit]:
        """Return what it comes to in ``state``, the newest; an error ends the commit."""
        ...


class Amend(msgspec.Struct, frozen=True):
    """Set fields of a record as it is now, where there is one that has the values of ``where``."""

    collection: str
    key: str
    fields: Mapping[str, Any]
    where: Mapping[str, Any] = {}

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the record with the fields."""
        record = state.find(self.collection, self.key)
        if record is None or any(
            getattr(record, name) != value for name, value in self.where.items()
        ):
            return ()
        return (Put(self.collection, self.key, msgspec.structs.replace(record, **self.fields)),)


class Swap(msgspec.Struct, frozen=True):
    """Put ``after`` in the place of ``before``, and leave any other record alone; None is none."""

    collection: str
    key: str
    before: Record | None
    after: Record | None

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the record of afterwards."""
        if state.find(self.collection, self.key) != self.before:
            return ()
        if self.after is None:
            return (Delete(self.collection, self.key),)
        return (Put(self.collection, self.key, self.after),)


class WhileAt(msgspec.Struct, frozen=True):
    """An update of the catalog at one serial; nothing at a later one."""

    serial: int
    update: Update

    def apply(self, state: State) -> Iterable[Edit]:
        """Return what the update comes to."""
        return self.update.apply(state) if state.serial == self.serial else ()


def put_object(
    item_id: str, item: ItemRecord, hashes: Hashes, *, applied: tuple[str, ...] = ()
) -> tuple[Put, Put]:
    """Return the puts of an object in force, and of its name."""
    key, mapping = name_item(item_id, item, hashes, applied)
    return Put("mapping", key, mapping), Put("item", item_id, item)


def edits_of(state: State, updates: Iterable[Update]) -> list[Edit]:
    """Return what updates come to in ``state``, one after the other."""
    return [edit for update in updates for edit in update.apply(state)]


def find_effects(
    state: State, updates: Iterable[Update]
) -> dict[tuple[str, str], str | None]:
    """Return what of the updates changes ``state``: texts by place, None for a record that goes.

    The last word on a key counts. The raised serial is among them.
    """
    records: dict[tuple[str, str], Record | None] = {}
    counts = False
    for edit in edits_of(state, updates):
        if isinstance(edit, RaiseSerial):
            counts = True
        else:
            records[edit.collection, edit.key] = edit.record if isinstance(edit, Put) else None
    effects = find_differences(state, records)
    if effects and counts:
        serial = ConfigRecord(value=str(state.serial + 1))
        effects |= find_differences(state, {("config", "serial"): serial})
    return effects


def preview(state: State, updates: Iterable[Update]) -> State:
    """Return the state as the updates would leave it."""
    return state.apply_edits(state.version, find_effects(state, updates))
