"""The port to the actual world. Paths are absolute; names are :class:`ItemName`.

Every method may raise :class:`~catalog_migrate.errors.EngineFailure` (with Spark's error class and
whether a retry may help). Methods are safe to repeat: creating what is there in the very same form
and dropping what is absent succeed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from catalog_migrate.delta import datatypes
from catalog_migrate.model.layout import Layout, Shape
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import Argument, Check, Column, ObjectDefinition
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.table_features import Unsupported
from catalog_migrate.model.types import is_assignable, is_up_cast


class Registration(msgspec.Struct, frozen=True):
    """A name in Spark's catalog as it stands now.

    ``location`` is a table's directory (absolute, no scheme for local files), ``properties`` a
    view's or function's (``catalog_migrate.id/.fingerprint/.lineage/.definition``), ``text`` a
    view's SQL as stored. ``managed`` is a table whose files Spark would remove with its name.
    """

    name: ItemName
    kind: Literal["table", "view", "function"]
    location: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    text: str | None = None
    managed: bool = False

    def is_still(self, now: Registration | None) -> bool:
        """Return whether ``now``, found under the name later, is what was seen then.

        A table is by its directory, a view or function by its properties: an ALTER VIEW keeps them.
        """
        if now is None or now.kind != self.kind:
            return False
        if self.kind == "table":
            return self.location is None or now.location == self.location
        return self.properties.items() <= now.properties.items()


class ShardSpec(msgspec.Struct, frozen=True):
    """What a shard is created with. ``columns`` have canonical types.

    ``stamps`` are properties that say whose the shard is, for a rebuild of a lost log; they are
    written at creation only and take no part in any comparison. ``unset`` are keys of properties
    that a shard which is there loses.
    """

    path: str
    columns: Sequence[Column]
    comment: str | None = None
    partitioned_by: Sequence[str] = ()
    clustered_by: Sequence[str] = ()
    checks: Sequence[Check] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    stamps: Mapping[str, str] = msgspec.field(default_factory=dict)
    unset: Sequence[str] = ()


class MissingProperties(NamedTuple):
    """Properties that a shard is still to get and to lose by :meth:`Engine.set_properties`."""

    set: Mapping[str, str]
    unset: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.set or self.unset)


class ViewSpec(msgspec.Struct, frozen=True):
    """A view with its contract: ``columns`` are names, canonical types, nullability, comments.

    ``properties`` go into the registration; ``casts`` says for which columns the body's type
    differs from the contract (an up-cast), filled by :meth:`Engine.bind`.
    """

    name: ItemName
    columns: Sequence[Column]
    sql: str
    comment: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class FunctionSpec(msgspec.Struct, frozen=True):
    """A SQL function; ``returns`` is a canonical type, or columns for a table function."""

    name: ItemName
    arguments: Sequence[Argument]
    returns: str | Sequence[Column]
    body: str
    comment: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class BindRequest(msgspec.Struct, frozen=True):
    """Bind one view against stand-ins of its parents.

    ``parents`` maps each relation that the body may read to its columns in the NEW state;
    ``functions`` are those of the NEW state that the body may call. ``fills``: the body fills a
    table of the contract's columns, which takes what an INSERT does; its parents are those of OLD.
    """

    view: ViewSpec
    parents: Mapping[ItemName, Sequence[Column]]
    functions: Sequence[FunctionSpec] = ()
    fills: bool = False

    @property
    def name(self) -> ItemName:
        """Whose text it is."""
        return self.view.name


class FunctionRequest(msgspec.Struct, frozen=True):
    """Bind one SQL function; ``parents`` and ``functions`` as in :class:`BindRequest`."""

    function: FunctionSpec
    parents: Mapping[ItemName, Sequence[Column]]
    functions: Sequence[FunctionSpec] = ()

    @property
    def name(self) -> ItemName:
        """Whose text it is."""
        return self.function.name


class ExpressionRequest(msgspec.Struct, frozen=True):
    """Bind one expression of a table over ``columns``; its value must fit ``type``.

    A ``check`` must be what every INSERT can evaluate: boolean and deterministic, without
    subqueries, aggregates and functions that are not built in. A ``generated`` column must also
    be what Delta allows there. A ``default`` has no columns and is evaluated; ``using`` is any
    expression of a SELECT.
    """

    name: ItemName
    role: Literal["check", "default", "generated", "using"]
    sql: str
    type: str
    columns: Sequence[Column] = ()


AnyRequest = BindRequest | FunctionRequest | ExpressionRequest


class BindResult(msgspec.Struct, frozen=True):
    """``reason`` is None when what was asked binds; of a view, when its types fit the contract.

    ``columns`` are the analysed columns of a view's uncast body (None when it does not analyse).
    ``proven`` is False where nothing speaks against it and a part of it could not be tried.
    """

    name: ItemName
    reason: str | None
    columns: Sequence[Column] | None = None
    proven: bool = True


SchemaMode = Literal["BINDING", "COMPENSATION", "TYPE EVOLUTION", "EVOLUTION"]
"""How a view follows what it reads: its WITH SCHEMA clause, COMPENSATION without one."""


class UserDefinition(msgspec.Struct, frozen=True):
    """A view or SQL function that the catalog has and no release ships.

    ``sql`` is the view's query or the function's body as stored; names without a schema in it are
    of the schema ``namespace``, and where that is empty every name without a catalog is of another
    one than the session's. (Spark resolves those of a function where it is called; its own schema
    is where that is most likely to succeed.) ``columns`` are a view's stored ones, or what a
    function returns (one without a name for a scalar); a type that no release may have is as Spark
    writes it. ``outputs`` are the names that the view's query gave, in order, when it was stored.
    ``schema_mode`` is a view's. ``unread`` says why its text cannot be read, else None: then only
    ``name`` and ``kind`` count.
    """

    name: ItemName
    kind: Literal["view", "function"]
    sql: str = ""
    columns: Sequence[Column] = ()
    outputs: tuple[str, ...] = ()
    namespace: str = "default"
    schema_mode: SchemaMode = "COMPENSATION"
    arguments: Sequence[Argument] = ()
    unread: str | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether it is a function that returns a value and no table."""
        return self.kind == "function" and [column.name for column in self.columns] == [""]

    @property
    def returns(self) -> str | Sequence[Column]:
        """What a function returns, as a :class:`FunctionSpec` has it."""
        return self.columns[0].type if self.is_scalar else self.columns

    @property
    def query(self) -> str:
        """A query that reads the view, or calls the function with NULLs."""
        source = self.name.sql
        if self.kind == "function":
            nulls = ", ".join(f"CAST(NULL AS {each.type})" for each in self.arguments)
            source += f"({nulls})"
        return f"SELECT {source}" if self.is_scalar else f"SELECT * FROM {source}"


