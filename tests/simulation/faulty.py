"""Faults put into the ports of a start on purpose: does the simulation see?

Each is another implementation of the engine, of the catalog's log or of what streams are told, and
breaks one promise of it. The simulation has to find every one (test_seeded_faults.py); what it
finds is kept as a small schedule beside the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from catalog_migrate.catalog.commits import rows_of
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.records import (
    ColumnIds,
    IntentRecord,
    ItemRecord,
    OperationRecord,
    ShardRecord,
)
from catalog_migrate.catalog.state import State, decode_record, encode_record
from catalog_migrate.catalog.updates import Edit
from catalog_migrate.engine.port import (
    CopyResult,
    FunctionSpec,
    QueryAnalysis,
    QueryRequest,
    Registration,
    UserDefinition,
    ViewSpec,
)
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy
from catalog_migrate.streams.catalog.statement_changes import FollowTables
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.bodies import read_body
from catalog_migrate.testing.engine import SimulatedEngine, definition_of
from catalog_migrate.testing.world import UserView
from tests.simulation.installation import PortFault

Edits = dict[tuple[str, str], str | None]
"""(collection, key) -> the record's text, None for one that goes."""

LINEAGE = "catalog_migrate.lineage"
"""The property that says which catalog a view is of."""


# what an engine may get wrong ----------------------------------------------------------------
class SealsNothing(SimulatedEngine):
    """Replaced shards are left unsealed, and nobody looks."""

    def seal(self, path: str, **_: Any) -> int:
        return len(self.world.shard(path).versions) - 1

    def is_sealed(self, path: str) -> bool:
        return True


class KeepsSealsOfTheDead(SimulatedEngine):
    """What a dead holder sealed stays sealed."""

    def unseal(self, *_: Any, **__: Any) -> None:
        pass


class CleansNothingUp(SimulatedEngine):
    """What an attempt made that came to nothing stays."""

    def delete_shard(self, path: str) -> None:
        pass


class UnsealsBlindly(SimulatedEngine):
    """A late holder takes off whatever seal it finds."""

    def unseal(self, path: str, properties: Mapping[str, Any], **_: Any) -> None:
        super().unseal(path, properties, app_id="nobody", epoch=0)

    def fence(self, path: str, *_: Any) -> None:
        with self._call("fence", path):
            pass


class CountsNothing(SimulatedEngine):
    """Both sides of a copy have as many rows, whatever was copied; the base of two faults."""

    def count_rows(self, path: str, version: int) -> int:
        super().count_rows(path, version)
        return 0

    def skip_tail(self, target: str) -> CopyResult:
        """A tail that is said to be copied."""
        with self._call("copy_tail", target):
            return CopyResult(0, len(self.world.shard(target).versions) - 1)


class CopiesNoTail(CountsNothing):
    """Rows that come between the bulk copy and the seal are forgotten."""

    def copy_tail(self, source: str, after: int, upto: int, target: str, *_: Any) -> CopyResult:
        return self.skip_tail(target)


class LeavesRowsBehind(CountsNothing):
    """A rollback brings back the rows of then, and none that other shards have got since."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._copied: dict[str, str] = {}

    def copy_rows(self, source: str, version: int, target: str, *rest: Any) -> CopyResult:
        self._copied[target] = source
        return super().copy_rows(source, version, target, *rest)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str, *rest: Any
    ) -> CopyResult | None:
        if self._copied.get(target) != source:
            return self.skip_tail(target)
        return super().copy_tail(source, after, upto, target, *rest)


class ReplacesBlindly(SimulatedEngine):
    """Views are created with OR REPLACE, whoever's they are."""

    def create_view(self, view: ViewSpec, **_: Any) -> None:
        super().create_view(view, over=Registration(view.name, "view"))


class ReplacesFunctionsBlindly(SimulatedEngine):
    """Functions are created with OR REPLACE, whoever's they are."""

    def create_function(self, function: FunctionSpec, **_: Any) -> None:
        super().create_function(function, over=Registration(function.name, "function"))


class ForgetsToDrop(SimulatedEngine):
    """Names that go are left standing."""

    def drop(self, *_: Any, **__: Any) -> None:
        pass


