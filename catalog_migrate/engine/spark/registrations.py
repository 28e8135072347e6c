"""Names in Spark's catalog: observing, registering, creating and dropping them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from catalog_migrate.engine.port import FunctionSpec, Registration, ViewSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.connect import is_connect
from catalog_migrate.engine.spark.statements import rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import CatalogMigrateError, EngineFailure, UnsuitableSession
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.paths import is_placeholder
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.store import store_at
from catalog_migrate.store.address import is_remote, is_same_place, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_SCHEMA = "SCHEMA_NOT_FOUND"
_TEXT = "\nView Text: "
_ORIGINAL = "\nView Original Text: "
_PROPERTIES = "\nTable Properties: ["
_PROPERTY = re.compile(r"(catalog_migrate\.\w+)=([^,\]]*)")
MARK = "catalog_migrate."
_LINEAGE = "catalog_migrate.lineage"
_PART = r"(?:`(?:[^`]|``)*`|[^.`]+)"
_QUOTED_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{2}}")

SESSION_CATALOG = "spark_catalog"
"""The name of Spark's own catalog, which Delta extends."""
FRESH = 1.0
"""Seconds that an answer may wait for its DROP; it waits for those beside it, a few at a time."""

Folded = tuple[str, str]
"""A name as the catalog compares it."""

NO_FUNCTION = frozenset({"UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND", _NO_SCHEMA})
"""What Spark says of a function that is not there."""


def read_information(name: ItemName, information: str) -> Registration:
    """One row of SHOW TABLE EXTENDED as a registration."""
    if "\nType: VIEW\n" in information:
        text = None
        start = information.find(_TEXT)
        # The text stands there twice, so the last mark is the one between the two.
        end = information.rfind(_ORIGINAL)
        if start >= 0 and end > start:
            text = information[start + len(_TEXT) : end]
        return Registration(name, "view", properties=read_properties(information), text=text)
    location = None
    found = re.search(r"^Location: (.*)$", information, re.MULTILINE)
    if found is not None:
        location = local_path(found[1].strip())
    managed = "\nType: MANAGED\n" in information
    return Registration(name, "table", location=location, managed=managed)


def read_function_name(shown: str) -> str:
    """``catalog.schema.name`` as SHOW FUNCTIONS has it, whose parts may be in backticks.

    A function's own name may have backticks in it, and most versions of Spark show it as it is.
    """
    if not _QUOTED_NAME.fullmatch(shown):
        return shown
    return re.sub(r"`((?:[^`]|``)*)`", lambda part: part[1].replace("``", "`"), shown)


def parse_comment(lines: Iterable[str]) -> str:
    """The comment in what DESCRIBE FUNCTION EXTENDED says of a function; empty without one.

    Since 4.2 it is a line of its own. Before, a SQL function is told as JSON, as it is stored.
    """
    for line in lines:
        label, _, said = line.partition(":")
        if label == "Comment":
            return said.strip()
        if label == "Usage" and said.lstrip().startswith("{"):
            try:
                return str(json.loads(said).get("sqlFunction.comment", ""))
            except ValueError:
                return ""
    return ""


def read_properties(information: str) -> Mapping[str, str]:
    """Return the marks of a release among the properties in a row of SHOW TABLE EXTENDED."""
    start = information.rfind(_PROPERTIES)
    if start < 0:
        return {}
    line = information[start + len(_PROPERTIES) :].split("\n", 1)[0]
    return dict(_PROPERTY.findall(line))


def _is_made(wanted: ViewSpec | FunctionSpec, standing: Registration | None) -> bool:
    """Whether what stands there has the marks of what was to be made: the reply was lost.

    Without marks (an export's) nothing can be told apart, and a name that is held is refused.
    """
    marks = {key: value for key, value in wanted.properties.items() if key.startswith(MARK)}
    if standing is None or not marks:
        return False
    return Registration(wanted.name, standing.kind, properties=marks).is_still(standing)


def _like(names: Iterable[ItemName]) -> str:
    """A pattern that finds the names, and maybe others: patterns are regular expressions."""
    return string_literal("|".join(re.sub(r"[^A-Za-z0-9_]", ".", name.name) for name in names))


