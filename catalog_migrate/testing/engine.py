"""The engine in memory: implements :mod:`catalog_migrate.engine.port`, refuses what Spark refuses.

A process is one :class:`SimulatedEngine`; the :class:`~catalog_migrate.testing.world.World` below
it outlives the process. Every call is announced to ``on_call`` as ``<method>`` before its effect
and as ``<method>.done`` after it, so that a test can count, record, pause or crash there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from catalog_migrate.delta.seal import SEAL
from catalog_migrate.engine.port import (
    AnyRequest,
    BindResult,
    CopyResult,
    FillRequest,
    FunctionSpec,
    MissingProperties,
    QueryAnalysis,
    QueryRequest,
    Registration,
    RowsRefused,
    RowsRequest,
    ShardSpec,
    UserDefinition,
    ViewSpec,
    contract_reason,
)
from catalog_migrate.errors import EngineFailure, RowNotConverted
from catalog_migrate.model.layout import Layout, Shape, steps_to
from catalog_migrate.model.names import Identity, ItemName, identity_of
from catalog_migrate.model.objects import Column
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.table_features import Unsupported
from catalog_migrate.model.table_properties import is_metadata, needs_copy
from catalog_migrate.testing.bodies import (
    Row,
    analyse,
    analyse_query,
    bind,
    compile_check,
    compile_expression,
    evaluate,
    find_row_function,
    read_body,
    scalar_returns,
    view_columns,
)
from catalog_migrate.testing.world import (
    Names,
    Shard,
    TableEntry,
    UserView,
    Version,
    World,
    alter,
    bare,
    evolve_columns,
    fresh_name,
)

BYTES_PER_ROW = 100
"""What :meth:`SimulatedEngine.shard_size` takes a row for."""

T = TypeVar("T")
_APPEND_ONLY = frozenset({"append", "metadata", "fence"})


def _silent(_: str) -> None:
    """The default ``on_call``: nobody listens."""


class _Call:
    """Announces one call before its effect, and after it unless it failed."""

    __slots__ = ("_engine", "_method")

    def __init__(self, engine: SimulatedEngine, method: str) -> None:
        self._engine = engine
        self._method = method

    def __enter__(self) -> None:
        self._engine.on_call(self._method)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._engine.on_call(self._method + ".done")


class SimulatedEngine:
    """One simulated process' view of the world.

    ``persistent`` says whether names live in the world (a metastore) or die with this instance;
    ``on_call`` hears every call (module docstring) and may raise; it may be set later. ``about``
    is what the call is about; listings come the other way round while ``reorders`` is set.
    """

    def __init__(
        self, world: World | None = None, *, persistent: bool = False,
        on_call: Callable[[str], None] | None = None,
    ) -> None:
        self.world = world if world is not None else World()
        self.persistent_names = persistent
        self._names = self.world.names if persistent else Names()
        self.on_call: Callable[[str], None] = on_call or _silent
        self.about: object = ""
        self.reorders = False

    @property
    def catalog(self) -> str:
        return "spark_catalog"

    def _call(self, method: str, about: object = "") -> _Call:
        self.about = about
        return _Call(self, method)

    def _shuffle(self, found: list[T]) -> list[T]:
        """A listing in the order that this process happens to get it in."""
        return found[::-1] if self.reorders else found

    def _wrote_name(self) -> None:
        if self.persistent_names:
            self.world.writes += 1

    # names ---------------------------------------------------------------------------------
    def ensure_schema(self, schema: str, lineage: str = "") -> None:
        with self._call("ensure_schema", schema):
            if schema.lower() not in self._names.schemas:
                self._names.schemas.add(schema.lower())
                self._names.lineages[schema.lower()] = lineage
                self._wrote_name()

    def drop_schema_if_empty(self, schema: str, lineage: str = "") -> None:
        """Drop a schema without names, as of the port; a simulated one has no directory."""
        with self._call("drop_schema_if_empty", schema):
            folded = schema.lower()
            if lineage and self._names.lineages.get(folded) != lineage:
                return
            held = (*self._names.relations, *self._names.functions)
            if folded in self._names.schemas and all(key[0] != folded for key in held):
                self._names.schemas.discard(folded)
                self._names.lineages.pop(folded, None)
                self._wrote_name()

    def names(self, schema: str) -> frozenset[ItemName]:
        with self._call("names", schema):
            folded = schema.lower()
            return frozenset(
                entry.name for key, entry in self._names.relations.items() if key[0] == folded
            )

    def observe(self, schema: str) -> Sequence[Registration]:
        """All relations and functions of a schema, relations first, by folded name."""
        with self._call("observe", schema):
            folded = schema.lower()
            relations = [
                _relation_registration(entry)
                for key, entry in sorted(self._names.relations.items(), key=lambda pair: pair[0])
                if key[0] == folded
            ]
            functions = [
                _function_registration(entry)
                for key, entry in sorted(self._names.functions.items(), key=lambda pair: pair[0])
                if key[0] == folded
            ]
            return self._shuffle([*relations, *functions])

    def register_table(self, name: ItemName, path: str) -> None:
        """Make ``name`` a table at an existing shard.

        EngineFailure: no shard there, no such schema, the name taken by anything else.
        """
        with self._call("register_table", name):
            self.world.shard(path)
            self._need_schema(name)
            held = self._names.relations.get(name.folded)
            if isinstance(held, TableEntry) and held.path == path:
                return
            if held is not None:
                raise EngineFailure(
                    f"{name} exists already", condition="TABLE_OR_VIEW_ALREADY_EXISTS"
                )
            self._names.relations[name.folded] = TableEntry(name, path)
            self._wrote_name()

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        """Create (or replace) a view; its body is analysed against the names that stand now.

        EngineFailure: a table holds the name, a parent or column is missing, the body's types do
        not fit the contract, the view would read itself.
        """
        with self._call("create_view", view.name):
            self._need_schema(view.name)
            held = self._names.relations.get(view.name.folded)
            if isinstance(held, TableEntry):
                raise EngineFailure(
                    f"{view.name} is a table", condition="EXPECT_VIEW_NOT_TABLE.NO_ALTERNATIVE"
                )
            if held is not None and not _gives_way(_relation_registration(held), over):
                if held == view:
                    return
                raise EngineFailure(
                    f"{view.name} exists already", condition="TABLE_OR_VIEW_ALREADY_EXISTS"
                )
            self._require_bindable(view)
            self._names.relations[view.name.folded] = view
            self._wrote_name()

    def create_function(self, function: FunctionSpec, *, over: Registration | None = None) -> None:
        with self._call("create_function", function.name):
            self._need_schema(function.name)
            held = self._names.functions.get(function.name.folded)
            if held is not None and not _gives_way(_function_registration(held), over):
                if held == function:
                    return
                raise EngineFailure(
                    f"{function.name} exists already", condition="ROUTINE_ALREADY_EXISTS"
                )
            self._names.functions[function.name.folded] = function
            self._wrote_name()

    def drop(self, registration: Registration, *, beside: Sequence[Registration] = ()) -> None:
        """Drop a name by the statement of its kind; absent succeeds, another kind is refused.

        Nothing where something else of the kind stands there by now.
        """
        del beside  # a look costs nothing
        with self._call("drop", registration.name):
            folded = registration.name.folded
            if registration.kind == "function":
                called = self._names.functions.get(folded)
                if called is not None and registration.is_still(_function_registration(called)):
                    del self._names.functions[folded]
                    self._wrote_name()
                return
            held = self._names.relations.get(folded)
            if held is None:
                return
            kind = "table" if isinstance(held, TableEntry) else "view"
            if kind != registration.kind:
                raise EngineFailure(
                    f"{registration.name} is a {kind}",
                    condition="WRONG_COMMAND_FOR_OBJECT_TYPE",
                )
            if registration.is_still(_relation_registration(held)):
                del self._names.relations[folded]
                self._wrote_name()

    # shards --------------------------------------------------------------------------------
    def create_shard(self, shard: ShardSpec) -> None:
        """Create an empty shard; there already in the same form, untouched: nothing to do."""
        with self._call("create_shard", shard.path):
            version = Version(
                "create", tuple(bare(column) for column in shard.columns),
                properties=dict(shard.properties), comment=shard.comment,
                checks={check.name: check.expression for check in shard.checks},
            )
            held = self.world.shards.get(shard.path)
            if held is not None:
                if held.versions == [version]:
                    return
                raise EngineFailure(
                    f"{shard.path} exists already", condition="DELTA_TABLE_ALREADY_EXISTS"
                )
            self.world.shards[shard.path] = Shard(
                [version], tuple(shard.partitioned_by), tuple(shard.clustered_by)
            )
            self.world.writes += 1

    def shard_version(self, path: str) -> int | None:
        with self._call("shard_version", path):
            shard = self.world.shards.get(path)
            return None if shard is None else len(shard.versions) - 1

    def find_shard_problem(self, path: str) -> str | None:
        """None where a shard is; no call of its own in a schedule, as nothing can go wrong."""
        return None if path in self.world.shards else "it is not there"

    def unsupported(self, path: str) -> Unsupported | None:  # noqa: ARG002 - as the port has it
        """Nothing: a simulated table has no Delta features."""
        return None

    def shard_columns(self, path: str) -> Sequence[Column]:
        with self._call("shard_columns", path):
            return self.world.newest(path).columns

    def shard_size(self, path: str) -> TableSize:
        with self._call("shard_size", path):
            rows = len(self.world.newest(path).rows)
            return TableSize(rows, rows * BYTES_PER_ROW, min(rows, 1))

    def bytes_written(self, path: str) -> int:
        """All or nothing; no call of its own in a schedule, as nothing can go wrong."""
        seen = path in self.world.shards
        return len(self.world.newest(path).rows) * BYTES_PER_ROW if seen else 0

    def count_rows(self, path: str, version: int) -> int:
        with self._call("count_rows", path):
            return len(self.world.rows(path, version))

    def count_appended(self, path: str, after: int, upto: int | None = None) -> int | None:
        with self._call("grown"):
            held = self.world.shard(path)
            last = len(held.versions) - 1 if upto is None else upto
            between = held.versions[after + 1 : last + 1]
            if any(version.act not in _APPEND_ONLY for version in between):
                return None
            # by the log alone, which stays where the data is gone
            return len(held.versions[last].rows) - len(held.versions[after].rows)

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Sequence[tuple[str, str]]
    ) -> CopyResult:
        with self._call("copy_rows", target):
            return self._insert(self.world.rows(source, source_version), target, projection)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str,
        projection: Sequence[tuple[str, str]],
    ) -> CopyResult | None:
        with self._call("copy_tail", target):
            before, until = self.world.rows(source, after), self.world.rows(source, upto)
            between = self.world.shard(source).versions[after + 1 : upto + 1]
            if any(version.act not in _APPEND_ONLY for version in between):
                return None
            return self._insert(until[len(before) :], target, projection)

    def find_refused_rows(self, request: RowsRequest) -> Sequence[RowsRefused]:
        with self._call("refused_rows", request.path):
            rows = self.world.rows(request.path, request.version)
            copied: list[dict[str, Any]] = [{} for _ in rows]
            found = list(_project(request, rows, copied))
            for check in () if any(each.fault == "fails" for each in found) else request.checks:
                violating = [*map(compile_check(check.expression), copied)].count(False)
                if violating:
                    found.append(RowsRefused("check", check.name, violating))
            return found

    def fill_rows(self, target: str, request: FillRequest) -> CopyResult:
        with self._call("fill_rows", target):
            views = {each.name.folded: each for each in request.objects
                     if isinstance(each, ViewSpec)}
            tables = {name.folded: place for name, place in request.tables.items()}

            def rows_of(name: ItemName) -> Sequence[Row]:
                if name.folded in tables:
                    return self.world.rows(*tables[name.folded])
                view = views.get(name.folded)
                if view is None:
                    raise EngineFailure(
                        f"the relation {name} cannot be found",
                        condition="TABLE_OR_VIEW_NOT_FOUND",
                    )
                names = [column.name for column in view.columns]
                return evaluate(read_body(view.sql), names, rows_of)

            given = evaluate(read_body(request.query), request.columns, rows_of)
            if not given:
                return CopyResult(0, len(self.world.shard(target).versions) - 1)
            try:
                return CopyResult(len(given), self.world.append(target, given))
            except EngineFailure as failure:
                raise RowNotConverted(
                    f"fails [{failure.condition}]", condition=failure.condition
                ) from failure

    def truncate_shard(self, path: str) -> None:
        """Remove all rows; refused on a sealed (append-only) shard."""
        with self._call("truncate_shard", path):
            newest = self.world.newest(path)
            if newest.is_sealed:
                raise EngineFailure(
                    f"{path} is append-only", condition="DELTA_CANNOT_MODIFY_APPEND_ONLY"
                )
            if newest.rows:
                self.world.commit(path, replace(newest, act="rewrite", rows=()))

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        with self._call("seal", path), self.world.locked():
            newest = self.world.newest(path)
            between = self.world.shard(path).versions[follows + 1 :]
            if newest.transactions.get(app_id, 0) > epoch or any(
                version.act == "metadata" for version in between
            ):
                raise EngineFailure(
                    f"cannot seal {path} behind version {follows}: metadata or holder changed",
                    condition="SEAL_CONFLICT", transient=True,
                )
            sealed = replace(
                newest, act="metadata", properties={**newest.properties, **SEAL},
                transactions={**newest.transactions, app_id: epoch},
            )
            return self.world.commit(path, sealed)

    def seal_properties(self, path: str) -> Mapping[str, str | None]:
        with self._call("seal_properties", path):
            properties = self.world.newest(path).properties
            return {name: properties.get(name) for name in SEAL}

    def is_sealed(self, path: str) -> bool:
        with self._call("is_sealed", path):
            return self.world.newest(path).is_sealed

    def unseal(
        self, path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
    ) -> None:
        with self._call("unseal", path):
            newest = self.world.newest(path)
            if not newest.is_sealed:
                return
            if newest.transactions.get(app_id, 0) > epoch:
                raise EngineFailure(f"{path} carries a later epoch", condition="FENCED")
            kept = {k: v for k, v in newest.properties.items() if k not in SEAL}
            kept |= {name: value for name, value in properties.items() if value is not None}
            self.world.commit(path, replace(newest, act="metadata", properties=kept))

    def fence(self, path: str, app_id: str, epoch: int) -> None:
        with self._call("fence", path):
            newest = self.world.newest(path)
            if newest.transactions.get(app_id, 0) > epoch:
                raise EngineFailure(f"{path} carries a later epoch", condition="FENCED")
            marks = {**newest.transactions, app_id: epoch}
            self.world.commit(path, replace(newest, act="fence", transactions=marks))

    def shard_layout(self, path: str) -> Layout:
        with self._call("shard_layout", path):
            return self.world.newest(path).layout

    def create_shadow_table(self, path: str, shadow: str) -> None:
        """An empty shard with everything of another but its rows."""
        with self._call("create_shadow_table", shadow):
            original = self.world.shard(path)
            if original.clustered_by:
                raise EngineFailure(
                    "a table with clustering has no shadow table to try statements on",
                    condition="NO_SHADOW_TABLE",
                )
            if shadow not in self.world.shards:
                first = replace(original.versions[-1], act="create", rows=(), transactions={})
                self.world.shards[shadow] = Shard([first], original.partitioned_by)
                self.world.writes += 1

    def evolve(
        self, path: str, columns: Sequence[Column], shard: ShardSpec, shape: Shape | None = None, *,
        app_id: str = "", epoch: int = 0,
    ) -> None:
        """Reshape, add nullable columns, relax, comment; EngineFailure for what needs a copy.

        Each ALTER of a reshape is announced as ``alter`` and a version of its own: the port allows
        an engine to stop anywhere, and shards that an earlier one left so are to be finished.
        """
        with self._call("evolve", path):
            self._require_willing(path)
            if shape is not None:
                declared = {column.name.lower(): column for column in columns}
                for step in steps_to(self.world.newest(path).layout, shape):
                    with self._call("alter", path):
                        self._require_willing(path)
                        marks = self._marks(path, app_id, epoch)
                        alter(self.world, path, step, declared, marks)
            newest = self.world.newest(path)
            marks = self._marks(path, app_id, epoch)
            evolved = replace(
                newest, act="metadata", columns=evolve_columns(newest.columns, columns, path),
                comment=shard.comment,
                checks={check.name: check.expression for check in shard.checks},
                properties=_by_metadata(newest.properties, shard),
            )
            names = [column.name.lower() for column in evolved.columns]
            physical = newest.physical or tuple(column.name for column in newest.columns)
            held = self.world.shard(path)
            added = tuple(fresh_name(held, c) for c in evolved.columns[len(physical) :])
            evolved = replace(
                evolved,
                physical=newest.physical and (*physical, *added),
                rows=tuple({name: row.get(name) for name in names} for row in newest.rows)
                if len(names) != len(newest.columns)
                else newest.rows,
            )
            if replace(evolved, act=newest.act) != newest:
                self.world.commit(path, replace(evolved, transactions=marks))

    def missing_properties(self, path: str, shard: ShardSpec) -> MissingProperties:
        with self._call("missing_properties", path):
            return _by_alter(self.world.newest(path).properties, shard)

    def set_properties(
        self, path: str, shard: ShardSpec, *, app_id: str = "", epoch: int = 0
    ) -> None:
        """Those that Delta's ALTER TABLE sets; EngineFailure for what needs a copy."""
        with self._call("set_properties", path):
            self._require_willing(path)
            newest = self.world.newest(path)
            marks = self._marks(path, app_id, epoch)
            missing = _by_alter(newest.properties, shard)
            if needs_copy(newest.properties, {**newest.properties, **missing.set}):
                raise EngineFailure(
                    f"{path} needs a copy", condition="DELTA_UNSUPPORTED_PROPERTY_CHANGE"
                )
            kept = {k: v for k, v in newest.properties.items() if k not in missing.unset}
            changed = replace(newest, act="metadata", properties={**kept, **missing.set})
            if missing:
                self.world.commit(path, replace(changed, transactions=marks))

    def clone_shard(self, path: str, there: str) -> None:
        with self._call("clone_shard", there):
            held = self.world.shard(path)
            if there not in self.world.shards:
                newest = replace(self.world.newest(path), act="create")
                self.world.shards[there] = Shard([newest], held.partitioned_by, held.clustered_by)
                self.world.writes += 1

    def _marks(self, path: str, app_id: str, epoch: int) -> Mapping[str, int]:
        """The transactions of a commit under an epoch; EngineFailure behind that of a later one."""
        marks = self.world.newest(path).transactions
        if marks.get(app_id, 0) > epoch:
            raise EngineFailure(f"{path} carries a later epoch", condition="FENCED", transient=True)
        return {**marks, app_id: epoch} if app_id else marks

    def _require_willing(self, path: str) -> None:
        if path in self.world.refusing:
            raise EngineFailure(
                f"{path} cannot be altered", condition="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"
            )

    def delete_shard(self, path: str) -> None:
        with self._call("delete_shard", path):
            if self.world.shards.pop(path, None) is not None:
                self.world.writes += 1

    def delete_shard_data(self, path: str) -> None:
        with self._call("delete_shard_data", path):
            shard = self.world.shards.get(path)
            if shard is not None and not shard.data_deleted:
                shard.data_deleted = True
                self.world.writes += 1

    def list_shards(self, warehouse: str) -> Iterable[str]:
        with self._call("list_shards"):
            below = warehouse.rstrip("/") + "/"
            return self._shuffle(sorted(p for p in self.world.shards if p.startswith(below)))

    # binding -------------------------------------------------------------------------------
    def bind(self, requests: Sequence[AnyRequest]) -> Sequence[BindResult]:
        with self._call("bind"):
            return [bind(request) for request in requests]

    # users' objects ------------------------------------------------------------------------
    def schemas(self) -> Sequence[str]:
        with self._call("schemas"):
            return self._shuffle(sorted(self._names.schemas))

    def user_definitions(
        self, schema: str, *, but: Container[Identity] = ()
    ) -> Sequence[UserDefinition]:
        """Views and functions of a schema without our marks, views first, by folded name."""
        with self._call("user_definitions", schema):
            folded = schema.lower()
            held = [
                entry for names in (self._names.relations, self._names.functions)
                for key, entry in sorted(names.items(), key=lambda pair: pair[0])
                if key[0] == folded and not isinstance(entry, TableEntry) and not is_marked(entry)
            ]
            found = [self._definition(entry) for entry in held]
            return self._shuffle([e for e in found if identity_of(e.kind, *e.name) not in but])

    def relations_read(self, definition: UserDefinition) -> Sequence[ItemName]:
        """What the text of a view or function reads, and what the views in it do."""
        with self._call("relations_read", definition.name):
            found: dict[ItemName, None] = {}
            pending = [(definition.sql, definition.namespace)]
            while pending:
                sql, namespace = pending.pop()
                for _, name in read_body(sql).relations:
                    name = name if name.schema else ItemName(namespace, name.name)
                    read = self._names.relations.get(name.folded)
                    if name not in found and isinstance(read, ViewSpec):
                        pending.append((read.sql, definition_of(read).namespace))
                    found[name] = None
            return self._shuffle(list(found))

    def _definition(self, entry: ViewSpec | FunctionSpec) -> UserDefinition:
        found = definition_of(entry)
        if entry.name.folded in self.world.unreadable:
            return UserDefinition(found.name, found.kind, unread="no permission to read it")
        return found

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        with self._call("analyse"):
            return [
                analyse_query(request, self.standing_columns, self.standing_returns)
                for request in requests
            ]

    def replace_text(self, definition: UserDefinition, sql: str) -> None:
        """Give a user's view or function another text; its query is analysed as it is now."""
        with self._call("replace_text", definition.name):
            folded = definition.name.folded
            names: Any = (
                self._names.relations if definition.kind == "view" else self._names.functions
            )
            held = names.get(folded)
            if held is None or isinstance(held, TableEntry) or definition_of(held) != definition:
                raise EngineFailure(
                    f"{definition.name} is another by now", condition="CHANGED"
                )
            names[folded] = self._with_text(held, sql)
            self._wrote_name()

    def _with_text(self, held: ViewSpec | FunctionSpec, sql: str) -> ViewSpec | FunctionSpec:
        if isinstance(held, FunctionSpec):
            changed = replace(held, body=sql)
            self.read_function(changed)
            return changed
        namespace = held.namespace if isinstance(held, UserView) else held.name.schema
        asked = QueryRequest(held.name, sql, {}, namespace=namespace)
        found = self._analyse(asked, (held.name.folded,))
        view = replace(held, sql=sql, columns=tuple(Column(c.name, c.type) for c in found))
        if isinstance(view, UserView):
            return replace(view, outputs=tuple(column.name for column in found))
        return view

    # what tests ask -------------------------------------------------------------------------
    def read(self, name: ItemName) -> tuple[Row, ...]:
        """Rows of the table that stands under a name, as a user would read them."""
        return self.world.rows(self.location(name))

    def location(self, name: ItemName) -> str:
        """The directory of the table that stands under a name."""
        held = self._names.relations.get(name.folded)
        if not isinstance(held, TableEntry):
            raise EngineFailure(
                f"the table {name} cannot be found", condition="TABLE_OR_VIEW_NOT_FOUND"
            )
        return held.path

    def check_views(self) -> None:
        """Analyse every view of ours against what is there now, as reading it would.

        EngineFailure names the first that a user could not read.
        """
        for held in self._names.relations.values():
            if isinstance(held, TableEntry):
                self.world.rows(held.path)
            elif not isinstance(held, UserView):
                self._require_bindable(held)

    # ---------------------------------------------------------------------------------------
    def _need_schema(self, name: ItemName) -> None:
        if name.schema.lower() not in self._names.schemas:
            raise EngineFailure(
                f"the schema {name.schema} cannot be found", condition="SCHEMA_NOT_FOUND"
            )

    def _require_bindable(self, view: ViewSpec) -> None:
        """EngineFailure unless the view's body analyses against what stands, within its contract.

        Views below are proven too, down to tables: replacing a view may close a circle.
        """
        pending, proven, itself = [view], set(), view.name.folded
        while pending:
            current = pending.pop()
            body = read_body(current.sql)
            found = analyse(body, self.standing_columns, self.standing_returns)
            reason = contract_reason(current.columns, found)
            if reason is not None:
                raise EngineFailure(
                    f"{current.name}: {reason}", condition="CANNOT_UP_CAST_DATATYPE"
                )
            for _, name in body.relations:
                folded = name.folded
                below = self._names.relations[folded]
                if folded == itself:
                    raise EngineFailure(f"{view.name} reads itself", condition="RECURSIVE_VIEW")
                if isinstance(below, ViewSpec) and folded not in proven:
                    proven.add(folded)
                    pending.append(below)

    def standing_columns(
        self, name: ItemName, within: tuple[tuple[str, str], ...] = ()
    ) -> Sequence[Column] | None:
        """Columns of the relation under a name, or of the rows of a function; None for neither.

        EngineFailure for a user's view that cannot be read, or that one ``within`` it reads.
        """
        function = find_row_function(name)
        if function is not None:
            called = self._names.functions.get(function.folded)
            return None if called is None else self.read_function(called, within)
        held = self._names.relations.get(name.folded)
        if isinstance(held, TableEntry):
            return self.world.newest(held.path).columns
        if isinstance(held, UserView):
            return self.read_view(held, within)
        return None if held is None else held.columns

    def standing_returns(
        self, name: ItemName, within: tuple[tuple[str, str], ...] = ()
    ) -> str | None:
        """The type of a call of the function under a name, None when there is none.

        EngineFailure for one whose body cannot be analysed.
        """
        held = self._names.functions.get(name.folded)
        if held is not None and not is_marked(held):  # ours were bound
            self.read_function(held, within)
        return scalar_returns(held)

    def read_view(
        self, view: UserView, within: tuple[tuple[str, str], ...] = ()
    ) -> tuple[Column, ...]:
        """The columns that a user's view has for its reader now; EngineFailure for none."""
        if view.name.folded in within:
            raise EngineFailure(f"{view.name} reads itself", condition="RECURSIVE_VIEW")
        asked = QueryRequest(view.name, view.sql, {}, namespace=view.namespace)
        return view_columns(definition_of(view), self._analyse(asked, (*within, view.name.folded)))

    def read_function(
        self, function: FunctionSpec, within: tuple[tuple[str, str], ...] = ()
    ) -> tuple[Column, ...]:
        """The columns that a function gives now, one without a name for a value."""
        key = (f"function {function.name.folded[0]}", function.name.folded[1])
        if key in within:
            raise EngineFailure(f"{function.name} calls itself", condition="RECURSIVE_FUNCTION")
        scalar = isinstance(function.returns, str)
        asked = QueryRequest(
            function.name, function.body, {}, namespace=function.name.schema,
            arguments=function.arguments, scalar=scalar,
        )
        found = self._analyse(asked, (*within, key))
        if isinstance(function.returns, str):
            return (Column("", function.returns),)
        if len(found) != len(function.returns):
            raise EngineFailure(
                f"the body of {function.name} gives {len(found)} columns",
                condition="TABLE_VALUED_FUNCTION_TOO_MANY_COLUMNS",
            )
        return tuple(Column(column.name, column.type) for column in function.returns)

    def _analyse(
        self, asked: QueryRequest, within: tuple[tuple[str, str], ...]
    ) -> Sequence[Column]:
        """The columns of a text as the catalog is now; EngineFailure with Spark's condition."""
        found = analyse_query(
            asked, lambda name: self.standing_columns(name, within),
            lambda name: self.standing_returns(name, within),
        )
        if found.columns is None:
            raise EngineFailure(
                found.reason or "", condition=found.condition, missing=found.missing
            )
        return found.columns

    def _insert(
        self, rows: Sequence[Row], target: str, projection: Sequence[tuple[str, str]]
    ) -> CopyResult:
        if not rows:
            return CopyResult(0, len(self.world.shard(target).versions) - 1)
        compiled = [(column, compile_expression(text)) for column, text in projection]
        projected: list[dict[str, Any]] = []
        for number, row in enumerate(rows):
            values: dict[str, Any] = {}
            for column, expression in compiled:
                try:
                    values[column] = expression(row)
                except EngineFailure as error:
                    raise RowNotConverted(
                        f"{target}: column {column} fails on a row [{error.condition}]:"
                        f" number {number}",
                        condition=error.condition,
                    ) from error
            projected.append(values)
        return CopyResult(len(projected), self.world.append(target, projected))