class QueryRequest(msgspec.Struct, frozen=True):
    """Analyse a text of a user against typed empty stand-ins of what it reads.

    ``parents`` maps each relation that is to be replaced to its columns, None for one that is not
    there; ``functions`` are those that the text may call, in the same shape. Names without a schema
    are of ``namespace``; all others stand for what the catalog has. ``arguments`` are those of a
    function whose body ``sql`` is (``scalar``: an expression). ``plan`` asks for the plan too.
    """

    name: ItemName
    sql: str
    parents: Mapping[ItemName, Sequence[Column] | None]
    functions: Sequence[FunctionSpec] = ()
    namespace: str = "default"
    arguments: Sequence[Argument] = ()
    scalar: bool = False
    plan: bool = False


class QueryAnalysis(msgspec.Struct, frozen=True):
    """What Spark's analyser makes of a :class:`QueryRequest`.

    ``columns`` are None where it does not analyse: then ``condition`` is Spark's error class (None:
    the text is not at fault), ``reason`` its message with the real names, ``missing`` the name that
    it did not find and ``place`` that name's offsets (first, behind the last) in the request's
    ``sql``, where known. A scalar function has one column without a name. ``plan`` is the analysed
    plan as text, with the real names in place of stand-ins', if asked for.
    """

    columns: Sequence[Column] | None = None
    condition: str | None = None
    reason: str | None = None
    missing: str | None = None
    place: tuple[int, int] | None = None
    plan: str | None = None


def contract_reason(contract: Sequence[Column], found: Sequence[Column]) -> str | None:
    """Return why analysed columns do not fit a view's contract; None when they do.

    Names do not matter, the contract renames by position; types may differ by an up-cast.
    """
    if len(contract) != len(found):
        return f"the body yields {len(found)} columns, the contract has {len(contract)}"
    for wanted, got in zip(contract, found, strict=True):
        target = datatypes.without_lengths(wanted.type)
        if got.type != target and not is_up_cast(got.type, target):
            return f"column {wanted.name}: {got.type} is no up-cast to {wanted.type}"
        if got.nullable and not wanted.nullable:
            return f"column {wanted.name}: the body may be NULL, the contract is NOT NULL"
    return None


