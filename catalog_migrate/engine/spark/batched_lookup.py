"""One look at the names that are dropped in the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from catalog_migrate.engine.port import Registration
from catalog_migrate.model.names import ItemName

FRESH = 1.0
"""Seconds that an answer may wait for its DROP; it waits for those beside it, a few at a time."""

Folded = tuple[str, str]
"""A name as the catalog compares it."""


class BatchedLookup:
    """What stands under names right before they are dropped, a statement for those of a group.

    A look takes as long for many names as for one, and longer than a DROP. An answer is given once
    and while it is fresh: who asks again, after a failure, or too late, is looked for alone.
    ``look`` gives what stands under names of one schema, by the folded name. Safe from any thread.
    """

    def __init__(
        self, look: Callable[[Sequence[ItemName]], Mapping[Folded, Registration]]
    ) -> None:
        self._look = look
        self._guard = threading.Lock()
        self._group: Sequence[Registration] = ()
        self._answers: dict[Folded, Registration | None] = {}
        self._until = 0.0

    def find(self, name: ItemName, group: Sequence[Registration]) -> Registration | None:
        """The relation under one name of a group, which is the same object for each of them."""
        with self._guard:
            if self._group is not group:
                self._answers = self._look_at(group)
                self._group, self._until = group, time.monotonic() + FRESH
            if name.folded in self._answers and time.monotonic() < self._until:
                return self._answers.pop(name.folded)
        return self._look([name]).get(name.folded)

    def _look_at(self, group: Sequence[Registration]) -> dict[Folded, Registration | None]:
        schemas: dict[str, list[ItemName]] = {}
        for each in group:
            if each.kind != "function":
                schemas.setdefault(each.name.schema, []).append(each.name)
        answers: dict[Folded, Registration | None] = {
            name.folded: None for names in schemas.values() for name in names
        }
        for names in schemas.values():
            answers.update(self._look(names))
        return answers