class DropsWithoutLooking(SimulatedEngine):
    """What goes is dropped by its name, whatever stands there by then."""

    def drop(self, registration: Registration, **_: Any) -> None:
        super().drop(Registration(registration.name, registration.kind))


class DropsInCascades(SimulatedEngine):
    """With a name go the views that read it, whoever's they are."""

    def drop(self, registration: Registration, **_: Any) -> None:
        super().drop(registration)
        relations = self._names.relations
        for key, view in list(relations.items()):
            if isinstance(view, ViewSpec) and any(
                name.folded == registration.name.folded for _, name in read_body(view.sql).relations
            ):
                del relations[key]


class StoresReadersAnew(SimulatedEngine):
    """With a view those of users that read it are stored anew, as of its columns now."""

    def create_view(self, view: ViewSpec, **options: Any) -> None:
        super().create_view(view, **options)
        for found in self.user_definitions(view.name.schema):
            if view.name.name in found.sql:
                with suppress(EngineFailure):
                    super().replace_text(found, f"{found.sql} ")


class ReplacesTextsBlindly(SimulatedEngine):
    """A repair puts its text there, whatever a user has there by then."""

    def replace_text(self, definition: UserDefinition, sql: str) -> None:
        held = self._names.relations.get(definition.name.folded)
        now = definition_of(held) if isinstance(held, UserView) else definition
        super().replace_text(now, sql)


class BindsOnWhatIs(SimulatedEngine):
    """Users' texts are analysed over what the catalog has, not over what it will have."""

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        return super().analyse([replace(each, parents={}) for each in requests])


class LeavesAName(SimulatedEngine):
    """The names of tables are left standing when they go."""

    def drop(self, registration: Registration, **options: Any) -> None:
        if registration.kind != "table":
            super().drop(registration, **options)


class NamesNothing(SimulatedEngine):
    """Names that go or come are left to chance, and nobody looks."""

    def create_view(self, view: ViewSpec, **_: Any) -> None:
        pass

    def drop(self, *_: Any, **__: Any) -> None:
        pass


class OwnsEverything(SimulatedEngine):
    """Users' views and functions are shown as ours."""

    def observe(self, schema: str) -> Sequence[Registration]:
        held = (*self._names.relations.values(), *self._names.functions.values())
        ours: Mapping[str, str] = {}
        for each in held:
            if isinstance(each, ViewSpec | FunctionSpec) and LINEAGE in each.properties:
                ours = {LINEAGE: each.properties[LINEAGE]}
        return [
            each if each.kind == "table" else replace(each, properties={**ours, **each.properties})
            for each in super().observe(schema)
        ]

    def drop(self, registration: Registration, **_: Any) -> None:
        super().drop(Registration(registration.name, registration.kind))

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        super().create_view(view, over=None if over is None else Registration(view.name, "view"))


class WritesWhenItLooks(SimulatedEngine):
    """A schema is made when somebody looks whether a table is there."""

    def find_shard_problem(self, path: str) -> str | None:
        self.ensure_schema("s")
        return super().find_shard_problem(path)


class ForgetsToEvolve(SimulatedEngine):
    """Tables to be changed in place are marked as done without a change."""

    def evolve(self, *_: Any, **__: Any) -> None:
        pass


class LeavesComments(SimulatedEngine):
    """Tables that are changed in place keep the comments that they had."""

    def evolve(self, path: str, columns: Any, shard: Any, *rest: Any, **more: Any) -> None:
        before = self.world.newest(path)
        super().evolve(path, columns, replace(shard, comment=before.comment), *rest, **more)


class LeavesRefusals(SimulatedEngine):
    """A change in place that is refused for good is tried again for ever, never copied."""

    def evolve(self, path: str, *rest: Any, **more: Any) -> None:
        try:
            super().evolve(path, *rest, **more)
        except EngineFailure as error:
            error.condition = None  # no longer one of Spark's refusals
            raise


