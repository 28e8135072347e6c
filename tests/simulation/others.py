"""Others than our processes: writers that append, and users who change names by hand.

What users have of their own over a release's objects is in :mod:`tests.simulation.users`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from random import Random
from typing import Any

from catalog_migrate.engine.port import FunctionSpec, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.testing.world import TableEntry, UserView
from tests.simulation.installation import WAREHOUSE
from tests.simulation.invariants import require, table_shards
from tests.simulation.run import Run
from tests.simulation.scenario import Outside


class Others:
    """What others do to an installation, and what must be true of it (I6, I7)."""

    def __init__(self, run: Run, trace: Callable[..., None]) -> None:
        self.run = run
        self.trace = trace
        self.meddled = False
        """Whether a user changed names that processes work on."""
        self.known: dict[str, int] = {}
        """Every path that a table was ever in force at, with the table's number."""
        self.foreign: dict[tuple[str, str], ViewSpec] = {}
        self.functions: dict[tuple[str, str], FunctionSpec] = {}
        """Functions of users' own."""
        self.lost: set[tuple[str, str]] = set()
        """Names that a process acted on when its lease was another's already."""

    def act(self, event: Outside, random: Random) -> None:
        """One thing that others do."""
        for number, path in self.run.known_paths:
            self.known[path] = number
        if event.kind == "row":
            self._append(random, self._a_path(random))
        elif event.kind == "row by name":
            self._append(random, self._a_name(random))
        elif self.run.place.persistent:
            getattr(self, f"_{event.kind}")(random)

    # writers -----------------------------------------------------------------------------------
    def _a_path(self, random: Random) -> str | None:
        """One that is in force, or any that ever was: a writer's own look may be old."""
        now = [path for _, path in self.run.known_paths]
        ever = now if random.random() < 0.7 else list(self.known)
        return random.choice(ever) if ever else None

    def _a_name(self, random: Random) -> str | None:
        relations = self.run.place.world.names.relations
        found = [
            entry.path for _, entry in sorted(relations.items())
            if isinstance(entry, TableEntry) and entry.path in self.known
        ]
        return random.choice(found) if found else None

    def _append(self, random: Random, path: str | None) -> None:
        """Append one row; acknowledged only where a table in force is, and then never lost."""
        run = self.run
        if path is None or path not in run.place.world.shards:
            return
        number = self.known[path]
        row = run.ledger.new_row(run.place.world.newest(path).columns, random)
        try:
            run.place.world.append(path, [row])
        except EngineFailure as refusal:
            self.trace(f"a writer's row for {path} is refused: {refusal.condition}")
            return
        self.trace(f"a writer appends row {next(iter(row.values()))} to {path}")
        state = run.place.state()
        living = set() if state is None else set(table_shards(state).values())
        require(
            "I7", path.removeprefix(f"{WAREHOUSE}/") in living,
            f"{path} took a row and is no table's any more",
        )
        run.ledger.acknowledge(number, row)
        run.rows += 1

    # users -------------------------------------------------------------------------------------
    def _ours(self, random: Random, kind: type) -> tuple[str, str] | None:
        names = self.run.place.world.names.relations
        found = [
            key for key, entry in sorted(names.items())
            if isinstance(entry, kind) and not isinstance(entry, UserView)
            and key not in self.foreign
        ]
        return random.choice(found) if found else None

    def _drop(self, random: Random) -> None:
        key = self._ours(random, object)
        if key is not None:
            self.meddled = True
            self.run.place.world.names.relations.pop(key)
            self.trace(f"a user drops {'.'.join(key)}")

    def _change(self, random: Random) -> None:
        """ALTER VIEW AS: the text changes, our stamps stay."""
        key = self._ours(random, ViewSpec)
        if key is None:
            return
        names = self.run.place.world.names.relations
        held = names[key]
        if isinstance(held, ViewSpec):
            self.meddled = True
            names[key] = ViewSpec(
                held.name, held.columns, held.sql.replace(" < 100", " < 99"), held.comment,
                held.properties,
            )
            self.trace(f"a user alters the view {held.name}")

    def _foreign(self, random: Random) -> None:
        """A view or function of a user's own, under a name that a release has or that none has.

        It may go over one of ours, as CREATE OR REPLACE does.
        """
        wanted = sorted(
            {(d.schema, d.name, d.kind == "function") for draft in self.run.chain
             for d in draft.objects if d.kind in ("table", "view", "function")}
            | {("s", "mine", False), ("z", "mine", False)}
        )
        schema, name, called = random.choice(wanted)
        names = self.run.place.world.names
        replaces = random.random() < 0.2
        if called:
            self._function(schema, name, replaces=replaces)
            return
        held = names.relations.get((schema, name))
        if held is not None and not (replaces and isinstance(held, ViewSpec)):
            return
        self.meddled = True
        one = (Column("one", "INT", False),)
        view = ViewSpec(ItemName(schema, name), one, "SELECT 1 AS one", "his own")
        names.schemas.add(schema)
        names.relations[schema, name] = view
        self.foreign[schema, name] = view
        self.trace(f"a user makes the view {schema}.{name}")

    def _function(self, schema: str, name: str, *, replaces: bool) -> None:
        """A function of a user's own."""
        names = self.run.place.world.names
        if (schema, name) in names.functions and not replaces:
            return
        self.meddled = True
        function = FunctionSpec(
            ItemName(schema, name), (Argument("x", "BIGINT"),), "BIGINT", "x", "his own"
        )
        names.schemas.add(schema)
        names.functions[schema, name] = self.functions[schema, name] = function
        self.trace(f"a user makes the function {schema}.{name}")

    def withdraw(self) -> None:
        """Users take what is theirs from names that the release in force wants; the rest stays."""
        run = self.run
        objects = run.chain[max(run.release_in_force(), 0)].objects
        names = run.place.world.names
        self.check()
        relations = {(d.schema, d.name) for d in objects if d.kind != "function"}
        functions = {(d.schema, d.name) for d in objects if d.kind == "function"}
        _withdraw("view", relations, self.foreign, names.relations, self.trace)
        _withdraw("function", functions, self.functions, names.functions, self.trace)

    def check(self) -> None:
        """I7: what is not ours is never dropped or replaced, but by the one statement that is on
        its way when its sender is stopped until its lease is another's."""
        names = self.run.place.world.names
        for key, view in self.foreign.items():
            if key not in self.lost:
                same = names.relations.get(key) == view
                require("I7", same, f"a user's view {'.'.join(key)} was replaced")
        for key, function in self.functions.items():
            if key not in self.lost:
                same = names.functions.get(key) == function
                require("I7", same, f"a user's function {'.'.join(key)} was replaced")


def _withdraw(
    kind: str, wanted: set[tuple[str, str]], own: MutableMapping[tuple[str, str], Any],
    standing: MutableMapping[tuple[str, str], Any], trace: Callable[..., None],
) -> None:
    """Take what is a user's ``own`` from names that are ``wanted``."""
    for key in sorted(wanted & set(own)):
        entry = own.pop(key)
        if standing.get(key) == entry:  # else lost to a late statement
            standing.pop(key)
            trace(f"the user drops the {kind} {'.'.join(key)} again")
