"""The release as the planner and the engine see it: resolved definitions and what each uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import ObjectDefinition


class Place(NamedTuple):
    """Where something was declared; line and column count from 1, None where unknown."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A valid release.

    ``objects`` are resolved: types canonical with user types expanded, SQL with every name of
    the release qualified, so that Spark understands each text as it stands. ``uses`` maps every
    identity to the identities inside the release that it reads or uses, sorted. ``places`` is
    empty for a manifest. ``manifest_hash`` does not depend on file order or blanks.
    """

    name: str
    objects: tuple[ObjectDefinition, ...]
    manifest_hash: str
    uses: Mapping[Identity, tuple[Identity, ...]]
    places: Mapping[Identity, Place]
    by_identity: Mapping[Identity, ObjectDefinition] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_identity", {definition.identity: definition for definition in self.objects}
        )
