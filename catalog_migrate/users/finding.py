"""Users' views and SQL functions: what the catalog has of them, and which read what is ours.

By their texts, as those of a release are read; Spark's analyser is asked where a text has names
that only Spark can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import Identity, ItemKey, ItemName, identity_of
from catalog_migrate.model.progress import OnProgress, Progress, silent
from catalog_migrate.sql.references import Occurrence, read_names
from catalog_migrate.users.settings import UserSettings

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Engine, UserDefinition

SESSION_CATALOG = "spark_catalog"
_WORD = re.compile(r"\w+")
_KINDS = {"relation": "table"}
"""The kind that stands for each namespace of which only the identity is known."""


class Listing(msgspec.Struct, frozen=True):
    """What the catalog has of views and SQL functions that no release made.

    ``unlisted`` says why a schema could not be listed; its key is a pattern of the settings where
    no schema fits it, and empty where the catalog does not say which schemas it has.
    """

    definitions: tuple[UserDefinition, ...] = ()
    unlisted: Mapping[str, str] = msgspec.field(default_factory=dict)


def list_definitions(
    engine: Engine, settings: UserSettings, on_progress: OnProgress = silent, *,
    ours: Container[Identity] = (),
) -> Listing:
    """List the views and functions of every schema that the settings let be looked at.

    Names of ``ours`` are not looked at. A schema is a call of the engine, ``settings.threads`` of
    them at once. Never raises for what the catalog refuses.
    """
    try:
        present = engine.schemas()
    except CatalogMigrateError as error:
        return Listing(unlisted={"": error.message})
    unlisted = {
        pattern: "no schema of the catalog is called so" for pattern in settings.schemas
        if not any(UserSettings(schemas=(pattern,)).has_schema(schema) for schema in present)
    }
    schemas = sorted(filter(settings.has_schema, present))
    definitions: list[UserDefinition] = []
    workers = Workers(settings.threads)

    def list_one(schema: str) -> Sequence[UserDefinition] | str:
        try:
            return engine.user_definitions(schema, but=ours)
        except CatalogMigrateError as error:
            return error.message

    try:
        for number, (schema, found) in enumerate(workers.each(schemas, list_one), start=1):
            on_progress(Progress("users' objects", number, len(schemas), schema))
            if isinstance(found, str):
                unlisted[schema] = found
            else:
                definitions += (each for each in found if settings.has(each.name))
    finally:
        workers.close()
    return Listing(tuple(definitions), unlisted)


class Readers(msgspec.Struct, frozen=True):
    """Users' objects that read ours, directly or through others of theirs.

    ``graph`` has what is ours and these: those of a user are the keys of ``definitions``.
    ``unread`` are those of which it is not known, each with the reason. ``unclear`` are those whose
    texts have names that only Spark can read: it has said what these are, and nothing can be put in
    their place.
    """

    graph: DependencyGraph
    definitions: Mapping[Identity, UserDefinition]
    unread: tuple[UserDefinition, ...] = ()
    unclear: frozenset[Identity] = frozenset()

    @property
    def in_circles(self) -> frozenset[Identity]:
        """Those that read each other in a circle, and those that read one of these."""
        return self.graph.without_order & self.definitions.keys()

    @property
    def waves(self) -> tuple[tuple[Identity, ...], ...]:
        """Users' objects in groups, what is read first; those in circles are the last group."""
        ordered = self.graph.part(set(self.graph) - self.graph.without_order)
        waves = ordered.waves(self.definitions.keys())
        circles = tuple(node for node in self.graph if node in self.in_circles)
        return (*waves, circles) if circles else waves


def find_readers(
    definitions: Iterable[UserDefinition], ours: Collection[Identity], *,
    catalog: str = SESSION_CATALOG,
    relations_read: Callable[[UserDefinition], Sequence[ItemName]] | None = None,
) -> Readers:
    """Find which definitions read ``ours``, directly or not.

    ``ours`` is a graph, whose edges are kept, or its identities alone; a definition under one of
    these names is no user's. ``catalog`` is the engine's; its ``relations_read`` is asked for texts
    that only Spark can read, and without it they are unread. Circles among users' objects are
    allowed.
    """
    search = _Search(ours, catalog)
    unclear: list[UserDefinition] = []
    for definition in definitions:
        if _key(definition).identity in search.ours:
            continue
        if definition.unread is not None:
            search.unread.append(definition)
        elif not search.read(definition):
            unclear.append(definition)
    asked: list[UserDefinition] = []
    while unclear and (asked := search.list_concerned(unclear)):
        for definition in asked:
            search.ask(definition, relations_read)
        answered = set(map(id, asked))
        unclear = [each for each in unclear if id(each) not in answered]
    return search.found()


