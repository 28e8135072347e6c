"""An unsafe statement as a value: what is asked of which item, bound to what it was asked on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, get_args

import msgspec

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import has_records, has_tables, source_of
from catalog_migrate.connectors.options import (
    apply_actions,
    canonical_name,
    checked_values,
    diff,
    partition,
    section_of,
)
from catalog_migrate.connectors.positions import Partition
from catalog_migrate.connectors.postgres.positions import read_lsn
from catalog_migrate.connectors.sections import SectionName
from catalog_migrate.errors import InvalidPosition, UnsafeBlocked, UsageError
from catalog_migrate.model.objects import External, ObjectDefinition, OptionValue, SecretRef
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.statements import BASE_CONNECTION, USED_CONNECTIONS
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import Totals, value_in
from catalog_migrate.streams.catalog.query_options import check_query
from catalog_migrate.streams.catalog.statement_changes import external_hash
from catalog_migrate.streams.checkpoint.targets import Target, parse_target, start_targets

Policy = Literal["error", "clamp", "allow"]
Ties = Literal["double", "skip"]
"""What becomes of records with the very time of the last stored one: read again, or passed over."""

POLICIES: tuple[Policy, ...] = get_args(Policy)
TIES: tuple[Ties, ...] = get_args(Ties)

CHUNK = 50_000
"""Records of one chunk of a backfill, at most."""


class ItemRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked of one source or sink.

    ``generation`` and ``bound`` (a hash of the definition) are what it was asked on. ``reset``
    None: no RESET SPLITS, (): of all. ``targets`` and ``everywhere`` are as written, a target of
    None is START. ``only``: no other partition is read afterwards. ``version`` is of the table
    that a sink reads. ``origin`` is a line up to which topics were read that are not read now.
    ``translate`` says what becomes of ties when positions go over to another topic by time.
    ``restore`` is the version that the source's table, the one at ``shard``, goes back to; ``past``
    is the source whose table does while this sink reads it.
    """

    item_id: str
    generation: int
    bound: str
    before: ObjectDefinition
    after: ObjectDefinition
    links_before: dict[str, str]
    links_after: dict[str, str]
    reset: tuple[str, ...] | None = None
    targets: dict[str, str | None] = {}
    everywhere: str | None = None
    only: bool = False
    version: int | None = None
    origin: str = ""
    translate: Ties | None = None
    restore: int | None = None
    shard: str = ""
    past: str = ""

    @property
    def redefines(self) -> bool:
        """Whether the definition changes."""
        return self.before != self.after or self.links_before != self.links_after

    @property
    def chooses(self) -> bool:
        """Whether it asks for positions."""
        return (
            self.reset is not None or self.everywhere is not None or bool(self.targets)
            or self.version is not None
        )

    @property
    def has_tables(self) -> bool:
        """Whether it is on a source of several tables, which has one position for all."""
        return has_tables(self.after)

    @property
    def has_records(self) -> bool:
        """Whether it is on a source that reads records of partitions."""
        return has_records(self.after)

    @property
    def has_positions(self) -> bool:
        """Whether it is on a source that has positions to inject: not one that lists files."""
        return source_of(self.after.external or External()).codec is not None

    @property
    def copies_all(self) -> bool:
        """Whether the source takes a new snapshot of all of its tables."""
        return self.has_tables and self.reset == ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the properties that change."""
        old, new = dependencies.all_options(self.before), dependencies.all_options(self.after)
        return diff(old, new)

    def begins(self, partitions: Iterable[Partition]) -> dict[Partition, Target]:
        """Return where partitions begin that were not read yet."""
        start, starts = start_targets(self.after.external or External())
        return {each: starts.get(each, start) for each in partitions}

    def read_targets(self) -> dict[Partition, Target]:
        """Return the targets of the partitions that are named."""
        read = {partition_of(split): text for split, text in self.targets.items()}
        return self.begins(each for each, text in read.items() if text is None) | {
            each: parse_target(text) for each, text in read.items() if text is not None
        }


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation on one or several items, all or nothing.

    ``tolerance`` is by how many records doubled or skipped may exceed ``approved``; None: by any
    number. ``topics`` are the ids that an approved plan was made for, by item. ``undoes`` is the
    operation that it takes back. ``backfill``: what is skipped is read into the table
    meanwhile, at most ``chunk`` records at once. Without parts it is the settings of one.
    """

    parts: tuple[ItemRequest, ...] = ()
    policy: Policy = "error"
    accept_new_topic: bool = False
    skip_validate: bool = False
    tolerance: int | None = None
    approved: Totals | None = None
    undoes: str = ""
    topics: dict[str, dict[str, str]] = {}
    backfill: bool = False
    chunk: int = CHUNK


