"""A PostgreSQL server with a catalog, DDL that alters it, and a log that pgoutput reads, in memory.

Rows of its catalog have oids and the transaction that wrote them last (xmin), as the real one's:
what is surveyed, compared, decoded and held is decided by the real code alone. A transaction is
decoded as the catalog was when it was committed; of versions it is PostgreSQL 18.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from catalog_migrate.connectors.postgres.pgoutput import count
from catalog_migrate.connectors.postgres.preflight import survey_findings
from catalog_migrate.connectors.postgres.sessions import RESUME, see_all_rows
from catalog_migrate.connectors.postgres.survey import (
    OPERATIONS,
    CatalogRows,
    Descendant,
    Name,
    Publication,
    Survey,
    Surveyed,
    Watch,
    assemble,
    missing_findings,
    names_of,
)
from catalog_migrate.connectors.postgres.types import Column, DiscoveredTable, Position, spark_type
from catalog_migrate.connectors.postgres.watch import Watcher
from catalog_migrate.errors import ConnectionFailed, ReplicationFailed, RowsHidden
from catalog_migrate.model.findings import Finding
from tests.replication import messages
from tests.simulation.server import Server

VERSION = 180000
PUBLICATION = "p"
_TRANSACTION = 100
"""Bytes of log that a transaction takes; its commit stands in the middle."""

TYPES = {"int": (23, "integer", "N"), "bigint": (20, "bigint", "N"), "text": (25, "text", "S")}
"""Oid, name and category."""

COLUMNS = "id int PRIMARY KEY, v text, n int"
TABLES = (
    f"CREATE TABLE g ({COLUMNS})",
    f"CREATE TABLE h ({COLUMNS}) PARTITION BY RANGE (id)",
    "CREATE TABLE h_1 PARTITION OF h FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE h_2 PARTITION OF h FOR VALUES FROM (100) TO (200)",
    "CREATE PUBLICATION p FOR TABLE g, h WITH (publish_via_partition_root = true)",
)
"""What a server begins with; a source mirrors ``g`` and ``h``."""


class Refused(Exception):
    """The server refuses a statement."""


@dataclass(slots=True)
class Attribute:
    """A row of pg_attribute; ``missing``: rows from before have ``default`` without being written.
    """

    name: str
    number: int
    type: str
    version: int
    default: str | None = None
    missing: bool = False
    expression: int = 0
    """The transaction that wrote its default (pg_attrdef), 0 for none."""


@dataclass(slots=True)
class Index:
    """A unique index, which is the primary key's; ``version`` is of its row in pg_class."""

    oid: int
    constraint: int
    columns: tuple[int, ...]
    written: int
    version: int


@dataclass(slots=True)
class Row:
    """A row, by numbers of columns."""

    values: dict[int, str | None]
    written: int


@dataclass(slots=True)
class Table:
    """A table or partition; ``links`` are to what it is a partition of, or inherits from."""

    name: str
    oid: int
    version: int
    file: int
    toast: int
    kind: str = "r"
    identity: str = "d"
    columns: list[Attribute] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)
    key: Index | None = None
    others: dict[int, int] = field(default_factory=dict)
    """Indexes that are not unique, by oid, with the transaction that wrote them."""
    links: dict[int, int] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None
    rows: list[Row] = field(default_factory=list)
    stored: int = 0
    """The transaction that wrote the rows of its TOAST table last."""
    policies: bool = False
    emptied: bool = True

    def column(self, name: str) -> Attribute:
        found = next((each for each in self.columns if each.name == name), None)
        if found is None:
            raise Refused(f"{self.name} has no column {name}")
        return found

    def value(self, row: Row, column: Attribute) -> str | None:
        return row.values.get(column.number, column.default if column.missing else None)

    def image(self, row: Row, names: Iterable[str]) -> list[str | None]:
        """Its values by name."""
        mine = {each.name: each for each in self.columns}
        return [self.value(row, mine[name]) if name in mine else None for name in names]

    def id_of(self, row: Row) -> int:
        return int(self.value(row, self.column("id")) or 0)


@dataclass(slots=True)
class Member:
    """A row of pg_publication_rel; ``above``: only rows with a larger id."""

    oid: int
    version: int
    above: int | None = None


@dataclass(slots=True)
class Published:
    """A publication; its tables by their oids."""

    oid: int
    version: int
    operations: tuple[str, ...] = OPERATIONS
    via_root: bool = False
    members: dict[int, Member] = field(default_factory=dict)