class _Search:
    """The edges between users' objects and ours, as far as they are found."""

    def __init__(self, ours: Collection[Identity], catalog: str) -> None:
        if not isinstance(ours, DependencyGraph):
            keys = {
                (space, schema, name): ItemKey(schema, _KINDS.get(space, space), name)
                for space, schema, name in ours
            }
            ours = DependencyGraph({}, keys)
        self.ours = ours
        self.unread: list[UserDefinition] = []
        self._catalog = catalog.lower()
        self._definitions: dict[Identity, UserDefinition] = {}
        self._unclear: set[Identity] = set()
        self._names: dict[Identity, set[Identity]] = {}

    def read(self, definition: UserDefinition) -> bool:
        """Take the names in a text; False where it may have others."""
        try:
            names, complete = read_names(definition.sql)
        except RecursionError:
            names, complete = [], False
        node = _key(definition).identity
        self._definitions[node] = definition
        found = (self._identity(each, definition) for each in names)
        self._names[node] = {each for each in found if each is not None}
        return complete

    def list_concerned(self, unclear: Sequence[UserDefinition]) -> list[UserDefinition]:
        """Those whose texts have a word of the name of one of ours, or of one that reads ours.

        And those that may spell such a name without it.
        """
        whole = self._whole()
        nodes = (*self.ours, *whole.dependents(self.ours))
        words = {word for node in nodes for word in _WORD.findall(node[2])}
        return [
            each for each in unclear
            if not words.isdisjoint(_WORD.findall(each.sql.lower())) or _may_spell(each.sql)
        ]

    def ask(
        self, definition: UserDefinition,
        relations_read: Callable[[UserDefinition], Sequence[ItemName]] | None,
    ) -> None:
        """Take what Spark says that a definition reads."""
        reason = "its text has names that only Spark can read"
        if relations_read is not None:
            try:
                names = relations_read(definition)
            except CatalogMigrateError as error:
                reason = f"{reason}, and {error.message}"
            else:
                node = _key(definition).identity
                read = {identity_of("view", *name) for name in names} - {node}
                if not read <= self._names[node] or _may_spell(definition.sql):
                    self._unclear.add(node)
                self._names[node] |= read
                return
        self.unread.append(msgspec.structs.replace(definition, unread=reason))

    def found(self) -> Readers:
        """Only what reads ours."""
        whole = self._whole()
        readers = whole.dependents(self.ours) & self._definitions.keys()
        return Readers(
            whole.part({*self.ours, *readers}),
            {node: self._definitions[node] for node in whole if node in readers},
            tuple(self.unread),
            readers & self._unclear,
        )

    def _whole(self) -> DependencyGraph:
        keys = {node: self.ours.key(node) for node in self.ours}
        keys |= {node: _key(definition) for node, definition in self._definitions.items()}
        uses: dict[Identity, Iterable[Identity]] = {
            node: self.ours.uses(node) for node in self.ours
        }
        uses |= {node: names & keys.keys() for node, names in self._names.items()}
        return DependencyGraph(uses, keys)

    def _identity(self, name: Occurrence, definition: UserDefinition) -> Identity | None:
        """What a name stands for; None for what is of another catalog, and for a type."""
        parts = name.parts
        if name.kind == "type":
            return None
        if len(parts) == 3 and parts[0].lower() == self._catalog:
            parts = parts[1:]
        elif not definition.namespace or len(parts) > 2:
            return None
        if len(parts) == 1:
            parts = (definition.namespace, *parts)
        return (name.kind, parts[0].lower(), parts[1].lower())


def _may_spell(sql: str) -> bool:
    """Whether a text may give a name as the value of an expression or variable."""
    return "identifier" in _WORD.findall(sql.lower()) or "${" in sql


def _key(definition: UserDefinition) -> ItemKey:
    return ItemKey(definition.name.schema, definition.kind, definition.name.name)