def request_in(row: OperationRecord) -> Request:
    """What an operation is to do."""
    assert row.unsafe is not None
    return value_in(row.unsafe.request, Request)


def request_of(state: State, statement: st.Unsafe) -> Request:
    """The request that a statement makes; typed errors for what cannot be asked at all."""
    return joint((statement,), state)


def joint(statements: Sequence[st.Unsafe], state: State) -> Request:
    """One request of several statements with the same settings: all of them or none."""
    settings, translate = _read_settings(statements[0].settings)
    return request_on(state, statements, settings, translate)


def request_on(
    state: State, statements: Sequence[st.Unsafe], settings: Request, translate: Ties | None = None
) -> Request:
    """One request of several statements under ``settings``; their own do not count.

    ``translate`` says what becomes of ties when positions go over to another topic by time, None:
    they do not.
    """
    by_time = translate is not None
    parts = tuple(_part(state, each, by_time=by_time) for each in statements)
    names = [part.item_id for part in parts]
    if len(set(names)) != len(names):
        raise UnsafeBlocked("one item is named twice in the operation", remedy="name it once")
    clusters = {state.items[name].links.get("cluster") for name in names}
    if len(clusters) > 1:
        raise UnsafeBlocked(
            "the items run in several clusters; an operation is carried out by one",
            remedy="make one operation for each cluster",
        )
    if translate is not None:
        parts = tuple(_translate(part, translate) for part in parts)
    if settings.backfill:
        _require_records(parts)
    return msgspec.structs.replace(settings, parts=parts)


def sources_named(state: State, names: Sequence[str], connection: str | None) -> list[str]:
    """The sources named and those of a connection, each once; UsageError for none at all."""
    found = list(names)
    if connection is not None:
        named = {dependencies.find(state, "source", name).item_id for name in names}
        item_id = dependencies.find(state, "connection", connection).item_id
        found += [
            str(state.items[each].definition.item_name)
            for each in dependencies.dependents(state, item_id)
            if state.items[each].definition.kind == "source" and each not in named
        ]
    if not found:
        raise UsageError("no source is named", remedy="name one, or --below CONNECTION")
    return found


def injections(
    targets: Mapping[str, str | None], partitions: Iterable[tuple[str, str]],
    everywhere: str | None,
) -> tuple[st.UnsafeAction, ...]:
    """The actions that put partitions elsewhere.

    ``targets`` are those of a file, by partition. ``partitions`` pairs ``topic:number`` with a
    target, ``null`` for START. UsageError for a partition that is given twice.
    """
    merged = dict(targets)
    for written, target in partitions:
        split = split_of(partition_of(written))
        if split in merged:
            raise UsageError(
                f"--partition {split} is given twice", remedy="leave one of them out"
            )
        merged[split] = None if target.lower() == "null" else target
    found: list[st.UnsafeAction] = []
    if everywhere is not None:
        found.append(st.InjectOffsets(everywhere=everywhere))
    if merged:
        found.append(st.InjectOffsets(merged))
    return tuple(found)


def partition_of(split: str) -> Partition:
    """``topic:0`` as a partition; :class:`InvalidPosition`."""
    topic, _, number = split.rpartition(":")
    if not topic or not (number.isascii() and number.isdecimal()):
        raise InvalidPosition(
            f"{split!r} is no partition", remedy="write topic and number, as 'orders:0'"
        )
    return topic, int(number)


def split_of(partition: Partition) -> str:
    """``topic:0``."""
    return f"{partition[0]}:{partition[1]}"