def fill_reason(contract: Sequence[Column], found: Sequence[Column]) -> str | None:
    """Return why what a query gives does not fill a table of these columns; None when it does.

    By position, by the types that an INSERT takes; whether a value is NULL the rows show.
    """
    if len(contract) != len(found):
        return f"the query yields {len(found)} columns, the table has {len(contract)} to fill"
    wanted, given = ([column.name.lower() for column in each] for each in (contract, found))
    if wanted != given and sorted(wanted) == sorted(given):
        return f"the query yields the columns in another order: write {', '.join(wanted)}"
    for column, got in zip(contract, found, strict=True):
        if not is_assignable(got.type, datatypes.without_lengths(column.type)):
            return f"column {column.name}: {got.type} is not stored as {column.type} without a CAST"
    return None


class CopyResult(msgspec.Struct, frozen=True):
    """Rows written and the version of the target that holds them."""

    rows: int
    version: int


class RowsRequest(msgspec.Struct, frozen=True):
    """Rows of a shard at a version, as a copy into a table of ``columns`` would take them.

    ``projection`` as for :meth:`Engine.copy_rows`. ``looked_at`` names the columns whose values may
    not be what the table takes, ``checks`` are the CHECKs that rows may violate.
    """

    name: ItemName
    path: str
    version: int
    projection: Sequence[tuple[str, str]]
    columns: Sequence[Column]
    looked_at: Sequence[str]
    checks: Sequence[Check] = ()


class RowsRefused(msgspec.Struct, frozen=True):
    """Rows that a copy could not store; ``part`` is the name of the column or of the CHECK.

    ``rows`` is how many, None where an expression ``fails`` on a row: it cannot be counted.
    ``condition`` is the class of that failure.
    """

    fault: Literal["null", "long", "check", "generated", "fails"]
    part: str
    rows: int | None = None
    condition: str | None = None


class FillRequest(msgspec.Struct, frozen=True):
    """Rows of a new table: a query over tables at fixed versions.

    ``columns`` are those of the target that the query gives, in its order. ``tables`` maps each
    relation to (absolute path, version); ``objects`` are the views and functions that the query
    uses, what is used first.
    """

    query: str
    columns: Sequence[str]
    tables: Mapping[ItemName, tuple[str, int]]
    objects: Sequence[ViewSpec | FunctionSpec] = ()