class CatalogServer(Server):
    """A server on which statements are played, see :meth:`execute`."""

    def __init__(self) -> None:
        super().__init__()
        self._xid, self._oid, self._tail = 700, 16_384, 1_000
        self.relations: dict[int, Table] = {}
        self.publications: dict[str, Published] = {}
        self.log: list[tuple[int, list[bytes]]] = []
        self.sees_all_rows = False
        for statement in TABLES:
            self.execute(statement)
        for number in (0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17):  # rows that come
            self.write(number)

    # the log ------------------------------------------------------------------------------------
    @property
    def end(self) -> int:
        """Behind the newest transaction."""
        return self._tail

    def messages(self, start: int) -> Iterator[tuple[int, bytes]]:
        """What pgoutput writes of the transactions from an LSN on."""
        for lsn, written in self.log:
            if lsn >= start:
                yield from ((lsn, each) for each in written)

    def counted(self, start: int, end: int) -> dict[str, int]:
        """Changes of each table."""
        return count(self.messages(start), start=start, end=end)

    def _commit(self, xid: int, changes: Sequence[bytes] = ()) -> None:
        lsn, self._tail = self._tail + _TRANSACTION // 2, self._tail + _TRANSACTION
        if changes:
            self.log.append((lsn, [
                messages.begin(lsn, messages.EPOCH, xid), *changes,
                messages.commit(lsn, messages.EPOCH),
            ]))

    def _next(self) -> int:
        self._xid += 1
        return self._xid

    def _new_oid(self) -> int:
        self._oid += 1
        return self._oid

    # rows ---------------------------------------------------------------------------------------
    def write(self, pick: int) -> None:
        """A transaction: a row comes, changes, goes, or changes its key, as ``pick`` says."""
        name, what = ("g", "h", "g")[pick % 3], pick // 3
        table = self._found(name)
        if table is None:
            return
        leaves = self._leaves(table)
        there = [(leaf, row) for leaf in leaves for row in leaf.rows]
        xid = self._next()
        try:
            if what % 4 < 2 or not there:
                changes = self._insert(table, leaves, what, xid)
            else:
                leaf, row = there[what % len(there)]
                changes = self._change(leaf, row, what, xid)
        except Refused:
            return
        self._commit(xid, changes)

    def _insert(
        self, table: Table, leaves: Sequence[Table], pick: int, xid: int
    ) -> list[bytes]:
        used = {leaf.id_of(row) for leaf in leaves for row in leaf.rows}
        free = [
            (leaf, number) for leaf in leaves for number in range(*(leaf.bounds or (0, 300)))
            if number not in used
        ]
        if not free:
            raise Refused("no room")
        leaf, number = free[pick * 7 % len(free)]
        if leaf.key is None and leaf.rows:  # nothing keeps a second row of a key away
            number = leaf.id_of(leaf.rows[pick % len(leaf.rows)])
        row = Row({}, xid)
        for column in leaf.columns:
            row.values[column.number] = (
                str(number) if column.name == "id" else f"v{xid}" if column.type == "text"
                else str(xid)
            )
        leaf.rows.append(row)
        return self._told(leaf, "insert", None, row)

    def _change(self, leaf: Table, row: Row, pick: int, xid: int) -> list[bytes]:
        after = Row(dict(row.values), xid)
        operation = "update" if pick % 4 == 2 else "delete" if pick % 8 == 3 else "update"
        if operation == "delete":
            told = self._told(leaf, "delete", row, None)
            leaf.rows.remove(row)
            return told
        for column in leaf.columns:
            if column.type == "text":
                after.values[column.number] = f"w{xid}"
        if pick % 8 == 7:  # its key changes, within its partition
            used = {leaf.id_of(each) for each in leaf.rows}
            low, high = leaf.bounds or (0, 300)
            free = next((each for each in range(low, high) if each not in used), None)
            if free is not None:
                after.values[leaf.column("id").number] = str(free)
        told = self._told(leaf, "update", row, after)
        leaf.rows[leaf.rows.index(row)] = after
        return told

    def rows_of(self, name: str) -> list[dict[str, str | None]]:
        """What a query of a table gives, of what the publication has of it."""
        table = self._found(name)
        if table is None:
            return []
        above = self._filter(table)
        names = [each.name for each in table.columns]
        return [
            dict(zip(names, leaf.image(row, names), strict=True))
            for leaf in (*self._leaves(table), *self._children(table)) for row in leaf.rows
            if above is None or leaf.id_of(row) > above
        ]

    def _told(
        self, leaf: Table, operation: str, before: Row | None, after: Row | None
    ) -> list[bytes]:
        """What pgoutput writes of a change, by what is published now."""
        published = self.publications.get(PUBLICATION)
        as_table, above = self._published_as(leaf)
        if published is None or as_table is None:
            return []
        sent = operation in published.operations
        if operation != "insert" and sent and leaf.identity == "d" and leaf.key is None:
            raise Refused(f"cannot {operation} table {leaf.name}: it has no replica identity")
        if above is not None:
            was, now = (
                row is not None and leaf.id_of(row) > above for row in (before, after)
            )
            if not was and not now:
                return []
            if operation == "update" and was != now:
                operation = "delete" if was else "insert"
        if operation not in published.operations:
            return []
        names = [each.name for each in as_table.columns]
        keys = self._key_names(as_table, leaf)
        relation = messages.relation(as_table.oid, f"public.{as_table.name}", [
            Column(each.name, TYPES[each.type][0], -1, each.name in keys)
            for each in as_table.columns
        ], identity=leaf.identity)
        full = leaf.identity == "f"
        kind = "O" if full else "K"
        old = None
        if before is not None:
            old = [
                value if full or name in keys else None
                for name, value in zip(names, leaf.image(before, names), strict=True)
            ]
        if operation == "insert":
            assert after is not None
            return [relation, messages.insert(as_table.oid, leaf.image(after, names))]
        if operation == "delete":
            assert old is not None
            return [relation, messages.delete(as_table.oid, old, kind=kind)]
        assert after is not None
        assert before is not None
        new = leaf.image(after, names)
        changed = full or leaf.id_of(before) != leaf.id_of(after)
        return [relation, messages.update(
            as_table.oid, new, old=old if changed else None, kind=kind
        )]

    def _key_names(self, table: Table, leaf: Table) -> set[str]:
        if leaf.identity == "f":
            return {each.name for each in table.columns}
        numbers = leaf.key.columns if leaf.key is not None else ()
        return {each.name for each in leaf.columns if each.number in numbers}

    # what hangs together ------------------------------------------------------------------------
    def _found(self, name: str) -> Table | None:
        return next((each for each in self.relations.values() if each.name == name), None)

    def table(self, name: str) -> Table:
        found = self._found(name)
        if found is None:
            raise Refused(f"there is no table {name}")
        return found

    def _below(self, table: Table) -> list[tuple[Table, int]]:
        return [
            (each, each.links[table.oid]) for _, each in sorted(self.relations.items())
            if table.oid in each.links
        ]

    def _leaves(self, table: Table) -> list[Table]:
        return [each for each, _ in self._below(table)] if table.kind == "p" else [table]

    def _children(self, table: Table) -> list[Table]:
        return [each for each, _ in self._below(table)] if table.kind != "p" else []

    def _root(self, table: Table) -> Table | None:
        """What it is a partition of."""
        parents = (self.relations.get(each) for each in table.links)
        return next((each for each in parents if each is not None and each.kind == "p"), None)

    def _published_as(self, leaf: Table) -> tuple[Table | None, int | None]:
        """The table as which changes of one come, and which ids."""
        published, root = self.publications.get(PUBLICATION), self._root(leaf)
        if published is None:
            return None, None
        own = published.members.get(leaf.oid)
        above = published.members.get(root.oid) if root is not None else None
        if above is not None:
            return (root if published.via_root else leaf), above.above
        return (leaf, own.above) if own is not None else (None, None)

    def _is_listed(self, table: Table) -> bool:
        """Whether pg_publication_tables has it."""
        as_table, _ = self._published_as(table)
        published = self.publications.get(PUBLICATION)
        if published is not None and table.kind == "p" and not published.via_root:
            return False
        return as_table is table

    def _filter(self, table: Table) -> int | None:
        return self._published_as(table)[1]

    # the catalog --------------------------------------------------------------------------------
    @property
    def version(self) -> int:
        """As :class:`catalog_migrate.connectors.postgres.watch.WatchedServer`, as what follows."""
        return VERSION

    def versions(
        self, publication: str, names: Sequence[Name]
    ) -> Iterator[tuple[str, int, int, int]]:
        """Kind, oid, part and xmin of every row that the tables depend on."""
        wanted = self._wanted(names)
        below = {each.oid: each for table in wanted for each, _ in self._below(table)}
        below |= {each.oid: each for each in wanted}
        above = {each.oid: each for each in wanted}
        for table in wanted:
            above |= {each: self.relations[each] for each in table.links}
        published = self.publications.get(publication)
        if published is not None:
            yield "publication", published.oid, 0, published.version
            for oid, member in published.members.items():
                if oid in above:
                    yield "table", member.oid, 0, member.version
        for each in (below | above).values():
            yield "class", each.oid, 0, each.version
        for table in wanted:
            if table.key is not None:
                yield "index", table.key.oid, 0, table.key.written
                yield "constraint", table.key.constraint, 0, table.key.written
            for oid, written in table.others.items():
                yield "index", oid, 0, written
            for column in table.columns:
                yield "column", table.oid, column.number, column.version
                if column.expression:
                    yield "expression", table.oid, column.number, column.expression
            for number, written in table.dropped.items():
                yield "column", table.oid, number, written
        for each in below.values():
            for parent, written in each.links.items():
                if parent in below or (each.oid in above and parent in above):
                    yield "link", each.oid, parent, written

    def _wanted(self, names: Sequence[Name]) -> list[Table]:
        found = (self._found(name) for schema, name in names if schema == "public")
        return [each for each in found if each is not None]

    def fingerprint(self, publication: str, names: Sequence[Name]) -> str:
        """One text over all of them."""
        text = ",".join(map(str, sorted(self.versions(publication, names))))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def survey(
        self, publication: str, names: Sequence[Name], recorded: Survey | None = None
    ) -> Surveyed:
        """The rows of the catalog, by the real code as one value."""
        tables = self._wanted(names)
        published = self.publications.get(publication)
        members = [] if published is None else [
            ("table", member.oid, oid) for oid, member in published.members.items()
        ]
        oids = [each.oid for each in recorded.tables] if recorded is not None else []
        return assemble(publication, CatalogRows(
            self.fingerprint(publication, names),
            None if published is None else Publication(
                published.oid, published.version, published.operations, published.via_root,
            ),
            [(each.oid, "public", each.name, each.version, each.kind, "p", each.identity,
              each.file, each.toast, each.policies and not self.sees_all_rows)
             for each in tables],
            [(each.oid, *_described(each, column)) for each in tables for column in each.columns],
            [(each.oid, each.key.oid, each.key.constraint, True, False, [
                column.name for column in each.columns if column.number in each.key.columns
            ]) for each in tables if each.key is not None],
            sorted({(each.oid, version) for each in tables for version in _storage(each)}),
            [(each.oid, *link) for each in tables for link in each.links.items()
             if self._root(each) is not None],
            [(each.oid, part.oid, f"public.{part.name}", attached, part.version, part.kind, "p",
              part.file, part.toast, part.emptied)
             for each in tables for part, attached in self._below(each)],
            [("public", each.name, [column.name for column in each.columns],
              None if self._filter(each) is None else f"(id > {self._filter(each)})")
             for each in tables if self._is_listed(each)],
            members,
            {oid: f"public.{self.relations[oid].name}" for oid in oids if oid in self.relations},
        ))

    def has_older_rows(self, table: str, part: Descendant) -> bool:
        """Whether a partition has rows from before it was attached."""
        del table
        found = self.relations.get(part.oid)
        return found is None or any(row.written <= part.attached for row in found.rows)

    def truncates(self, slot: str, publication: str) -> Iterable[bytes] | None:
        """What a slot has of them."""
        del publication
        start = self.slots.get(slot)
        if start is None:
            return None
        return [each for _, each in self.messages(start) if each[:1] in (b"B", b"T")]

    # as the port asks ---------------------------------------------------------------------------
    def discover(
        self, names: Sequence[str], publication: str, subject: str
    ) -> tuple[DiscoveredTable, ...]:
        """The tables, or ConnectionFailed with all that is missing."""
        found = self.survey(publication, names_of(names)).discovered
        findings = missing_findings(names, found, subject)
        if findings:
            raise ConnectionFailed(
                "; ".join(each.message for each in findings), findings=findings,
                remedy=findings[0].remedy,
            )
        return found

    def preflight(
        self, names: Sequence[str], publication: str, subject: str, *, new: bool
    ) -> tuple[Finding, ...]:
        """What keeps a mirror of the tables from being read."""
        wanted = names_of(names)
        surveyed = self.survey(publication, wanted)
        found = survey_findings(surveyed, wanted, publication, "MIRROR", subject, VERSION)
        found += [
            Finding(subject, "TABLES", "error", f"row level security hides rows of {each.name}",
                    see_all_rows("u"))
            for each in surveyed.survey.tables if each.policies and new
        ]
        return tuple(found) or (Finding(subject, None, "ok", "fine"),)

    def look(self, watch: Watch, position: Position | None) -> Survey:
        """By the real code."""
        watcher = Watcher(watch)
        watcher.look(self, position or Position(0, 1, ""))
        return watcher.watch.recorded

    def recorded(self, watch: Watch) -> Survey:
        """What is there of the tables."""
        return self.survey(watch.publication, watch.names).survey

    def staged(self, table: DiscoveredTable) -> list[dict[str, str | None]]:
        """The rows that a snapshot copies."""
        found = self.table(table.name)
        there = {each.name for each in found.columns}
        missing = [each.name for each in table.published if each.name not in there]
        if missing:
            raise ReplicationFailed(f'column "{missing[0]}" does not exist')
        if found.policies and not self.sees_all_rows:
            raise RowsHidden(
                f"role u may see some rows only: row-level security of {table.full_name}",
                remedy=f"{see_all_rows('u')}, then resume the source", statements=RESUME,
            )
        if found.kind == "r":  # COPY of the table alone
            return [
                dict(zip((each.name for each in found.columns),
                         found.image(row, [each.name for each in found.columns]), strict=True))
                for row in found.rows
                if self._filter(found) is None or found.id_of(row) > (self._filter(found) or 0)
            ]
        return self.rows_of(table.name)

    # statements ---------------------------------------------------------------------------------
    def execute(self, sql: str) -> None:
        """Run a statement of :data:`STATEMENTS`; raises :class:`Refused`."""
        plain = " ".join(sql.replace('"', "").replace("public.", "").rstrip(";").split())
        for pattern, act in STATEMENTS:
            found = pattern.fullmatch(plain)
            if found is not None:
                xid = self._next()
                self._commit(xid, act(self, xid, *found.groups()) or ())
                return
        raise AssertionError(f"the server does not know {plain}")

    def create(self, xid: int, name: str, columns: str, partitioned: str | None) -> None:
        self._require_free(name)
        table = self._made(xid, name)
        for number, text in enumerate(columns.split(", "), 1):
            words = text.split()
            table.columns.append(Attribute(words[0], number, words[1], xid))
            if "PRIMARY KEY" in text:
                table.key = self._index(xid, (number,))
        if partitioned:
            table.kind, table.file, table.toast = "p", 0, 0

    def create_partition(self, xid: int, name: str, root: str, low: str, high: str) -> None:
        self._require_free(name)
        parent = self._partitioned(root)
        self._require_room(parent, (int(low), int(high)))
        table = self._like(xid, name, parent)
        table.links[parent.oid], table.bounds = xid, (int(low), int(high))

    def create_like(self, xid: int, name: str, other: str) -> None:
        self._require_free(name)
        self._like(xid, name, self.table(other))

    def create_child(self, xid: int, name: str, parent: str) -> None:
        self._require_free(name)
        above = self.table(parent)
        if above.kind == "p":
            raise Refused(f"{parent} is partitioned")
        table = self._like(xid, name, above)
        table.key = None
        table.links[above.oid] = xid

    def drop(self, xid: int, name: str) -> None:
        table = self.table(name)
        if self._children(table):
            raise Refused(f"other tables depend on {name}")
        gone = {table.oid, *(each.oid for each, _ in self._below(table))}
        for oid in gone:
            del self.relations[oid]
            for published in self.publications.values():
                published.members.pop(oid, None)
        del xid

    def rename(self, xid: int, name: str, to: str) -> None:
        self._require_free(to)
        table = self.table(name)
        table.name, table.version = to, xid

    def add_column(
        self, xid: int, name: str, column: str, type_: str, default: str | None
    ) -> None:
        for table in self._whole(name):
            if any(each.name == column for each in table.columns):
                raise Refused(f"{name} has a column {column}")
            number = max([each.number for each in table.columns] + list(table.dropped)) + 1
            made = Attribute(column, number, type_, xid)
            rewrites = default is not None and "(" in default
            if default is not None:
                made.expression = xid
            if default is not None and not rewrites:
                made.default, made.missing = default, table.kind == "r"
            table.columns.append(made)
            table.version = xid
            if rewrites and table.kind == "r":
                self._rewrite(table, xid, toast=True)
                for place, row in enumerate(table.rows):
                    row.values[number] = str(1000 + place)

    def drop_column(self, xid: int, name: str, column: str) -> None:
        for table in self._whole(name):
            found = table.column(column)
            if table.key is not None and found.number in table.key.columns:
                raise Refused("it is in the key")
            table.columns.remove(found)
            table.dropped[found.number] = xid

    def rename_column(self, xid: int, name: str, column: str, to: str) -> None:
        for table in self._whole(name):
            if any(each.name == to for each in table.columns):
                raise Refused(f"{name} has a column {to}")
            found = table.column(column)
            found.name, found.version = to, xid

    def retype(self, xid: int, name: str, column: str, type_: str, using: str | None) -> None:
        if self.table(name).links:
            raise Refused("it is a partition's")
        for table in self._whole(name):
            found = table.column(column)
            for row in table.rows:
                old = table.value(row, found)
                row.values[found.number] = str(int(old) + 1) if using and old else old
            found.type, found.version = type_, xid
            if table.kind == "r":
                self._rewrite(table, xid, toast=True)
            table.version = xid if table.kind == "r" else table.version

    def set_default(self, xid: int, name: str, column: str) -> None:
        found = self.table(name).column(column)
        found.version = found.expression = xid

    def drop_key(self, xid: int, name: str, _: str) -> None:
        table = self.table(name)
        if table.key is None or table.links or table.kind == "p":
            raise Refused("it has no key of its own")
        table.key = None
        del xid

    def add_key(self, xid: int, name: str, column: str) -> None:
        table = self.table(name)
        if table.key is not None:
            raise Refused(f"{name} has a primary key")
        found = table.column(column)
        seen = Counter(table.value(row, found) for row in table.rows)
        if any(times > 1 for times in seen.values()):
            raise Refused("rows of one key are there")
        table.key = self._index(xid, (found.number,))

    def remove_doubles(self, xid: int, name: str) -> list[bytes]:
        table, seen, told = self.table(name), set(), []
        for row in list(table.rows):
            number = table.id_of(row)
            if number in seen:
                told += self._told(table, "delete", row, None)
                table.rows.remove(row)
            seen.add(number)
        del xid
        return told

    def set_identity(self, xid: int, name: str, word: str) -> None:
        table = self.table(name)
        if table.kind == "p" or table.links:
            raise Refused("not of partitions here")
        table.identity, table.version = {"FULL": "f", "DEFAULT": "d"}[word], xid

    def set_policies(self, xid: int, name: str, word: str) -> None:
        table = self.table(name)
        table.policies, table.version = word == "ENABLE", xid

    def detach(self, xid: int, root: str, name: str) -> None:
        table, parent = self.table(name), self._partitioned(root)
        if table.links.pop(parent.oid, None) is None:
            raise Refused(f"{name} is no partition of {root}")
        table.bounds, table.version = None, xid

    def attach(self, xid: int, root: str, name: str, low: str, high: str) -> None:
        table, parent = self.table(name), self._partitioned(root)
        bounds = int(low), int(high)
        self._require_room(parent, bounds)
        own, its = ([(each.name, each.type) for each in of.columns] for of in (table, parent))
        fits = all(bounds[0] <= table.id_of(row) < bounds[1] for row in table.rows)
        if table.links or table.kind == "p" or table is parent or sorted(own) != sorted(its) or (
            not fits or table.key is None
        ):
            raise Refused(f"{name} does not fit {root}")
        table.links[parent.oid], table.bounds, table.version = xid, bounds, xid

    def leave(self, xid: int, name: str, parent: str) -> None:
        table, above = self.table(name), self.table(parent)
        if table.links.pop(above.oid, None) is None:
            raise Refused(f"{name} does not inherit from {parent}")
        table.version = xid

    def truncate(self, xid: int, name: str) -> list[bytes]:
        table = self.table(name)
        published, (as_table, _) = self.publications.get(PUBLICATION), self._published_as(table)
        for leaf in self._leaves(table):
            leaf.rows.clear()
            self._rewrite(leaf, xid, toast=False)
            leaf.emptied = True
        if (
            published is None or "truncate" not in published.operations or as_table is not table
            or (table.kind == "p" and not published.via_root)
        ):
            return []
        return [
            messages.relation(table.oid, f"public.{table.name}", [
                Column(each.name, TYPES[each.type][0], -1, each.name == "id")
                for each in table.columns
            ]),
            messages.truncate(table.oid),
        ]

    def vacuum(self, xid: int, name: str) -> None:
        for leaf in self._leaves(self.table(name)):
            self._rewrite(leaf, xid, toast=False)
            leaf.emptied = False

    def analyze(self, xid: int, name: str) -> None:
        for leaf in self._leaves(self.table(name)):
            leaf.emptied = False
        del xid

    def grant(self, xid: int, name: str) -> None:
        self.table(name).version = xid

    def index(self, xid: int, name: str, _: str) -> None:
        self.table(name).others[self._new_oid()] = xid

    def publish(self, xid: int, name: str, verb: str, tables: str) -> None:
        published = self._publication(name)
        listed: dict[int, int | None] = {}
        for text in tables.split(", "):
            called, _, where = text.partition(" WHERE (id > ")
            listed[self.table(called).oid] = int(where.rstrip(")")) if where else None
        if verb == "DROP" and not listed.keys() <= published.members.keys():
            raise Refused("it is not in the publication")
        if verb == "ADD" and listed.keys() & published.members.keys():
            raise Refused("it is in the publication")
        gone = listed.keys() if verb == "DROP" else (
            published.members.keys() - listed.keys() if verb == "SET" else set()
        )
        for oid in list(gone):
            del published.members[oid]
        for oid, above in listed.items() if verb != "DROP" else ():
            there = published.members.get(oid)
            if there is None or there.above != above:
                published.members[oid] = Member(self._new_oid(), xid, above)

    def set_operations(self, xid: int, name: str, operations: str) -> None:
        published = self._publication(name)
        words = operations.split(", ")
        published.operations = tuple(each for each in OPERATIONS if each in words)
        published.version = xid

    def set_via_root(self, xid: int, name: str, word: str) -> None:
        published = self._publication(name)
        published.via_root, published.version = word == "true", xid

    def create_publication(self, xid: int, name: str, tables: str, via: str | None) -> None:
        if name in self.publications:
            raise Refused(f"there is a publication {name}")
        self.publications[name] = Published(self._new_oid(), xid, via_root=via is not None)
        self.publish(xid, name, "ADD", tables)

    def rename_publication(self, xid: int, name: str, to: str) -> None:
        if to in self.publications:
            raise Refused(f"there is a publication {to}")
        published = self._publication(name)
        published.version = xid
        self.publications[to] = self.publications.pop(name)

    def drop_publication(self, xid: int, name: str) -> None:
        self._publication(name)
        del self.publications[name], xid

    def bypass(self, xid: int) -> None:
        self.sees_all_rows = True
        del xid

    # what they have in common -------------------------------------------------------------------
    def _made(self, xid: int, name: str) -> Table:
        oid = self._new_oid()
        made = Table(name, oid, xid, self._new_oid(), self._new_oid(), stored=xid)
        self.relations[oid] = made
        return made

    def _like(self, xid: int, name: str, other: Table) -> Table:
        table = self._made(xid, name)
        table.columns = [
            replace(each, number=number, version=xid, missing=False)
            for number, each in enumerate(other.columns, 1)
        ]
        if other.key is not None:
            table.key = self._index(xid, tuple(
                each.number for each in table.columns if each.name == "id"
            ))
        return table

    def _index(self, xid: int, columns: tuple[int, ...]) -> Index:
        return Index(self._new_oid(), self._new_oid(), columns, xid, xid)

    def _rewrite(self, table: Table, xid: int, *, toast: bool) -> None:
        """Other files; defaults of old rows are written, which the columns' own rows say."""
        table.version, table.file, table.stored = xid, self._new_oid(), xid
        if toast:
            table.toast = self._new_oid()
        if table.key is not None:
            table.key.version = xid
        for column in table.columns:
            if column.missing:
                for row in table.rows:
                    row.values.setdefault(column.number, column.default)
                column.missing, column.version = False, xid

    def _whole(self, name: str) -> list[Table]:
        """A table with its partitions and children; none of them by itself."""
        table = self.table(name)
        if table.links:
            raise Refused(f"{name} has its columns from another table")
        return [table, *(each for each, _ in self._below(table))]

    def _require_free(self, name: str) -> None:
        if self._found(name) is not None:
            raise Refused(f"there is a table {name}")

    def _partitioned(self, name: str) -> Table:
        table = self.table(name)
        if table.kind != "p":
            raise Refused(f"{name} is not partitioned")
        return table

    def _require_room(self, parent: Table, bounds: tuple[int, int]) -> None:
        for each, _ in self._below(parent):
            low, high = each.bounds or (0, 0)
            if low < bounds[1] and bounds[0] < high:
                raise Refused(f"it would overlap {each.name}")

    def _publication(self, name: str) -> Published:
        if name not in self.publications:
            raise Refused(f"there is no publication {name}")
        return self.publications[name]


