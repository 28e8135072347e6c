"""Tries on a session what its catalog of names must be able to do, on names that it drops again.

Each requirement is met or not by the very statements that a start sends. AWS Glue, Unity Catalog
and the like are the session's configuration: nothing here knows one of them.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.engine.port import FunctionSpec, Registration, ShardSpec, ViewSpec
from catalog_migrate.engine.spark.connect import UnsuitableSession
from catalog_migrate.engine.spark.statements import by_path, rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import CatalogMigrateError, EngineFailure
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.store.address import is_same_place

if TYPE_CHECKING:
    from catalog_migrate.engine.spark.engine import SparkEngine

_MARKS = {"catalog_migrate.lineage": "probe", "catalog_migrate.id": "s1"}


class Requirement(msgspec.Struct, frozen=True):
    """One thing that a catalog must do: what it is ``needed_for``, and ``why`` it cannot, if so."""

    name: str
    needed_for: str
    why: str | None = None
    optional: bool = False

    def __str__(self) -> str:
        if self.why is None:
            return f"{self.name}: yes ({self.needed_for})"
        return f"{self.name}: no, so without {self.needed_for}: {self.why}"


class CatalogProbe(msgspec.Struct, frozen=True):
    """What a catalog can do, as seen in ``schema``, which is gone again."""

    catalog: str
    schema: str
    requirements: tuple[Requirement, ...]

    @property
    def lacking(self) -> tuple[Requirement, ...]:
        """What it cannot do and must."""
        return tuple(each for each in self.requirements if each.why and not each.optional)

    def __str__(self) -> str:
        tried = f"{self.catalog}, tried in the schema {self.schema}, which is dropped again"
        return "; ".join([tried, *map(str, self.requirements)])


class CatalogUnfit(UnsuitableSession):
    """A catalog that cannot have our names; ``probe`` is what was tried on it."""

    code = "CM0405"

    def __init__(self, probe: CatalogProbe) -> None:
        lacking = "; ".join(f"{each.name}: {each.why}" for each in probe.lacking)
        super().__init__(
            f"the catalog {probe.catalog} cannot have the names of a release: {lacking}",
            remedy="make another catalog the session's current one (spark.catalog, or USE), or let"
            " this user do there what docs/catalogs.md lists",
            probe=probe,
        )
        self.probe = probe


def probe_catalog(engine: SparkEngine, rows_at: str | None = None) -> CatalogProbe:
    """Try the session's current catalog with a table, a view and a function in a schema of its own.

    The table lies below ``rows_at``, in a temporary directory of this machine if None. Nothing of
    it is left, unless the catalog refuses to drop it.
    """
    token = secrets.token_hex(4)
    with ExitStack() as scratch:
        if rows_at is None:
            rows_at = scratch.enter_context(tempfile.TemporaryDirectory())
        place = f"{rows_at.rstrip('/')}/_probe-{token}"
        try:
            return _Trial(engine, f"catalog_migrate_probe_{token}", place).probe()
        finally:
            with suppress(CatalogMigrateError):
                engine.delete_shard(place)


def require_fit_catalog(engine: SparkEngine, rows_at: str | None) -> CatalogProbe:
    """:func:`probe_catalog`; CatalogUnfit where something is lacking that every release needs."""
    found = probe_catalog(engine, rows_at)
    if found.lacking:
        raise CatalogUnfit(found)
    return found


class _Trial:
    """The statements of one probe; what an earlier one lacks is why a later one cannot be tried."""

    def __init__(self, engine: SparkEngine, schema: str, path: str) -> None:
        self._engine = engine
        self._schema = schema
        self._path = path
        self._table = ItemName(schema, "t")
        self._view = ViewSpec(
            ItemName(schema, "v"), [Column("a", "INT", nullable=True)],
            f"SELECT a FROM {self._table.sql}", properties=_MARKS,
        )
        self._function = FunctionSpec(
            ItemName(schema, "f"), [Argument("a", "INT")], "INT", "a", properties=_MARKS
        )

    def probe(self) -> CatalogProbe:
        """Try it all, then drop what was made."""
        found = []
        for name, needed_for, optional, act in (
            ("a schema", "any name", False, self._make_schema),
            ("external tables with a location", "tables", False, self._make_table),
            ("rows by their path", "copies and changes in place", False, self._write_by_path),
            ("views with properties", "views, and telling ours from others'", False,
             self._make_view),
            ("SHOW TABLE EXTENDED", "upgrades, drift and its repair", False, self._list),
            ("SQL functions with comments", "functions", True, self._make_function),
            ("dropping", "objects that go, and all that is replaced", False, self._drop),
        ):
            found.append(Requirement(name, needed_for, self._try(act), optional))
        return CatalogProbe(self._engine.catalog, self._schema, tuple(found))

    def _try(self, act: Callable[[], str | None]) -> str | None:
        try:
            return act()
        except CatalogMigrateError as error:
            return error.message

    def _make_schema(self) -> None:
        self._engine.ensure_schema(self._schema)

    def _make_table(self) -> str | None:
        self._engine.create_shard(ShardSpec(self._path, self._view.columns))
        self._engine.register_table(self._table, self._path)
        found = self._engine.find(self._table)
        if found is None or found.location is None:
            return "the catalog does not tell where a table lies"
        if found.managed or not is_same_place(found.location, self._path):
            return f"it has the table at {found.location}, and not where it was made"
        return None

    def _write_by_path(self) -> str | None:
        with failing(f"write to {self._path}"):
            run(self._engine.spark, f"INSERT INTO {by_path(self._path)} VALUES (1)")
            found = rows(self._engine.spark, f"SELECT a FROM {self._table.sql}")
        return None if found else f"a row that was written by path is not in {self._table}"

    def _make_view(self) -> str | None:
        self._engine.create_view(self._view)
        found = self._engine.find(self._view.name)
        if found is None or found.kind != "view":
            return "the view is not there"
        if dict(found.properties) != _MARKS:
            return "the view's properties were not kept"
        self._engine.create_view(self._view, over=found)
        return None

    def _list(self) -> str | None:
        listed = {each.name.name for each in self._engine.observe(self._schema)}
        return None if {"t", "v"} <= listed else f"of a table and a view it lists {sorted(listed)}"

    def _make_function(self) -> str | None:
        self._engine.create_function(self._function)
        for found in self._engine.observe(self._schema):
            if found.kind == "function":
                return None if dict(found.properties) == _MARKS else "its comment was not kept"
        return "the function is not listed"

    def _drop(self) -> str | None:
        try:
            standing = self._engine.observe(self._schema)
        except EngineFailure:  # told already: what was made is dropped by its name
            standing = [
                Registration(self._view.name, "view"), Registration(self._table, "table"),
            ]
        for each in sorted(standing, key=lambda one: one.kind, reverse=True):
            self._engine.drop(each)
        with failing(f"drop the schema {self._schema}"):
            run(self._engine.spark, f"DROP SCHEMA IF EXISTS {quote_sql(self._schema)}")
        return None
