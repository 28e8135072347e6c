"""Users' own views and functions over what a release brings, made and changed at any moment.

They are no one's but theirs (I12), and go on where what they read is committed (I8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FunctionSpec, QueryRequest, SchemaMode, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import SHARD_KINDS, Argument, Column
from catalog_migrate.planner.plan import UserObject
from catalog_migrate.testing.bodies import find_row_function, read_body
from catalog_migrate.testing.engine import SimulatedEngine, definition_of, is_marked
from catalog_migrate.testing.world import Names, UserView, World
from tests.simulation.invariants import InvariantBroken, require
from tests.simulation.run import Run
from tests.simulation.scenario import Outside

Owned = UserView | FunctionSpec

Outcome = tuple[str, ...]
"""The columns that a reader gets, or the condition of what keeps him from them."""

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


class _Look(NamedTuple):
    """How all was when a process began to look: acts of users, changes of others, outcomes."""

    acts: int
    changes: int
    outcomes: Mapping[Identity, Outcome]


class Users:
    """What users have of their own, as they left it, and what must be true of it."""

    def __init__(self, run: Run, trace: Callable[..., None]) -> None:
        self.run = run
        self.trace = trace
        self.held: dict[Identity, Owned] = {}
        self.acts = self.repairs = 0
        """How often users changed something of theirs, and how often a text was repaired."""
        self.told: Counter[str] = Counter()
        """What was said beforehand and compared, by outcome."""
        self.clean = False
        """Whether the newest record was made with nobody else about."""
        self.acts_on_record = -1
        self._texts: dict[Identity, str] = {}
        self._looks: dict[str, _Look] = {}
        self._changes: Counter[str] = Counter()
        self._failed: set[str] = set()
        self._repaired_by: dict[str, set[Identity]] = {}
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
        self._texts[identity] = text_of(made)
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
        if found is None or len({c.name.lower() for c in found}) != len(found):
            return None  # Spark would not take it
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
    def untouched(self, process: str, call: str, *, repairs: bool = False) -> None:
        """I12: a call of the engine, and all that is the users' is there as they left it.

        ``repairs``: a text may be another one than before, by a repair or the way back from one.
        """
        for identity, kept in self.held.items():
            now = self._standing(identity)
            if now is kept:
                continue
            if repairs and isinstance(now, UserView | FunctionSpec):
                self._repaired(process, identity, kept, now)
            else:
                require("I12", False, f"{process}: {call} changed the user's {kept.name}: {now}")

    def _repaired(self, process: str, identity: Identity, kept: Owned, now: Owned) -> None:
        """I12: a text is only replaced by what is on record, which has what it replaces too."""
        state = self.run.place.state()
        row = None if state is None else state.user_objects.get(identity_text(identity))
        pair = (text_of(kept), text_of(now))
        left = self._texts[identity]  # it may have been repaired before
        on_record = row is not None and row.original == left and pair[1] in (row.repaired, left)
        require("I12", on_record, f"{process} puts {pair} into the user's {kept.name}: {row}")
        require("I12", _but_text(kept) == _but_text(now), f"{process} changed more: {now}")
        found = outcome_of(self.session(), now)
        if "*" not in pair[1]:  # which gives what there is
            names = [each.partition(" ")[0] for each in found]
            kept_names = [column.name for column in definition_of(kept).columns]
            require("I12", names == kept_names, f"{kept.name} was {kept}, and gives {found}")
        self.held[identity] = now
        self._repaired_by.setdefault(process, set()).add(identity)
        self.repairs += 1
        self.trace(f"{process} repairs {kept.name}: {pair[1]}")

    def _standing(self, identity: Identity) -> object:
        kind, *key = identity
        names = self._names.functions if kind == "function" else self._names.relations
        return names.get((key[0], key[1]))

    # what is said of it -------------------------------------------------------------------------
    def listed(self, process: str) -> None:
        """A process begins to look: what it says from here on is of now."""
        if process not in self._looks:
            session = self.session()
            outcomes = {identity: outcome_of(session, held) for identity, held in self.held.items()}
            self._looks[process] = _Look(self.acts, self.changes_but(process), outcomes)

    def changed(self, process: str) -> None:
        """A process has changed a name or a table."""
        self._changes[process] += 1

    def failed(self, process: str) -> None:
        """A call about users' objects failed: what the process then does not know is no wonder."""
        self._failed.add(process)

    def changes_but(self, process: str) -> int:
        """How often others than a process changed names or tables."""
        return sum(self._changes.values()) - self._changes[process]

    def _is_undisturbed(self, process: str) -> bool:
        """Whether nobody else changed anything since a process began to look."""
        look = self._looks.get(process)
        return look is not None and process not in self._failed and (
            (look.acts, look.changes) == (self.acts, self.changes_but(process))
        )

    def recorded(self, process: str) -> None:
        """I13, where a process has put on record what it saw: that is how it is, of every one."""
        self.clean = self._is_undisturbed(process)
        if self.clean:
            self.acts_on_record = self.acts
            self.check_record()

    def check_record(self) -> None:
        """I13: each that reads something of the catalog is on record with the state it is in."""
        state = self.run.place.state()
        if state is None:
            return
        rows, session = state.user_objects, self.session()
        readers = self._readers(state)
        for identity in readers:
            held = self.held[identity]
            row = rows.get(identity_text(identity))
            if row is None:
                raise InvariantBroken("I13", f"{held.name} is not on record: {text_of(held)}")
            found = outcome_of(session, held)
            if is_failure(found) != (row.state == "broken") or (
                is_failure(found) and row.condition != found[0]
            ):
                raise InvariantBroken("I13", f"{held.name} gives {found}, on record is {row}")
        for key, row in rows.items():
            if row.key.identity not in self.held:
                raise InvariantBroken("I13", f"{key} is on record and not in the catalog")

    def _readers(self, state: State) -> list[Identity]:
        """Those that read one of ours, directly or not, and that can be read."""
        ours = {mapping.identity for mapping in state.mappings.values()}
        found: set[Identity] = set()
        size = -1
        while size < len(found):
            size = len(found)
            for identity, held in self.held.items():
                if not self._is_hidden(identity) and not _reads(held).isdisjoint(ours | found):
                    found.add(identity)
        return sorted(found)

    def said(self, process: str, said: object) -> None:
        """I13: what a process said of users' objects before its commit is how it is behind it."""
        if not isinstance(said, tuple) or not self._is_undisturbed(process):
            return
        look, session = self._looks[process], self.session()
        entries = {entry.key.identity: entry for entry in said}
        repaired = self._repaired_by.get(process, set())
        for identity, before in look.outcomes.items():
            held = self.held[identity]
            if self._is_hidden(identity):
                continue
            entry, now = entries.get(identity), outcome_of(session, held)
            text = f"{held.name}: {before} became {now}, said was {entry}"
            if entry is None or entry.outcome == "unchanged":
                require("I13", before == now or identity in repaired, text)
            elif entry.outcome == "changed":
                require("I13", not is_failure(now), text)
                self._check_columns(entry, now, text)
            elif entry.outcome == "breaks" and identity in repaired:
                require("I13", not is_failure(now), text)
            elif entry.outcome == "breaks":
                first = "which breaks" not in (entry.reason or "")  # else one of several reasons
                require("I13", is_failure(now) and (not first or now == (entry.condition,)), text)
            elif entry.outcome == "broken":
                require("I13", is_failure(before), text)
            self.told[entry.outcome if entry is not None else "nothing"] += 1

    def _is_hidden(self, identity: Identity) -> bool:
        """Whether one, or one below it, cannot be read: what it reads is not known then."""
        pending, seen = [identity], set()
        while pending:
            current = pending.pop()
            held = self.held.get(current)
            if held is not None and held.name.folded in self.run.place.world.unreadable:
                return True
            if held is not None and current not in seen:
                seen.add(current)
                pending += _reads(held)
        return False

    def _check_columns(self, entry: UserObject, now: Outcome, text: str) -> None:
        given = {each.partition(" ")[0]: each.partition(" ")[2] for each in now}
        for column in entry.columns:
            type_now = given.get(column.name, "").removesuffix(" NOT NULL")
            if column.change in ("added", "removed"):
                require("I13", (column.name in given) == (column.change == "added"), text)
            elif column.change == "retyped":
                require("I13", type_now == column.new, text)
            elif column.change == "nullability":
                is_not_null = given.get(column.name, "").endswith(" NOT NULL")
                require("I13", is_not_null == (column.new == "NOT NULL"), text)

    # at rest ------------------------------------------------------------------------------------
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