class Engine(Protocol):
    """Observe and change names and shards. Two implementations: Spark and the simulated one."""

    @property
    def persistent_names(self) -> bool:
        """Whether names outlive the session (a metastore): then they are shared work."""
        ...

    @property
    def catalog(self) -> str:
        """The session's current catalog, in which every name is."""
        ...

    # names ---------------------------------------------------------------------------------
    def ensure_schema(self, schema: str, lineage: str = "") -> None:
        """Create the schema (database) unless it exists; ``lineage`` marks it as a catalog's."""
        ...

    def drop_schema_if_empty(self, schema: str, lineage: str = "") -> None:
        """Drop a schema that holds nothing any more; leave any other alone.

        With ``lineage`` only one that was made for that catalog, that the session is not in, and
        whose directory is seen to hold nothing: the catalog removes that with all that is in it.
        """
        ...

    def names(self, schema: str) -> frozenset[ItemName]:
        """Names of relations only, by the cheapest means (no Spark job); absent schema: empty."""
        ...

    def observe(self, schema: str) -> Sequence[Registration]:
        """All relations and user functions of a schema with what recognises them; no Spark job."""
        ...

    def schemas(self) -> Sequence[str]:
        """Schemas of the session's current catalog."""
        ...

    def user_definitions(
        self, schema: str, *, but: Container[Identity] = ()
    ) -> Sequence[UserDefinition]:
        """Return every view and SQL function of a schema but those with the marks of a release.

        ``but`` are names that are not looked at. One that cannot be read is among them, with the
        reason (``unread``); one that another process drops meanwhile is not. Where functions cannot
        be listed, one called ``*`` stands for them. Absent schema: empty.
        EngineFailure where the schema as a whole cannot be listed. No Spark job.
        """
        ...

    def relations_read(self, definition: UserDefinition) -> Sequence[ItemName]:
        """Relations of the session's current catalog that Spark's analyser finds below a view or
        function as it is now, those that it reads through others included.

        For a text whose names only Spark can read: it costs an analysis. EngineFailure where it
        does not analyse.
        """
        ...

    def replace_text(self, definition: UserDefinition, sql: str) -> None:
        """Give a user's view or SQL function another text: a query, or a body.

        Owner, comment, properties, schema mode, arguments and what a function returns stay, and so
        do the schema of bare names and the settings that Spark keeps with a text. A view's columns
        are called as the query calls them and lose their comments. EngineFailure with condition
        ``CHANGED`` where what is found right before is not ``definition`` any more.
        """
        ...

    def register_table(self, name: ItemName, path: str) -> None:
        """Make ``name`` a table at an existing shard (checks the log first, never creates one)."""
        ...

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        """Create a view WITH SCHEMA BINDING, with its column list and casts.

        The name must be free, or held by this very view, or still by what was seen there and is to
        be replaced (``over``). EngineFailure otherwise: it is somebody else's by now.
        """
        ...

    def create_function(self, function: FunctionSpec, *, over: Registration | None = None) -> None:
        """Create a permanent SQL function; the name as for :meth:`create_view`."""
        ...

    def drop(self, registration: Registration, *, beside: Sequence[Registration] = ()) -> None:
        """Drop exactly this name with the statement of its kind; the files of a table stay.

        Nothing where something else of the kind stands there by now. ``beside`` are those that are
        dropped in the same moment, this one among them: one look may serve all of them.
        """
        ...

    # shards --------------------------------------------------------------------------------
    def create_shard(self, shard: ShardSpec) -> None:
        """Create an empty Delta table at a fresh path."""
        ...

    def shard_version(self, path: str) -> int | None:
        """Newest version of the Delta table at ``path``; None when there is none."""
        ...

    def find_shard_problem(self, path: str) -> str | None:
        """Why no Delta table is seen at ``path``, else None; so cheap that every start looks."""
        ...

    def unsupported(self, path: str) -> Unsupported | None:
        """Return what the shard has that is not supported, so that nothing may be written to it."""
        ...

    def shard_columns(self, path: str) -> Sequence[Column]:
        """Columns with canonical types, nullability and comments, as the shard has them now."""
        ...

    def shard_size(self, path: str) -> TableSize:
        """Rows, bytes and data files from the log's statistics; rows is -1 when unknown."""
        ...

    def bytes_written(self, path: str) -> int:
        """Bytes of the data files in a private shard, those of a copy under way among them.

        0 where they cannot be seen. Asks Spark nothing.
        """
        ...

    def count_rows(self, path: str, version: int) -> int:
        """Rows of the shard at a version."""
        ...

    def count_appended(self, path: str, after: int, upto: int | None = None) -> int | None:
        """Rows that came after a version, up to another (default: the newest); -1 when unknown.

        None when rows of before were changed or removed: then it is not only what came.
        """
        ...

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Sequence[tuple[str, str]]
    ) -> CopyResult:
        """``INSERT INTO target SELECT projection FROM source VERSION AS OF v`` (bulk).

        RowNotConverted names table, column and row when an expression fails on one.
        """
        ...

    def copy_tail(
        self, source: str, after: int, upto: int, target: str,
        projection: Sequence[tuple[str, str]],
    ) -> CopyResult | None:
        """Copy what was appended in versions after+1…upto; None when those are not append-only."""
        ...

    def find_refused_rows(self, request: RowsRequest) -> Sequence[RowsRefused]:
        """What a copy would be refused for, by one query; writes nothing, holds no value of a row.

        EngineFailure when the rows cannot be read.
        """
        ...

    def fill_rows(self, target: str, request: FillRequest) -> CopyResult:
        """Insert what a query gives into a private shard.

        RowNotConverted, without a value of any row, when a row cannot be stored there;
        EngineFailure as it is for what is no row's fault.
        """
        ...

    def truncate_shard(self, path: str) -> None:
        """Remove all rows of a private shard (before copying it again)."""
        ...

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        """Seal behind ``follows`` so that appends from anywhere fail loudly; the seal's version.

        Data that others commit after ``follows`` goes before the seal: a writer that never pauses
        cannot keep it off. EngineFailure with condition ``SEAL_CONFLICT`` when metadata changed
        after ``follows`` (being sealed already is such a change) and when :meth:`fence` was called
        with ``app_id`` and a newer epoch than ``epoch``.
        """
        ...

    def seal_properties(self, path: str) -> Mapping[str, str | None]:
        """Return the present value of each property that :meth:`seal` changes (None: not set)."""
        ...

    def is_sealed(self, path: str) -> bool:
        """Return whether the shard carries the seal."""
        ...

    def unseal(
        self, path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
    ) -> None:
        """Take the seal off and put the earlier property values back; no-op when not sealed.

        With ``app_id`` and ``epoch`` the seal of a holder with a later epoch is left alone:
        EngineFailure with condition ``FENCED``.
        """
        ...

    def fence(self, path: str, app_id: str, epoch: int) -> None:
        """One empty commit carrying ``Transaction(app_id, epoch)``: seals of older epochs lose.

        EngineFailure with condition ``FENCED`` when the shard carries a later epoch: whoever fences
        late must not go on.
        """
        ...

    def shard_layout(self, path: str) -> Layout:
        """Return the shard's columns by physical and given names, as it has them now."""
        ...

    def create_shadow_table(self, path: str, shadow: str) -> None:
        """Create an empty table at ``shadow`` with the columns, protocol and properties of
        ``path``.

        What an :meth:`evolve` of the one would be refused, that of the other is too. Repeatable;
        EngineFailure where such a table cannot be made.
        """
        ...

    def evolve(
        self, path: str, columns: Sequence[Column], shard: ShardSpec, shape: Shape | None = None, *,
        app_id: str = "", epoch: int = 0,
    ) -> None:
        """Bring a shard to ``columns`` in place; idempotent.

        Nullable ones are added, and nullable fields to structs, VARCHARs become longer or STRING,
        NOT NULL goes, comments change.

        ``shard`` carries comment, checks and properties that are changed in place as well, but for
        those that :meth:`set_properties` changes. Only
        with a ``shape`` are columns renamed, dropped and moved: what is still missing of it is
        found by physical names, so that it may be repeated after having stopped anywhere.

        Others' data may be committed at any moment and stays. With ``app_id`` the change carries
        its holder's epoch; a shard that carries a later one is left alone: EngineFailure with
        condition ``FENCED``.
        """
        ...

    def missing_properties(self, path: str, shard: ShardSpec) -> MissingProperties:
        """Return what :meth:`set_properties` has to change; empty where there is nothing."""
        ...

    def set_properties(
        self, path: str, shard: ShardSpec, *, app_id: str = "", epoch: int = 0
    ) -> None:
        """Set and unset the properties of ``shard`` that bring a table feature; idempotent.

        A feature stays when its property goes. EngineFailure for what the table refuses; condition
        ``FENCED`` as of :meth:`evolve`.
        """
        ...

    def clone_shard(self, path: str, there: str) -> None:
        """Create a table at ``there`` with the rows of ``path``, to try a change on.

        It has the same files, deletion vectors, columns, protocol and properties, and nothing
        that is done to it touches ``path``.
        """
        ...

    def delete_shard(self, path: str) -> None:
        """Remove a directory that nothing refers to (an aborted attempt's); absent is fine."""
        ...

    def delete_shard_data(self, path: str) -> None:
        """Remove the data files of a retired shard; its sealed log stays."""
        ...

    def list_shards(self, warehouse: str) -> Iterable[str]:
        """Absolute paths of all Delta table directories below the warehouse."""
        ...

    # binding -------------------------------------------------------------------------------
    def bind(self, requests: Sequence[AnyRequest]) -> Sequence[BindResult]:
        """Analyse each text against typed empty stand-ins of what it reads; writes nothing.

        What passes here can be created, and a table under it takes rows. Results are in the order
        of the requests; no reason holds a value of a row.
        """
        ...

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        """Analyse users' texts against typed empty stand-ins of what they read; writes nothing.

        Temporary names of the session take no part. Results are in the order of the requests; one
        without columns and without a condition could not be tried, for its reason.
        """
        ...


def function_spec(definition: ObjectDefinition, properties: Mapping[str, str]) -> FunctionSpec:
    """Return the statement of a SQL function."""
    returns: str | tuple[Column, ...] = definition.returns or ""
    return FunctionSpec(
        name=definition.item_name,
        arguments=definition.arguments,
        returns=returns,
        body=definition.body or "",
        comment=definition.comment,
        properties=properties,
    )
