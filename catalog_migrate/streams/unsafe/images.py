"""What an unsafe operation keeps of before: each item's image, in the operation's durable row."""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.model.objects import ObjectDefinition

UNSAFE = "unsafe"
"""Kind of an operation row."""



class Image(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stood before, of one item.

    ``lines`` are those of the last two entries, oldest first; ``line`` is the position after the
    newest committed batch ``batch``. ``generation`` is the one that this operation committed (that
    of before when positions stayed); ``target`` the line that it wrote. ``version`` is that of the
    table at ``shard`` after the stop, ``restored`` the one that its RESTORE made. ``past``: a sink
    that was only moved past a RESTORE of the table that it reads. ``expired`` counts by partition
    what was passed over and was not there to be read: no longer, or not yet.
    """

    item_id: str
    definition: ObjectDefinition
    links: dict[str, str]
    line: str
    lines: tuple[str, ...]
    batch: int | None
    generation: int
    target: str = ""
    upstream: str = ""
    topics: dict[str, str] = {}
    version: int | None = None
    shard: str = ""
    restored: int | None = None
    past: bool = False
    expired: dict[str, int] = {}

    @property
    def base(self) -> int | None:
        """The version of the table that what comes twice is counted from."""
        return self.version if self.restored is None else self.restored


def images_in(row: OperationRecord) -> tuple[Image, ...]:
    """What stood before an operation; empty until it was committed."""
    if row.unsafe is None or not row.unsafe.images:
        return ()
    return msgspec.json.decode(row.unsafe.images, type=tuple[Image, ...])