def text_of(held: Owned) -> str:
    """The text of a view's query or a function's body."""
    return held.sql if isinstance(held, UserView) else held.body


def _but_text(held: Owned) -> Owned:
    """All that a repair leaves."""
    if isinstance(held, FunctionSpec):
        return replace(held, body="")
    return replace(held, sql="", columns=(), outputs=())


def _reads(held: Owned) -> set[Identity]:
    """What a text names, as far as it can be read."""
    try:
        body = read_body(text_of(held))
    except EngineFailure:
        if isinstance(held, UserView):
            return set()
        body = read_body(f"SELECT {held.body}")
    namespace = held.namespace if isinstance(held, UserView) else held.name.schema
    found: set[Identity] = set()
    for _, name in body.relations:
        function = find_row_function(name)
        each = function or name
        kind = "function" if function else "relation"
        found.add((kind, *ItemName(each.schema or namespace, each.name).folded))
    return found | {("function", *name.folded) for name in body.functions}




def is_failure(outcome: Outcome) -> bool:
    """Whether it is a condition."""
    return len(outcome) == 1 and " " not in outcome[0]


def outcome_of(engine: SimulatedEngine, held: Owned) -> Outcome:
    """What a user's object gives to its reader."""
    read = engine.read_view if isinstance(held, UserView) else engine.read_function
    try:
        found = read(held)  # type: ignore[arg-type]
    except EngineFailure as failure:
        return (str(failure.condition),)
    return tuple(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in found)