def _described(table: Table, column: Attribute) -> tuple[Any, ...]:
    """A row of what :class:`CatalogRows` has of a column."""
    oid, text, category = TYPES[column.type]
    assert spark_type(oid, -1) is not None
    key = table.key is not None and column.number in table.key.columns
    return (
        column.name, column.number, column.version, text, oid, -1, key, "", oid, -1, "b",
        category, text, "", None, column.missing, bool(column.expression) or column.missing or key,
    )


def _storage(table: Table) -> Iterator[int]:
    if table.toast:
        yield table.stored
    if table.key is not None:
        yield table.key.version
    yield from table.others.values()


def _statement(text: str) -> re.Pattern[str]:
    """``<name>`` is a word; what follows is a pattern already."""
    return re.compile(re.sub(r"<\w+>", r"(\\w+)", text))


Act = Callable[..., "list[bytes] | None"]
_BOUNDS = r"FOR VALUES FROM \((\d+)\) TO \((\d+)\)"
STATEMENTS: tuple[tuple[re.Pattern[str], Act], ...] = tuple(
    (_statement(text), act) for text, act in (
        (r"CREATE TABLE <t> \((\w[^()]*)\)( PARTITION BY RANGE \(id\))?", CatalogServer.create),
        (rf"CREATE TABLE <t> PARTITION OF <r> {_BOUNDS}", CatalogServer.create_partition),
        (r"CREATE TABLE <t> \(LIKE <r>\)", CatalogServer.create_like),
        (r"CREATE TABLE <t> \(\) INHERITS \(<r>\)", CatalogServer.create_child),
        (r"DROP TABLE <t>", CatalogServer.drop),
        (r"ALTER TABLE <t> RENAME TO <n>", CatalogServer.rename),
        (r"ALTER TABLE <t> ADD COLUMN <c> <y>(?: DEFAULT (.+))?", CatalogServer.add_column),
        (r"ALTER TABLE <t> DROP COLUMN <c>", CatalogServer.drop_column),
        (r"ALTER TABLE <t> RENAME COLUMN <c> TO <d>", CatalogServer.rename_column),
        (r"ALTER TABLE <t> ALTER <c> TYPE <y>( USING .+)?", CatalogServer.retype),
        (r"ALTER TABLE <t> ALTER <c> SET DEFAULT 1", CatalogServer.set_default),
        (r"ALTER TABLE <t> DROP CONSTRAINT <k>", CatalogServer.drop_key),
        (r"ALTER TABLE <t> ADD PRIMARY KEY \(<c>\)", CatalogServer.add_key),
        (r"DELETE DOUBLES OF <t>", CatalogServer.remove_doubles),
        (r"ALTER TABLE <t> REPLICA IDENTITY <w>", CatalogServer.set_identity),
        (r"ALTER TABLE <t> (ENABLE|DISABLE) ROW LEVEL SECURITY", CatalogServer.set_policies),
        (r"ALTER TABLE <t> DETACH PARTITION <n>", CatalogServer.detach),
        (rf"ALTER TABLE <t> ATTACH PARTITION <n> {_BOUNDS}", CatalogServer.attach),
        (r"ALTER TABLE <t> NO INHERIT <n>", CatalogServer.leave),
        (r"TRUNCATE <t>", CatalogServer.truncate),
        (r"VACUUM FULL <t>", CatalogServer.vacuum),
        (r"ANALYZE <t>", CatalogServer.analyze),
        (r"GRANT SELECT ON <t> TO PUBLIC", CatalogServer.grant),
        (r"CREATE INDEX ON <t> \(<c>\)", CatalogServer.index),
        (r"ALTER PUBLICATION <p> SET \(publish = '([\w, ]+)'\)", CatalogServer.set_operations),
        (r"ALTER PUBLICATION <p> SET \(publish_via_partition_root = <w>\)",
         CatalogServer.set_via_root),
        (r"ALTER PUBLICATION <p> RENAME TO <n>", CatalogServer.rename_publication),
        (r"ALTER PUBLICATION <p> (ADD|DROP|SET) TABLE (\w[^;]*)", CatalogServer.publish),
        (r"CREATE PUBLICATION <p> FOR TABLE (\w[\w, ]*?)"
         r"( WITH \(publish_via_partition_root = true\))?", CatalogServer.create_publication),
        (r"DROP PUBLICATION <p>", CatalogServer.drop_publication),
        (r"ALTER ROLE u BYPASSRLS", CatalogServer.bypass),
    )
)
"""What may be said to a server, and what it does."""