class CopiesRefusedByNames(SimulatedEngine):
    """The copy after a refusal takes each column from that of its own name, if there is one."""

    def copy_rows(
        self, source: str, version: int, target: str, projection: Sequence[tuple[str, str]]
    ) -> CopyResult:
        if source in self.world.refusing:
            held = {column.name for column in self.world.newest(source).columns}
            types = {column.name: column.type for column in self.world.newest(target).columns}
            projection = [
                (name, f"`{name}`" if name in held else f"CAST(NULL AS {types[name]})")
                for name, _ in projection
            ]
        return super().copy_rows(source, version, target, projection)


class SeesNoRows(SimulatedEngine):
    """Shards seem to be empty, so that a rollback does not say which values are lost."""

    def shard_size(self, path: str) -> TableSize:
        return super().shard_size(path)._replace(rows=0)


# what a log may get wrong --------------------------------------------------------------------
class FaultyLog(MemoryLog):
    """One process' view of a log: it may be shown another state, or other records may be kept."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log.uri, on_call=log.on_call)
        self._store = log._store

    def shown(self, state: State) -> Edits:
        """In what the state that is read differs from the committed one."""
        del state
        return {}

    def kept(self, before: State, edits: Edits) -> Edits:
        """What becomes of the edits of a commit."""
        del before
        return edits

    def read(self) -> State:
        state = super().read()
        return state.apply_edits(state.version, self.shown(state))

    def append(
        self, rows: Sequence[LogRow], *, follows: int, commit_id: str,
        metadata: Mapping[str, str], state: State | None = None,
    ) -> int:
        del state
        before = MemoryLog.read_at(self, follows)
        edits: Edits = {}
        for row in rows:  # the record that comes stands behind the one that goes
            edits[row.kind, row.key] = row.value if row.diff > 0 else None
        edits = self.kept(before, edits)
        edits = {
            (kind, key): text for (kind, key), text in edits.items()
            if before.raw.get(kind, {}).get(key) != text
        }
        return super().append(
            rows_of(before, edits), follows=follows, commit_id=commit_id, metadata=metadata,
            state=before.apply_edits(follows + 1, edits),
        )


def change_kept(edits: Edits, collection: str, change: Callable[[str, Any], Any]) -> Edits:
    """The edits with the records of one collection changed: (key, record) -> record."""
    return {
        (kind, key): text if text is None or kind != collection
        else encode_record(change(key, decode_record(kind, key, text)))
        for (kind, key), text in edits.items()
    }  # fmt: skip


class LosesReplies(FaultyLog):
    """A commit whose reply is lost is taken for one that was not made."""

    def find_commit(self, commit_id: str, *, after: int) -> int | None:
        return None


class CommitsUnfenced(FaultyLog):
    """A holder is shown its lease as it took it, so that a late one's commits land."""

    lease = ("lease", "migration")
    own: str | None = None

    def shown(self, state: State) -> Edits:
        return {} if self.own is None else {self.lease: self.own}

    def kept(self, before: State, edits: Edits) -> Edits:
        if self.lease in edits:
            text = edits[self.lease]
            self.own = text if text is not None and '"holder"' in text else None
        return edits


class AbandonsAtOnce(FaultyLog):
    """Before an attempt is undone, no commit takes the version that its own may still land in."""

    def append(
        self, rows: Sequence[LogRow], *, follows: int, metadata: Mapping[str, str], **rest: Any
    ) -> int:
        if metadata["kind"] == "abandon":
            return follows + 1
        return super().append(rows, follows=follows, metadata=metadata, **rest)


class ShowsNoUses(FaultyLog):
    """Nobody sees what uses what, so that names come in any order."""

    def shown(self, state: State) -> Edits:
        return {
            ("item", key): encode_record(replace(item, uses=()))
            for key, item in state.items.items() if item.uses
        }


class DeclaresNoUse(FaultyLog):
    """Objects are put on record without what they use."""

    def kept(self, before: State, edits: Edits) -> Edits:
        return change_kept(edits, "item", lambda _, item: replace(item, uses=()))


class ReusesIds(FaultyLog):
    """The counter of ids falls back with every commit of a release."""

    def kept(self, before: State, edits: Edits) -> Edits:
        return change_kept(edits, "allocator", lambda _, counter: replace(counter, next=1))


class HidesSessions(FaultyLog):
    """Nobody sees the processes that live with the tables, which are changed in place."""

    def shown(self, state: State) -> Edits:
        return {("session", key): None for key in state.sessions}