def _is_empty(location: str, *, here: bool) -> bool:
    """Whether a directory is seen to hold nothing; on this machine's disk (``here``) one may be
    missing, too."""
    if not is_remote(location) and not location.startswith(("/", "file:/")):
        return False  # of a file system that is not looked at
    try:
        return not any(True for _ in store_at(location).names())
    except FileNotFoundError:
        return here
    except (CatalogMigrateError, OSError):
        return False


def current_catalog(spark: SparkSession) -> str:
    """The session's current catalog; :class:`UnsuitableSession` where it does not tell its name."""
    try:
        with failing("ask for the session's current catalog"):
            return str(spark.catalog.currentCatalog())
    except EngineFailure as error:
        raise UnsuitableSession(
            error.message,
            remedy=f"make {SESSION_CATALOG} the current one: docs/catalogs.md says which can be",
        ) from error


class BatchedLookup:
    """What stands under names right before they are dropped, a statement for those of a group.

    A look takes as long for many names as for one, and longer than a DROP. An answer is given once
    and while it is fresh: who asks again, after a failure, or too late, is looked for alone.
    ``look`` gives what stands under names of one schema, by the folded name. Safe from any thread.
    """

    def __init__(self, look: Callable[[Sequence[ItemName]], Mapping[Folded, Registration]]) -> None:
        self._look = look
        self._guard = threading.Lock()
        self._group: Sequence[Registration] = ()
        self._answers: dict[Folded, Registration | None] = {}
        self._until = 0.0

    def find(self, name: ItemName, group: Sequence[Registration]) -> Registration | None:
        """The relation under one name of a group, which is the same object for each of them."""
        with self._guard:
            if self._group is not group:
                self._answers = self._look_at(group)
                self._group, self._until = group, time.monotonic() + FRESH
            if name.folded in self._answers and time.monotonic() < self._until:
                return self._answers.pop(name.folded)
        return self._look([name]).get(name.folded)

    def _look_at(self, group: Sequence[Registration]) -> dict[Folded, Registration | None]:
        schemas: dict[str, list[ItemName]] = {}
        for each in group:
            if each.kind != "function":
                schemas.setdefault(each.name.schema, []).append(each.name)
        answers: dict[Folded, Registration | None] = {
            name.folded: None for names in schemas.values() for name in names
        }
        for names in schemas.values():
            answers.update(self._look(names))
        return answers


