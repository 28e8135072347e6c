"""Users' own views and functions over what a release brings, made and changed at any moment.

They are no one's but theirs (I12), and go on where what they read is committed (I8).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FunctionSpec, QueryRequest, SchemaMode, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.reconciler.actions import SHARD_KINDS
from catalog_migrate.testing.engine import SimulatedEngine, is_marked
from catalog_migrate.testing.world import Names, UserView, World
from tests.simulation.invariants import require
from tests.simulation.run import Run
from tests.simulation.scenario import Outside

Owned = UserView | FunctionSpec

KINDS = frozenset({"view", "function", "alter", "remove", "recreate"})
"""What users do with their own: make a view or a function, alter or drop one, or both in a row."""

MARK = "catalog_migrate.id"

OWN = "u"
"""A schema that no release has."""

_MODES: tuple[SchemaMode, ...] = (
    "COMPENSATION", "COMPENSATION", "COMPENSATION", "BINDING", "TYPE EVOLUTION", "EVOLUTION",
)  # fmt: skip

_BROKEN = ("FROM s.t1 |> SELECT *", "SELECT 'no end FROM s.t1", "SELECT c FROM s.nothing_at_all")
"""Texts that the simulated analyser refuses: two do not parse, one of these for nobody."""


class Users:
    """What users have of their own, as they left it, and what must be true of it."""

    def __init__(self, run: Run, trace: Callable[..., None]) -> None:
        self.run = run
        self.trace = trace
        self.held: dict[Identity, Owned] = {}
        self.acts = 0
        """How often users changed something of theirs."""
        self._made = 0

    # what they do ------------------------------------------------------------------------------
    def act(self, event: Outside, random: Random) -> None:
        """One thing that a user does; nothing where there is nothing to do it with."""
        kind = event.kind
        if not self.run.place.persistent:
            return
        if kind in ("view", "function"):
            self._made += 1
            schema = random.choice(("s", "z", OWN, OWN))
            name = ItemName(schema, f"mine{self._made}")
            if kind == "function" and random.random() < 0.3:
                name = self._as_ours(random) or name
            self._make(name, kind, random)
        elif self.held:
            identity = random.choice(sorted(self.held))
            kept = self.held[identity]
            if kind == "alter":
                self._alter(identity, kept, random)
                return
            self._drop(identity)
            if kind == "recreate":
                self._make(kept.name, "view" if isinstance(kept, UserView) else "function", random)

    def _as_ours(self, random: Random) -> ItemName | None:
        """A function's name as one of ours, in a schema of the user's own."""
        names = [name for schema, name in sorted(self._names.functions) if schema != OWN]
        return ItemName(OWN, random.choice(names)) if names else None

    @property
    def _names(self) -> Names:
        return self.run.place.world.names

    def _make(self, name: ItemName, kind: str, random: Random) -> None:
        identity: Identity = ("function" if kind == "function" else "relation", *name.folded)
        if identity in self.held:
            return
        made = self._view(name, random) if kind == "view" else self._function(name, random)
        if made is None:
            return
        self._put(identity, made)
        hidden = random.random() < 0.05
        if hidden:
            self.run.place.world.unreadable.add(made.name.folded)
        text = made.sql if isinstance(made, UserView) else made.body
        self.trace(f"a user makes the {kind} {name}{' that only he reads' * hidden}: {text}")

    def _alter(self, identity: Identity, kept: Owned, random: Random) -> None:
        """ALTER VIEW AS, or OR REPLACE of a function: the text changes, all else stays."""
        if isinstance(kept, UserView):
            made: Owned | None = self._view(kept.name, random)
            if isinstance(made, UserView):
                made = replace(made, schema_mode=kept.schema_mode)
        else:
            made = self._function(kept.name, random)
        if made is not None:
            self._put(identity, made)
            text = made.sql if isinstance(made, UserView) else made.body
            self.trace(f"a user alters {kept.name}: {text}")

    def _put(self, identity: Identity, made: Owned) -> None:
        """Have it in the catalog; it may close a circle, as a view that is renamed may."""
        names, key = self._names, made.name.folded
        self.acts += 1
        names.schemas.add(key[0])
        self.held[identity] = made
        if isinstance(made, UserView):
            names.relations[key] = made
        else:
            names.functions[key] = made

    def _drop(self, identity: Identity) -> None:
        kept = self.held.pop(identity)
        names = self._names.relations if isinstance(kept, UserView) else self._names.functions
        names.pop(kept.name.folded, None)
        self.run.place.world.unreadable.discard(kept.name.folded)
        self.acts += 1
        self.trace(f"a user drops {kept.name}")

    # texts -------------------------------------------------------------------------------------
    def _view(self, name: ItemName, random: Random) -> UserView | None:
        mode = random.choice(_MODES)
        if random.random() < 0.05:
            broken = random.choice(_BROKEN)
            return UserView(name, (Column("c", "INT"),), broken, "his own", {}, mode, ("c",))
        drawn = self._query(name, random)
        if drawn is None:
            return None
        sql, namespace = drawn
        session = self.session()
        found = session.analyse([QueryRequest(name, sql, {}, namespace=namespace)])[0].columns
        if found is None:  # Spark would not take it
            return None
        stored = tuple(Column(column.name, column.type) for column in found)
        outputs = tuple(column.name for column in found)
        return UserView(name, stored, sql, "his own", {}, mode, outputs, namespace)

    def _function(self, name: ItemName, random: Random) -> FunctionSpec | None:
        called = sorted(self._names.functions)
        if called and random.random() < 0.4:
            schema, ours = random.choice(called)
            if isinstance(self._names.functions[schema, ours].returns, str):
                argument = (Argument("x", "BIGINT"),)
                body = f"{schema}.{ours}(x)"
                return self._fitting(FunctionSpec(name, argument, "BIGINT", body, "his own"))
        drawn = self._query(name, random, star=False)
        if drawn is None:
            return None
        sql, namespace = drawn
        if namespace != name.schema:
            return None
        found = self.session().analyse([QueryRequest(name, sql, {}, namespace=namespace)])
        columns = found[0].columns
        if columns is None:
            return None
        returns = tuple(Column(f"o{n}", c.type) for n, c in enumerate(columns))
        return self._fitting(FunctionSpec(name, (), returns, sql, "his own"))

    def _fitting(self, function: FunctionSpec) -> FunctionSpec | None:
        try:
            self.session().read_function(function)
        except EngineFailure:
            return None
        return function

    def _query(
        self, name: ItemName, random: Random, *, star: bool = True
    ) -> tuple[str, str] | None:
        """A text over one or two relations, ours or users', and its namespace."""
        found = [key for key in sorted(self._names.relations) if key != name.folded]
        if not found:
            return None
        read = random.sample(found, min(len(found), random.choice((1, 1, 1, 2))))
        namespace = random.choice((name.schema, name.schema, "default"))
        columns = [self._columns(key) for key in read]
        if not all(columns):
            return None
        spelt = [key[1] if key[0] == namespace else ".".join(key) for key in read]
        if len(read) == 1 and star and random.random() < 0.3:
            return random.choice((f"SELECT * FROM {spelt[0]}", f"SELECT r.* FROM {spelt[0]} r")), (
                namespace
            )
        chosen = [random.choice(each).name for each in columns for _ in range(2)]
        if len(read) == 2:
            items = f"a.{chosen[0]} AS u0, b.{chosen[2]} AS u1"
            on = f"a.{chosen[1]} = b.{chosen[3]}"
            return f"SELECT {items} FROM {spelt[0]} a JOIN {spelt[1]} b ON {on}", namespace
        other = f", r.{chosen[1]} AS u1" if chosen[1] != chosen[0] else ""
        where = random.choice(("", "", f" WHERE r.{random.choice(columns[0]).name} > 5"))
        plain = f"SELECT {chosen[0]} FROM {spelt[0]}"
        aliased = f"SELECT r.{chosen[0]}{other} FROM {spelt[0]} r{where}"
        return random.choice((plain, aliased, aliased)), namespace

    def _columns(self, key: tuple[str, str]) -> list[Column]:
        try:
            return list(self.session().standing_columns(ItemName(*key)) or ())
        except EngineFailure:
            return []

    def session(self) -> SimulatedEngine:
        """An engine that nothing happens to."""
        return SimulatedEngine(self.run.place.world, persistent=True)

    # what must be true of it --------------------------------------------------------------------
    def untouched(self, process: str, call: str) -> None:
        """I12: a call of the engine, and all that is the users' is there as they left it."""
        for identity, kept in self.held.items():
            now = self._standing(identity)
            if now != kept:
                require("I12", False, f"{process}: {call} changed the user's {kept.name}: {now}")

    def _standing(self, identity: Identity) -> object:
        kind, *key = identity
        names = self._names.functions if kind == "function" else self._names.relations
        return names.get((key[0], key[1]))

    def check(self) -> None:
        """I8 at rest: a user's object gives what it gives over all that is committed."""
        state = self.run.place.state()
        if state is None or not self.held:
            return
        self.untouched("at rest", "nothing")
        committed, standing = self._committed(state), self.session()
        for kept in self.held.values():
            wanted, found = outcome_of(committed, kept), outcome_of(standing, kept)
            require("I8", wanted == found, f"a user's {kept.name} gives {found}, not {wanted}")

    def _committed(self, state: State) -> SimulatedEngine:
        """A catalog of the names that are committed, and of the users'."""
        world = World()
        names = world.names
        names.relations.update(self._names.relations)
        names.functions.update(self._names.functions)
        for standing in (names.relations, names.functions):
            for key in [
                key for key, held in standing.items()
                if not isinstance(held, ViewSpec | FunctionSpec) or is_marked(held)
            ]:
                del standing[key]
        for item in state.items.values():
            definition = item.definition
            if item.quarantined is not None:
                continue
            if definition.kind in (*SHARD_KINDS, "view"):
                name = definition.item_name
                names.relations[name.folded] = ViewSpec(name, definition.columns, "SELECT 1")
            elif definition.kind == "function":
                name = definition.item_name
                names.functions[name.folded] = FunctionSpec(
                    name, (), definition.returns or "", "x", properties={MARK: "committed"}
                )
        return SimulatedEngine(world, persistent=True)


Outcome = tuple[str, ...]
"""The columns that a reader gets, or the condition of what keeps him from them."""


def outcome_of(engine: SimulatedEngine, held: Owned) -> Outcome:
    """What a user's object gives to its reader."""
    read = engine.read_view if isinstance(held, UserView) else engine.read_function
    try:
        found = read(held)  # type: ignore[arg-type]
    except EngineFailure as failure:
        return (str(failure.condition),)
    return tuple(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in found)