class ForgetsTails(FaultyLog):
    """What a sink goes on behind is the bulk copy, so that it sends the copied tail again."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def bulk(_: str, shard: ShardRecord) -> ShardRecord:
            # 0 makes the table, 1 is the bulk copy
            return shard if shard.version is None else replace(shard, version=min(shard.version, 1))

        return change_kept(edits, "shard", bulk)


class ForgetsRemovals(FaultyLog):
    """Data of shards whose retention is over is deleted, and nothing says so before."""

    def kept(self, before: State, edits: Edits) -> Edits:
        return {
            (kind, key): text for (kind, key), text in edits.items()
            if kind != "shard" or text is None or '"removing":true' not in text
        }


class CallsAllBound(FaultyLog):
    """Users' objects that broke are on record as if they went on."""

    def kept(self, before: State, edits: Edits) -> Edits:
        return change_kept(edits, "user_object", lambda _, row: replace(row, state="bound"))


class ForgetsSeals(FaultyLog):
    """The version of a seal that is put on record is that of the last rows before it."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def too_early(key: str, shard: ShardRecord) -> ShardRecord:
            held = before.shards.get(key)
            if shard.sealed_version is None or (held and held.sealed_version is not None):
                return shard
            return replace(shard, sealed_version=shard.sealed_version - 1)

        return change_kept(edits, "shard", too_early)


class SealsUnannounced(FaultyLog):
    """Shards are sealed without word of that on record."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def silent(_: str, intent: IntentRecord) -> IntentRecord:
            return replace(intent, seals=())

        return change_kept(edits, "intent", silent)


class KeepsQuarantine(FaultyLog):
    """What lost a table stays quarantined when a rollback brings that table back."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def still(key: str, item: ItemRecord) -> ItemRecord:
            held = before.items.get(key)
            return held if held is not None and held.quarantined is not None else item

        return change_kept(edits, "item", still)


class ShowsNoQuarantine(FaultyLog):
    """Users' objects that are quarantined keep their names."""

    def shown(self, state: State) -> Edits:
        return {
            ("item", key): encode_record(replace(item, quarantined=None))
            for key, item in state.items.items() if item.quarantined is not None
        }


class GoesBackByNames(FaultyLog):
    """A rollback is shown ids by the names of now: it takes a column for that of the same name."""

    def read_at(self, version: int) -> State:
        then = super().read_at(version)
        edits: Edits = {}
        for key, item in then.items.items():
            now = None if self.state is None else self.state.items.get(key)
            if now is None or item.column_ids is None:
                continue
            known = {name.lower(): number for number, name in now.name_of.items()}
            names = [column.name.lower() for column in item.definition.columns]
            ids = tuple(known.get(name, 1000 + place) for place, name in enumerate(names))
            values = tuple(now.ids.values_of.get(number, number) for number in ids)
            shown = replace(item, column_ids=ColumnIds(ids, 2000, values))
            edits["item", key] = encode_record(shown)
        return then.apply_edits(version, edits)


class NumbersByPlace(FaultyLog):
    """A table's columns are numbered by their places at each migration."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def numbered(_: str, item: ItemRecord) -> ItemRecord:
            if item.column_ids is None:
                return item
            ids = ColumnIds.number(len(item.definition.columns))
            return replace(item, column_ids=ids)

        return change_kept(edits, "item", numbered)


class Reorders(FaultyLog):
    """The program of a migration is put on record in another order than the plan's."""

    def place(self, step: Mapping[str, str | int]) -> object:
        """What the steps are ordered by."""
        return step["name"]

    def kept(self, before: State, edits: Edits) -> Edits:
        def reordered(_: str, row: OperationRecord) -> OperationRecord:
            steps = sorted(row.program, key=self.place)  # type: ignore[arg-type]
            return replace(row, program=tuple(
                {**step, "wave": wave} for wave, step in enumerate(steps, start=1)
            ))

        return change_kept(edits, "operation", reordered)


class DropsFirst(Reorders):
    """All drops come before all creates and replacements."""

    def place(self, step: Mapping[str, str | int]) -> object:
        return step["op"] != "drop", step["wave"]