class Registrations:
    """What :class:`~catalog_migrate.engine.port.Engine` says of names, on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._batched_lookup = BatchedLookup(self._look)
        self.catalog = current_catalog(spark)
        """The session's current catalog, in which every name of ours is."""

    @property
    def persistent_names(self) -> bool:
        """Whether the names outlive the session: a metastore, another catalog, a server's."""
        if is_connect(self._spark) or self.catalog != SESSION_CATALOG:
            return True
        return self._spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"

    def ensure_schema(self, schema: str, lineage: str = "") -> None:
        """CREATE SCHEMA IF NOT EXISTS, the lineage among its properties."""
        marked = (
            f" WITH DBPROPERTIES ({string_literal(_LINEAGE)} = {string_literal(lineage)})"
            if lineage else ""
        )
        with failing(f"create the schema {schema}"):
            run(self._spark, f"CREATE SCHEMA IF NOT EXISTS {quote_sql(schema)}{marked}")

    def drop_schema_if_empty(self, schema: str, lineage: str = "") -> None:
        """DROP SCHEMA, which Spark refuses when it holds anything; never the default one.

        A metastore may fail behind the drop, and Hive's client then tries it again: what is
        missing afterwards was dropped.
        """
        if schema.lower() == "default" or (lineage and not self._is_spent(schema, lineage)):
            return
        try:
            with failing(f"drop the schema {schema}"):
                run(self._spark, f"DROP SCHEMA IF EXISTS {quote_sql(schema)} RESTRICT")
        except EngineFailure as error:
            if error.condition != "SCHEMA_NOT_EMPTY" and self._has_schema(schema):
                raise

    def _is_spent(self, schema: str, lineage: str) -> bool:
        """Whether a schema was made for this catalog and neither it nor its directory is used."""
        if not self._has_schema(schema) or self.observe(schema):
            return False
        with failing(f"describe the schema {schema}"):
            if self._spark.catalog.currentDatabase().lower() == schema.lower():
                return False
            described = rows(self._spark, f"DESCRIBE SCHEMA EXTENDED {quote_sql(schema)}")
        facts = {str(row[0]).lower(): str(row[1]) for row in described}
        if f"({_LINEAGE},{lineage})" not in facts.get("properties", ""):
            return False
        location = facts.get("location", "")
        # a catalog may give it as a URI, in which a space and others are escaped
        return all(
            _is_empty(each, here=not is_connect(self._spark))
            for each in {location, unquote(location)}
        )

    def names(self, schema: str) -> frozenset[ItemName]:
        """SHOW TABLES, temporary views left out; empty when there is no such schema."""
        shown = self._show(f"SHOW TABLES IN {quote_sql(schema)}", schema)
        return frozenset(ItemName(schema, row["tableName"]) for row in shown if row["namespace"])

    def observe(self, schema: str) -> Sequence[Registration]:
        """SHOW TABLE EXTENDED, and DESCRIBE FUNCTION for each function of the schema."""
        if not self._has_schema(schema):
            return []
        shown = self._show(f"SHOW TABLE EXTENDED IN {quote_sql(schema)} LIKE '*'", schema)
        found = [
            read_information(ItemName(schema, row["tableName"]), row["information"])
            for row in shown
            if row["namespace"]
        ]
        described = map(self._describe_function, self._functions(schema))
        found += (each for each in described if each is not None)
        return found

    def _has_schema(self, schema: str) -> bool:
        """Whether the schema is there: a refused listing costs ten times as much as this one."""
        pattern = string_literal(re.sub(r"[^A-Za-z0-9_]", ".", schema))
        with failing(f"look for the schema {schema}"):
            found = rows(self._spark, f"SHOW SCHEMAS LIKE {pattern}")
        wanted = schema.replace("`", "").lower()
        return any(row[0].replace("`", "").lower() == wanted for row in found)

    def _functions(self, schema: str, pattern: str = "'*'") -> list[ItemName]:
        """SHOW USER FUNCTIONS LIKE a pattern, those of the schema."""
        prefix = f"{self.catalog}.{schema}.".lower()
        # quoted: USER is a word that a session may reserve
        shown = self._show(f"SHOW `USER` FUNCTIONS IN {quote_sql(schema)} LIKE {pattern}", schema)
        names = [read_function_name(row["function"]) for row in shown]
        return [
            ItemName(schema, full[len(prefix) :]) for full in names
            if full.lower().startswith(prefix)
        ]

    def _function(self, name: ItemName) -> Registration:
        with failing(f"describe the function {name}"):
            lines = [
                row[0] for row in rows(self._spark, f"DESCRIBE FUNCTION EXTENDED {name.sql}")
            ]
        properties = statements.read_function_comment(parse_comment(lines))
        return Registration(name, "function", properties=properties)

    def _show(self, statement: str, schema: str) -> Sequence[Mapping[str, str]]:
        try:
            with failing(f"list the schema {schema}"):
                return [row.asDict() for row in rows(self._spark, statement)]
        except EngineFailure as error:
            if error.condition == _NO_SCHEMA:
                return []
            raise

    def register_table(self, name: ItemName, path: str) -> None:
        """CREATE TABLE ... LOCATION; nothing when the name stands there already."""
        try:
            with failing(f"register {name}"):
                run(self._spark, statements.register_table(name, path))
        except EngineFailure as error:
            if error.condition != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            standing = self.find(name)
            if standing is None or not is_same_place(
                standing.location or "", path
            ):
                raise

    def create_typed_view(
        self, view: ViewSpec, body: Sequence[statements.BodyColumn], *, over: Registration | None
    ) -> None:
        """CREATE VIEW, or OR REPLACE while what it is to go ``over`` stands there."""
        replace = over is not None and over.is_still(self.find(view.name))
        try:
            with failing(f"create the view {view.name}"):
                run(self._spark, statements.create_view(view, body, replace=replace))
        except EngineFailure as error:
            if replace or error.condition != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            if not _is_made(view, self.find(view.name)):
                raise

    def find(self, name: ItemName) -> Registration | None:
        """Return the relation under one name, or None."""
        return self._look([name]).get(name.folded)

    def _look(self, names: Sequence[ItemName]) -> dict[Folded, Registration]:
        """The relations under names of one schema, by the folded name."""
        return {
            name.folded: read_information(name, information)
            for name, information in self._informations(names).items()
        }

    def _informations(
        self, names: Sequence[ItemName], *, every: bool = False
    ) -> dict[ItemName, str]:
        """The rows of SHOW TABLE EXTENDED for names of one schema, those that are there.

        With ``every`` the schema is listed as a whole.
        """
        schema, asked = names[0].schema, {name.folded: name for name in names}
        found: dict[ItemName, str] = {}
        pattern = "'*'" if every else _like(names)
        statement = f"SHOW TABLE EXTENDED IN {quote_sql(schema)} LIKE {pattern}"
        for row in self._show(statement, schema):
            name = asked.get(ItemName(schema, row["tableName"]).folded)
            if row["namespace"] and name is not None:
                found[name] = row["information"]
        return found

    def _part_from_files(self, name: ItemName, location: str) -> None:
        """Point a managed table at an empty placeholder, so that Spark removes that."""
        from catalog_migrate.engine.spark.shards import create_placeholder

        with failing(f"part {name} from its files"):
            empty = create_placeholder(location)
            if empty is not None:
                run(self._spark, f"ALTER TABLE {name.sql} SET LOCATION {string_literal(empty)}")

    def create_function(self, function: FunctionSpec, *, over: Registration | None = None) -> None:
        """CREATE FUNCTION, or OR REPLACE while what it is to go ``over`` stands there."""
        replace = over is not None and over.is_still(self._find_function(function.name))
        statement = statements.create_function(function, replace=replace)
        try:
            with failing(f"create the function {function.name}"):
                run(self._spark, statement)
        except EngineFailure as error:
            if replace or error.condition != "ROUTINE_ALREADY_EXISTS":
                raise
            standing = self._find_function(function.name)
            if standing is None:
                self._forget_function(function.name)
                with failing(f"create the function {function.name}"):
                    run(self._spark, statement)
            elif not _is_made(function, standing):
                raise

    def _find_function(self, name: ItemName) -> Registration | None:
        """The function under a name, if it is listed.

        Before 4.2 a session that has called a function goes on describing it, and refusing
        another one of its name, after its schema was dropped; it cannot be called any more.
        """
        listed = self._functions(name.schema, _like([name]))
        if name.folded not in {each.folded for each in listed}:
            return None
        return self._describe_function(name)

    def _describe_function(self, name: ItemName) -> Registration | None:
        """A function that was listed; None where another application has dropped it since."""
        try:
            return self._function(name)
        except EngineFailure as error:
            if error.condition in NO_FUNCTION:
                return None
            raise

    def _forget_function(self, name: ItemName) -> None:
        """REFRESH FUNCTION, by which the session notices that there is none, and says so."""
        try:
            with failing(f"refresh the function {name}"):
                run(self._spark, f"REFRESH FUNCTION {name.sql}")
        except EngineFailure as error:
            if error.condition not in NO_FUNCTION:
                raise

    def drop(self, registration: Registration, *, beside: Sequence[Registration] = ()) -> None:
        """DROP by kind, while what was seen stands there.

        Looked at right before, for Spark has no DROP of what was seen only; and its DROP TABLE
        drops views too.
        """
        name = registration.name
        if registration.kind == "function":
            standing = self._find_function(name)
        else:
            standing = self._batched_lookup.find(name, beside or (registration,))
        if standing is None:
            return
        if standing.kind != registration.kind:
            raise EngineFailure(
                f"cannot drop the {registration.kind} {name}: a {standing.kind} has that name",
                condition="WRONG_COMMAND_FOR_OBJECT_TYPE",
            )
        parted = standing.location is not None and is_placeholder(standing.location)
        if not parted:
            if not registration.is_still(standing):
                return
            if standing.managed and standing.location is not None:
                self._part_from_files(name, standing.location)
        try:
            with failing(f"drop the {registration.kind} {name}"):
                kind = registration.kind.upper()
                run(self._spark, f"DROP {kind} IF EXISTS {name.sql}")
        except EngineFailure as error:
            if error.condition != _NO_SCHEMA:
                raise


