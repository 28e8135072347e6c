"""Commits to a Delta table's own log that say whose it is; compare-and-set, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog_migrate.catalog.marks import Mark, cleared, read_mark
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.protocol import set_properties_after
from catalog_migrate.errors import EngineFailure

ATTEMPTS = 50
"""Races for the next version that are lost before a table counts as too busy."""


def mark_at(path: str) -> Mark | None:
    """The mark of the Delta table at ``path``; None without one."""
    from deltalake import DeltaTable

    return read_mark(DeltaTable(path).metadata().configuration)


def put_mark(path: str, marks: Mapping[str, str], allowed: Callable[[Mark | None], bool]) -> int:
    """Mark a table whose present mark is ``allowed``, and return the version that carries ours.

    The commit lands exactly after the version that was looked at, so of two installations only
    one can win; the other finds the winner's mark. Raises :class:`Marked` then.
    """
    from deltalake import DeltaTable

    for _ in range(ATTEMPTS):
        table = DeltaTable(path)
        configuration = table.metadata().configuration
        found = read_mark(configuration)
        if not allowed(found):
            assert found is not None, path
            raise Marked(path, found)
        if all(configuration.get(name) == value for name, value in marks.items()):
            return int(table.version())
        version = set_properties_after(path, dict(marks), follows=int(table.version()))
        if version is not None:
            return version
    raise EngineFailure(
        f"{path} is written so often that it could not be marked",
        remedy="pause its writer and run again", transient=True,
    )


def clear_mark(path: str, lineage: str) -> bool:
    """Take our mark off a table; False when it is another's, nobody's, or the table is gone."""
    if not has_log(path):
        return False
    found = mark_at(path)
    if found is None or found.lineage != lineage:
        return False
    put_mark(path, cleared(), lambda mark: mark is None or mark.lineage == lineage)
    return True


class Marked(Exception):
    """A table carries the mark of another installation; inside this package only."""

    def __init__(self, path: str, mark: Mark) -> None:
        super().__init__(path)
        self.path = path
        self.mark = mark