# what streams may be told wrong ----------------------------------------------------------------
class LeavesAllAsItIs(FollowTables, frozen=True):
    def apply(self, _: State) -> Iterator[Edit]:
        return iter(())


class QuarantinesNothing(MigratedStreams):
    """Users' sinks whose table or key goes are left as they are."""

    def follow(self, migration: Migration) -> FollowTables:
        return LeavesAllAsItIs(migration)


class RemovesWhatSinksRead(MigratedStreams):
    """Retired shards go when retention is over, whoever has still to read them."""

    def still_read(self, state: State) -> frozenset[str]:
        return frozenset()


def plans_by_order(baseline: Any, release: Any, **options: Any) -> Any:
    """What a plan says hangs on the order in which definitions come."""
    found = plan_migration(baseline, release, **options)
    return replace(found, plan=replace(found.plan, plan_hash=release.objects[0].name))


FAULTS: Mapping[str, PortFault] = {
    "seals_nothing": PortFault(SealsNothing),
    "keeps_seals_of_the_dead": PortFault(KeepsSealsOfTheDead),
    "cleans_nothing_up": PortFault(CleansNothingUp),
    "unseals_blindly": PortFault(UnsealsBlindly),
    "copies_no_tail": PortFault(CopiesNoTail),
    "leaves_rows_behind": PortFault(LeavesRowsBehind),
    "brings_back_nulls": PortFault(SeesNoRows),
    "replaces_blindly": PortFault(ReplacesBlindly),
    "replaces_functions_blindly": PortFault(ReplacesFunctionsBlindly),
    "drops_without_looking": PortFault(DropsWithoutLooking),
    "drops_in_cascades": PortFault(DropsInCascades),
    "stores_readers_anew": PortFault(StoresReadersAnew),
    "replaces_texts_blindly": PortFault(ReplacesTextsBlindly),
    "binds_on_what_is": PortFault(BindsOnWhatIs),
    "leaves_a_name": PortFault(LeavesAName),
    "finishes_without_looking": PortFault(NamesNothing),
    "owns_everything": PortFault(OwnsEverything),
    "read_only_writes": PortFault(WritesWhenItLooks),
    "forgets_to_evolve": PortFault(ForgetsToEvolve),
    "leaves_comments": PortFault(LeavesComments),
    "leaves_refusals": PortFault(LeavesRefusals),
    "copies_refused_by_names": PortFault(CopiesRefusedByNames),
    "loses_replies": PortFault(log=LosesReplies),
    "commits_unfenced": PortFault(log=CommitsUnfenced),
    "abandons_at_once": PortFault(log=AbandonsAtOnce),
    "creates_in_any_order": PortFault(log=ShowsNoUses),
    "declares_no_use": PortFault(log=DeclaresNoUse),
    "reuses_ids": PortFault(log=ReusesIds),
    "reshapes_under_sessions": PortFault(log=HidesSessions),
    "forgets_that_tails_were_copied": PortFault(log=ForgetsTails),
    "removes_before_it_is_on_record": PortFault(log=ForgetsRemovals),
    "calls_all_bound": PortFault(log=CallsAllBound),
    "forgets_where_seals_are": PortFault(log=ForgetsSeals),
    "seals_unannounced": PortFault(log=SealsUnannounced),
    "keeps_quarantine": PortFault(log=KeepsQuarantine),
    "names_what_is_quarantined": PortFault(log=ShowsNoQuarantine),
    "goes_back_by_names": PortFault(log=GoesBackByNames),
    "numbers_by_place": PortFault(log=NumbersByPlace),
    "orders_by_name": PortFault(log=Reorders),
    "drops_first": PortFault(log=DropsFirst),
    "quarantines_nothing": PortFault(streams=QuarantinesNothing),
    "removes_what_sinks_read": PortFault(streams=RemovesWhatSinksRead),
    "takes_leases_early": PortFault(settings={"ttl": 0.001, "margin": 0.0}),
    "old_releases_come_back": PortFault(settings={"policy": Policy(allow_downgrade=True)}),
    "signs_nobody_in": PortFault(sessions=False),
    "plans_by_order": PortFault(plan=plans_by_order),
}
"""Faults of what a process is started with, by name: one promise of a port is broken."""