def _require_records(parts: Iterable[ItemRequest]) -> None:
    for part in parts:
        if not part.has_records:
            raise UnsafeBlocked(
                f"{part.after.kind} {part.after.item_name} has no records to read afterwards",
                remedy="leave BACKFILL away",
            )


def _translate(part: ItemRequest, ties: Ties) -> ItemRequest:
    """A part whose positions go over by time; what cannot be translated begins at START."""
    if not part.has_records:
        raise UnsafeBlocked(
            f"{part.after.kind} {part.after.item_name} has no positions to translate",
            remedy="leave TRANSLATE BY away",
        )
    return msgspec.structs.replace(part, translate=ties, reset=())


def bound_hash(definition: ObjectDefinition) -> str:
    """What a request is bound to: the definition beside its name and comment."""
    return external_hash(definition)


# -- settings ------------------------------------------------------------------------------------


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if (word := text.strip().lower()) not in words:
            raise ValueError(", ".join(words))
        return word

    return read


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise ValueError(f"a number of records from {least}")
        return int(text)

    return read


_READ: Mapping[str, Callable[[str], Any]] = {
    "ACCEPT NEW TOPIC": _boolean, "BACKFILL": _boolean, "CHUNK": _count(1),
    "POLICY": _one_of(*POLICIES), "SKIP VALIDATE": _boolean, "TIES": _one_of(*TIES),
    "TOLERANCE": _count(0), "TRANSLATE BY": _one_of("timestamp"),
}


def _read_settings(written: Mapping[str, str]) -> tuple[Request, Ties | None]:
    found: dict[str, Any] = {}
    for name, text in written.items():
        if name not in _READ:
            raise UnsafeBlocked(
                f"there is no setting {name} of an unsafe operation",
                remedy=f"the settings: {', '.join(_READ)}",
            )
        try:
            found[name] = _READ[name](text)
        except ValueError as error:
            raise UnsafeBlocked(
                f"{name} is {text!r}", remedy=f"write one of: {error}"
            ) from error
    ties: Ties = found.pop("TIES", "double")
    translate = ties if found.pop("TRANSLATE BY", "") else None
    fields = {name.lower().replace(" ", "_"): value for name, value in found.items()}
    return Request(**fields), translate


# -- parts ---------------------------------------------------------------------------------------


def _part(state: State, statement: st.Unsafe, *, by_time: bool) -> ItemRequest:
    found = dependencies.find(state, statement.kind, statement.name)
    if not dependencies.is_query(found.item):
        raise UnsafeBlocked(
            f"{found.text} has no query, it is quarantined: {found.item.quarantined}",
            remedy=f"fix that first, or DROP {statement.kind.upper()} and create it again",
        )
    external, links = _redefine(state, found, statement)
    stream = state.streams.get(found.item_id)
    definition = found.item.definition
    part = ItemRequest(
        item_id=found.item_id,
        generation=stream.generation if stream is not None else 0,
        bound=bound_hash(definition),
        before=definition,
        after=msgspec.structs.replace(definition, external=external),
        links_before=dict(found.item.links),
        links_after=links,
        **_positions(found, statement.actions),
    )
    _require_fitting(found, part, by_time=by_time)
    if part.has_records:  # a mistake in any target is an error at once
        part.read_targets()
        for split in part.reset or ():
            partition_of(split)
        if part.everywhere is not None:
            parse_target(part.everywhere)
    return part


def _positions(
    found: dependencies.CatalogEntry, actions: Sequence[st.UnsafeAction]
) -> dict[str, Any]:
    resets: list[tuple[str, ...]] = []
    offsets: list[st.InjectOffsets] = []
    fields: dict[str, Any] = {}
    for action in actions:
        if isinstance(action, st.ResetSplits):
            resets.append(action.splits)
        elif isinstance(action, st.InjectOffsets):
            offsets.append(action)
    fields["targets"] = _targets(found, offsets)
    versions = [action.version for action in actions if isinstance(action, st.InjectVersion)]
    everywhere = [action.everywhere for action in offsets if action.everywhere is not None]
    for name, given in (("everywhere", everywhere), ("version", versions)):
        if len(given) > 1:
            raise InvalidPosition(
                f"{found.text}: two targets for everything", remedy="leave one of them out"
            )
        if given:
            fields[name] = given[0]
    if resets:
        fields["reset"] = () if () in resets else tuple(dict.fromkeys(chain(*resets)))
    return fields