def _by_alter(present: Mapping[str, str], shard: ShardSpec) -> MissingProperties:
    """What of a shard's properties Delta's ALTER TABLE changes."""
    wanted = {
        key: value for key, value in shard.properties.items()
        if present.get(key) != value and not is_metadata(key, present.get(key), value)
    }
    unset = tuple(
        key for key in shard.unset
        if key in present and not is_metadata(key, present[key], None)
    )
    return MissingProperties(wanted, unset)


def _by_metadata(present: Mapping[str, str], shard: ShardSpec) -> dict[str, str]:
    """The properties when all is changed that metadata alone changes."""
    missing = _by_alter(present, shard)
    kept = {
        key: value for key, value in present.items()
        if key not in shard.unset or key in missing.unset
    }
    return kept | {k: v for k, v in shard.properties.items() if k not in missing.set}


def _relation_registration(entry: TableEntry | ViewSpec) -> Registration:
    if isinstance(entry, TableEntry):
        return Registration(entry.name, "table", location=entry.path)
    return Registration(entry.name, "view", properties=entry.properties, text=entry.sql)


def is_marked(entry: ViewSpec | FunctionSpec) -> bool:
    """Whether a release made it."""
    return any(key.startswith("catalog_migrate.") for key in entry.properties)


def definition_of(entry: ViewSpec | FunctionSpec) -> UserDefinition:
    """What the catalog has of a view or function; a stored column does not say NOT NULL."""
    if isinstance(entry, FunctionSpec):
        returns = entry.returns
        columns = (Column("", returns),) if isinstance(returns, str) else tuple(returns)
        return UserDefinition(
            entry.name, "function", entry.body, columns, namespace=entry.name.schema,
            arguments=entry.arguments,
        )
    stored = tuple(Column(column.name, column.type) for column in entry.columns)
    if not isinstance(entry, UserView):
        names = tuple(column.name for column in stored)
        return UserDefinition(entry.name, "view", entry.sql, stored, names)
    return UserDefinition(
        entry.name, "view", entry.sql, stored, entry.outputs, entry.namespace, entry.schema_mode
    )


def _gives_way(held: Registration, over: Registration | None) -> bool:
    return over is not None and over.is_still(held)


def _function_registration(entry: FunctionSpec) -> Registration:
    return Registration(entry.name, "function", properties=entry.properties)


def _project(
    request: RowsRequest, rows: Sequence[Row], copied: Sequence[dict[str, Any]]
) -> Iterator[RowsRefused]:
    """Put what a projection makes of rows into ``copied``; yield what refuses them."""
    columns = {column.name.lower(): column for column in request.columns}
    wanted = {name.lower() for name in request.looked_at}
    for name, text in request.projection:
        value, column = compile_expression(text), columns[name.lower()]
        try:
            values = [value(row) for row in rows]
        except EngineFailure as error:
            yield RowsRefused("fails", column.name, condition=error.condition)
            continue
        for row, each in zip(copied, values, strict=True):
            row[name.lower()] = each
        nulls = values.count(None)
        if nulls and not column.nullable and name.lower() in wanted:
            yield RowsRefused("null", column.name, nulls)