def _targets(
    found: dependencies.CatalogEntry, offsets: Sequence[st.InjectOffsets]
) -> dict[str, str | None]:
    if has_tables(found.item.definition) and any(action.targets for action in offsets):
        raise UnsafeBlocked(
            f"{found.text} has one position for all of its tables",
            remedy="write INJECT OFFSETS (TO '0/16B3748'); a table alone is copied again by RESET "
            "SPLITS ('schema.table')",
        )
    targets: dict[str, str | None] = {}
    for written, target in chain.from_iterable(action.targets.items() for action in offsets):
        split = split_of(partition_of(written))
        if split in targets:
            raise InvalidPosition(
                f"{found.text}: {split} is given twice", remedy="leave one of them out"
            )
        targets[split] = target
    return targets


def _redefine(
    state: State, found: dependencies.CatalogEntry, statement: st.Unsafe
) -> tuple[External, dict[str, str]]:
    own, over = _split_actions(found, statement)
    external = found.external
    connector = external.connector or ""
    both = apply_actions(
        {**external.options, **external.settings}, own, connector=connector,
        section=statement.kind, where=found.text,
    )
    options, given = partition(connector, statement.kind, both)
    wanted = msgspec.structs.replace(
        external, options=options,
        settings={name: str(value) for name, value in given.items()},
        overrides={
            **apply_actions(
                external.overrides, over, connector=connector, section="connection",
                where=found.text,
            ),
            **checked_values(connector, _list_set(over), where=found.text),
        },
    )
    checked, links = check_query(
        state, statement.kind, statement.name, wanted, external.options
    )
    kept = {
        role: used for role, used in found.item.links.items()
        if not role.startswith(dependencies.OVERRIDE)
    }
    secrets = {
        dependencies.OVERRIDE + name: _secret(state, found, name, value)
        for name, value in wanted.overrides.items() if isinstance(value, SecretRef)
    }
    return checked, {**kept, **links, **secrets}


def _list_set(actions: _Actions) -> dict[str, OptionValue]:
    """What SET says, by name as written; that no name stands twice is known."""
    return {
        name: value for action in actions if isinstance(action, st.SetOptions)
        for name, value in action.options.items()
    }


def require_checked(request: Request) -> None:
    """InvalidOptions unless each option that a request sets over a connection may stand there.

    A statement's own were checked when it was read; this is for what comes from a saved plan, from
    an undo, or from an older version of this tool. What stood there before may stay.
    """
    for part in request.parts:
        before, after = (each.external or External() for each in (part.before, part.after))
        fresh = {
            name: value for name, value in after.overrides.items()
            if before.overrides.get(name) != value
        }
        if fresh:
            where = f"{part.after.kind} {part.after.item_name}"
            checked_values(after.connector or "", fresh, where=where)


def _secret(state: State, found: dependencies.CatalogEntry, name: str, value: SecretRef) -> str:
    """The item of an override's secret: an old one keeps its link, whatever it is called now."""
    known = found.item.links.get(dependencies.OVERRIDE + name)
    if known is not None and found.external.overrides.get(name) == value:
        return known
    return dependencies.find(state, "secret", value.secret).item_id


_Actions = list[st.SetOptions | st.DropOptions | st.ResetOptions]


def _split_actions(
    found: dependencies.CatalogEntry, statement: st.Unsafe
) -> tuple[_Actions, _Actions]:
    own: _Actions = []
    over: _Actions = []
    is_over = partial(_is_of_connection, found, statement)
    for action in statement.actions:
        for place, wanted in ((own, False), (over, True)):
            if isinstance(action, st.SetOptions):
                given = {
                    name: value for name, value in action.options.items() if is_over(name) is wanted
                }
                place += [st.SetOptions(given)] if given else []
            elif isinstance(action, (st.DropOptions, st.ResetOptions)):
                names = tuple(name for name in action.names if is_over(name) is wanted)
                place += [type(action)(names)] if names else []
    return own, over


def _is_of_connection(found: dependencies.CatalogEntry, statement: st.Unsafe, name: str) -> bool:
    connector, kind = found.external.connector or "", statement.kind
    own_section = section_of(connector, kind, where=found.text)
    over_section = section_of(connector, "connection", where=found.text)
    if name.strip().upper() in ("CONNECTOR", "TYPE"):
        raise UnsafeBlocked(
            f"the type of {found.text} cannot be changed: it is {connector}",
            remedy=f"create another {kind}",
        )
    if name.strip().upper() == BASE_CONNECTION:
        raise UnsafeBlocked(
            f"{found.text}: the connection is not a property",
            remedy=f"ALTER {kind.upper()} … SET CONNECTION c",
        )
    if canonical_name(over_section, name) in USED_CONNECTIONS:
        raise UnsafeBlocked(
            f"{found.text}: the way to a server is a property of its connection",
            remedy="ALTER CONNECTION … SET (USING SSH TUNNEL t)",
        )
    return canonical_name(own_section, name) is None and (
        canonical_name(over_section, name) is not None
    )


def _require_fitting(found: dependencies.CatalogEntry, part: ItemRequest, *, by_time: bool) -> None:
    """Refuse positions that the item does not have, and a move without positions."""
    kind = found.mapping.kind
    given = part.everywhere is not None or bool(part.targets)
    if kind == "sink" and (given or part.reset is not None):
        raise UnsafeBlocked(
            f"{found.text} has no offsets: its position is a version of the table that it reads",
            remedy="write INJECT VERSION n; what it sends to is changed by ALTER SINK",
        )
    if kind == "source" and part.version is not None:
        raise UnsafeBlocked(
            f"{found.text} has no version", remedy="write INJECT OFFSETS ('topic:0' = 123)"
        )
    if given and not part.has_positions:
        raise UnsafeBlocked(
            f"{found.text} reads files and has no positions to inject: it remembers each file "
            "by its path",
            remedy="to read a file again, put it there under another name; to read all again, "
            "RESET SPLITS; to pass a file over, take it away before it is read",
        )
    if part.has_tables:
        _require_one_position(found, part)
    unplaced = kind == "source" and not part.chooses and not by_time
    if unplaced and (moved := _list_moves(part)):
        raise UnsafeBlocked(
            f"{moved} of {found.text} changes, and its positions mean nothing there",
            remedy="add: , RESET SPLITS   (or: , INJECT OFFSETS (TO 'latest')); on the command "
            "line --reset-splits (or: --to latest)",
        )


def _list_moves(part: ItemRequest) -> str:
    external = part.after.external
    assert external is not None
    kinds: tuple[SectionName, ...] = ("source", "connection")
    tables = [section_of(external.connector or "", each) for each in kinds]
    found = ((name, [table.find(name) for table in tables]) for name in part.keys)
    return ", ".join(
        name for name, options in found if any(each is not None and each.moves for each in options)
    )


def _require_one_position(found: dependencies.CatalogEntry, part: ItemRequest) -> None:
    if part.reset is not None and part.everywhere is not None:
        raise UnsafeBlocked(
            f"{found.text}: a new snapshot says itself where the changes go on",
            remedy="write RESET SPLITS, or INJECT OFFSETS (TO …)",
        )
    known = {table.full_name for table in found.external.tables}
    unknown = sorted(set(part.reset or ()) - known)
    if unknown:
        raise UnsafeBlocked(
            f"{found.text} does not read {', '.join(unknown)}",
            remedy=f"its tables: {', '.join(sorted(known))}",
        )
    if part.reset and (moved := _list_moves(part)):
        raise UnsafeBlocked(
            f"{moved} of {found.text} changes, which concerns all of its tables",
            remedy="write RESET SPLITS without tables",
        )
    if part.everywhere is not None:
        lsn_target(part.everywhere)


def lsn_target(text: str) -> int | str:
    """An LSN, ``earliest`` (that the slot has), ``latest`` or ``committed`` (where it stands)."""
    word = text.strip().lower()
    return word if word in ("earliest", "latest", "committed") else read_lsn(text.strip())
