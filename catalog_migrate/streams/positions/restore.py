"""RESTORE of a source's shard: whether it can be done, what it means, and done exactly once.

A source's shard only grows, by its own query. So RESTORE to the version after the stop of an
operation, with the positions of that moment, is exact: what was appended since goes, and is read
again. Sinks go on right after the RESTORE: a stream that met it would stop for good.

It is one commit that names the exact version it follows, so that a writer who comes between makes
it fail, and it carries the operation as a transaction. By delta-rs: no Spark is needed.

Taking an unsafe operation back is an operation of its own, from what was there before, with or
without the table. No directory is restored: the present last two entries are edited, so that batch
ids go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import ItemRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import has_records, has_tables, sink_of
from catalog_migrate.connectors.positions import OffsetRange, Partition, PartitionCodec
from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.table import commit_transactions, load_table, view_table
from catalog_migrate.errors import CommitConflict, EngineFailure, UnsafeBlocked
from catalog_migrate.model.wording import join_some
from catalog_migrate.operations.kinds import BACKFILLING
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import (
    Move,
    Restore,
    Totals,
    find_moved_ranges,
    moves_in,
    operation_row,
)
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.tables import Tables, transaction
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.plan import ItemPlan, Row
from catalog_migrate.streams.positions.positions import Survey, put
from catalog_migrate.streams.positions.requests import (
    ItemRequest,
    Request,
    bound_hash,
    request_in,
    split_of,
)
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.shard_handover import is_drained


def is_restored(state: State, restore: Restore, key: str) -> bool:
    """Whether the RESTORE of an operation is in the shard's log."""
    from deltalake.exceptions import DeltaError

    path = dependencies.location(state, restore.path)
    try:
        return load_table(path).transaction_version(transaction(key)) is not None
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot open {path}: {error}") from error


def restore_table(state: State, restore: Restore, key: str) -> None:
    """Commit the RESTORE at exactly the next version.

    Raises :class:`UnsafeBlocked` when somebody else has taken that, :class:`EngineFailure`; after
    either ask :func:`is_restored`.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    path = dependencies.location(state, restore.path)
    try:
        load_table(path, version=restore.follows).restore(
            restore.to,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(transaction(key), 0)], max_commit_retries=0
            ),
        )
    except CommitFailedError as error:
        raise UnsafeBlocked(
            f"another process has written into the table at {path} in this very moment",
            remedy="see who writes into it besides the source, then plan again",
        ) from error
    except (DeltaError, OSError) as error:
        raise EngineFailure(
            f"the table at {path} cannot be restored to version {restore.to}: {error}",
            remedy="files of that version may have been vacuumed: undo without --restore-table",
        ) from error


def block_restore(state: State, restore: Restore) -> None:
    """Take the version that a RESTORE would have, so that one under way elsewhere fails."""
    path = dependencies.location(state, restore.path)
    if not has_log(path):
        return
    table = view_table(path)
    if table.version() <= restore.follows:
        commit_transactions(table, {})  # where another commit came first, what it was is asked next


_ENDLESS = 2**63 - 1

# -- whether it can be done ------------------------------------------------------------------------


def obstacles(
    state: State, item_id: str, shard: str, to: int, checkpoint: Checkpoint, ports: Ports, *,
    clusters: Collection[str],
) -> tuple[str, ...]:
    """What stands against a RESTORE of a source's shard to version ``to``, one sentence each.

    ``shard`` is the one that the operation recorded; ``clusters`` are those that it may stop.
    """
    item = state.items[item_id]
    if item.shard != shard:
        return ("its table was replaced by another since",)
    path = dependencies.location(state, shard)
    newest = ports.tables.newest(path)
    if newest is None or newest < to:
        return (f"its table has no version {to}",)
    wrong = []
    if checkpoint.is_stateful:
        wrong.append("its query keeps state, which no RESTORE takes back")
    others = ports.tables.foreign_commits(path, to, newest, checkpoint.query_id or "")
    if others:
        shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        wrong.append(f"another process has written into its table since: {shown}")
    for user in readers(state, item_id):
        wrong += _reader_obstacles(state, user, shard, to, clusters, ports)
    return tuple(wrong)


def readers(state: State, item_id: str) -> tuple[str, ...]:
    """The sinks that read the shard of a source."""
    return tuple(
        user for user in dependencies.users_of(state, item_id)
        if state.items[user].definition.kind == "sink"
        and state.items[user].links.get("reads") == item_id
    )


def _reader_obstacles(
    state: State, user: str, shard: str, to: int, clusters: Collection[str], ports: Ports
) -> list[str]:
    item = state.items[user]
    name = f"sink {item.definition.item_name}"
    if item.links.get("cluster", "") not in clusters:
        cluster = dependencies.display(state, item.links.get("cluster", ""))
        return [f"{name} below runs in another cluster ({cluster})"]
    stream = state.streams.get(user) or first_stream(user)
    checkpoint = ports.checkpoint(dependencies.location(state, stream.checkpoint))
    if checkpoint.latest_offsets is None:
        return []
    if stream.reads and stream.reads != shard:
        return [f"{name} below still reads an earlier shard: let it catch up"]
    skip = dependencies.skips_changes(item)
    position = DeltaCodec().read(checkpoint.committed_line)
    if position is not None and position.version > to and not position.starting:
        return []  # it has what stays, be it in the midst of what goes
    if not is_drained(
        checkpoint, dependencies.location(state, shard), to, ports.tables, skip_changes=skip
    ):
        return [f"{name} below has rows to send that stay in the table: let it catch up"]
    return []


# -- what it means ---------------------------------------------------------------------------------


def sent_again(
    path: str, to: int, position: DeltaPosition, positions: Mapping[Partition, int], tables: Tables
) -> int:
    """Rows that a sink has sent of what goes, and that are read, and sent, again.

    At most so many where it stands in the midst of a version.
    """
    sent = _newest_sent(position)
    if sent <= to:
        return 0
    listed = [OffsetRange(*each, at, _ENDLESS) for each, at in sorted(positions.items())]
    if not listed:
        return 0
    return max(0, tables.rows_at(path, sent, listed) - tables.rows_at(path, to, listed))


def _newest_sent(position: DeltaPosition) -> int:
    """The newest version of which a sink may have sent a row."""
    return position.version if position.consumed is None else position.consumed


def kept_by_sink(
    spec: QuerySpec, to: int, position: DeltaPosition, again: int, tables: Tables
) -> tuple[int, tuple[str, ...]]:
    """How many rows a sink has sent that go from its table, and a sentence on them.

    No RESTORE reaches them. ``again`` of them are read, and sent, once more.
    """
    sent = _newest_sent(position)
    gone = tables.count_exchanged(spec.shard, to, sent)[0] if sent > to else 0
    if not gone:
        return 0, ()
    most = "" if position.consumed is not None else "at most "
    place = sink_of(spec.external).destination(spec.external)
    text = f"{most}{gone} rows that go from the table were sent before: they stay in {place}"
    if spec.external.key:
        text += f", where the last one of each key ({', '.join(spec.external.key)}) counts"
    return gone, (f"{text}; {most}{again} of them are sent again",)


def plan_restore(survey: Survey, item: ItemPlan, clusters: Collection[str]) -> ItemPlan:
    """The plan of a source whose table goes back: nothing is doubled or skipped in the table.

    Without a row since the version it is as it was, and no RESTORE is needed.
    """
    part, to = survey.part, survey.part.restore
    assert to is not None
    wrong = obstacles(
        survey.state, part.item_id, part.shard, to, survey.checkpoint, survey.ports,
        clusters=clusters,
    )
    if wrong:
        return replace(item, problems=wrong)
    path, tables = survey.spec.shard, survey.ports.tables
    newest = tables.newest(path) or 0
    if not tables.has_rows(path, to, newest):
        return item
    gone, back = tables.count_exchanged(path, to, newest)
    rows = tuple(replace(row, doubled=0, skipped=0) for row in item.rows)
    note = f"RESTORE: the table goes back to version {to}, it is at {newest}; "
    item = replace(
        item, rows=rows, totals=Totals.of(rows, exact=item.totals.exact), restores=True,
        notes=(*item.notes, note + _in_words(gone, back)),
    )
    move = item.recorded
    if not move.target and not item.problems:
        item = put(item, move.line)
    restore = Restore(part.shard, to, newest, gone, back)
    return replace(item, move=replace(item.recorded, restore=restore))


def _in_words(gone: int, back: int) -> str:
    parts = []
    if gone or not back:
        parts.append(f"{gone} rows go, and come again as far as they are read again")
    if back:
        parts.append(f"{back} rows that had been taken away come back")
    return "; ".join(parts)


def resume_sink_after(survey: Survey, source: Move) -> ItemPlan:
    """The plan of a sink that reads a table which goes back: it goes on right after the RESTORE.

    ``source`` is the move of the table's source; doubled are rows that the sink sends again.
    """
    line, restore = survey.checkpoint.committed_line, source.restore
    position, item = DeltaCodec().read(line), survey.stay(line)
    if restore is None or survey.checkpoint.latest_offsets is None or position is None:
        return item
    tables = survey.ports.tables
    after = DeltaPosition(position.table_id, restore.version + 1)
    positions = PartitionCodec().read(source.target or source.line) or {}
    again = sent_again(survey.spec.shard, restore.to, position, positions, tables)
    row = Row(
        survey.spec.name.name, 0, position.version, after.version, 0, after.version, again,
        note="goes on after the RESTORE; doubled are rows that it sends again",
    )
    totals = Totals.of((row,), exact=position.consumed is not None)
    stays, notes = kept_by_sink(survey.spec, restore.to, position, again, tables)
    item = replace(
        item, rows=(row,), totals=totals, notes=notes, stays=stays or msgspec.UNSET
    )
    return put(item, DeltaCodec().write(after))


def rows_left_behind(survey: Survey) -> tuple[str, ...]:
    """Sentences on the table of one item of an undo; none where no row came since.

    Reads the table's log, and its rows where records were read again.
    """
    state, undoes, tables = survey.state, survey.request.undoes, survey.ports.tables
    moves = moves_in(state.operations[undoes])
    move = next((each for each in moves if each.item_id == survey.part.item_id), None)
    if move is None or move.version is None or state.items[move.item_id].shard != move.shard:
        return ()
    path = dependencies.location(state, move.shard)
    newest = tables.newest(path)
    if newest is None or newest <= move.version:
        return ()
    base = move.version if move.restore is None else move.restore.version
    since = tables.rows_at(path, newest) - tables.rows_at(path, base)
    if since <= 0:
        return ()
    doubled = _describe_doubled(state, move, path, base, tables)
    text = f"{since} rows that came since operation {undoes} stay in the table"
    if doubled:
        places = ", ".join(doubled[:5]) + (" …" if len(doubled) > 5 else "")
        text += f"; doubled among them: {places}"
    return (text, _undo_hint(survey, move, move.version))


def _describe_doubled(
    state: State, move: Move, path: str, base: int, tables: Tables
) -> list[str]:
    if not move.target:
        return []
    stream = state.streams.get(move.item_id)
    known = stream.topics if stream is not None else {}
    back = [
        each for each in find_moved_ranges(move, back=True)
        if known.get(each.topic) == move.topics.get(each.topic)
    ]
    if not back:
        return []
    now, then = tables.rows_in(path, back), tables.rows_in(path, back, base)
    found = []
    for each in back:
        (total, distinct), (old, once) = (
            rows.get(each.topic_partition, (0, 0)) for rows in (now, then)
        )
        more = (total - distinct) - (old - once)
        if more > 0:
            found.append(f"{more} rows of {split_of(each.topic_partition)}")
    return found


def _undo_hint(survey: Survey, move: Move, version: int) -> str:
    if len(survey.request.parts) > 1:
        return (
            "to take rows away as well, --restore-table works for an operation on one source alone"
        )
    clusters = {survey.state.items[move.item_id].links.get("cluster", "")}
    wrong = obstacles(
        survey.state, move.item_id, move.shard, version, survey.checkpoint, survey.ports,
        clusters=clusters,
    )
    if wrong:
        return f"--restore-table, which takes rows away as well, would be refused: {wrong[0]}"
    return "to take them away as well: the same undo with --restore-table"


# -- taking an operation back ----------------------------------------------------------------------


def undo_request(state: State, key: str, *, restore_table: bool = False) -> Request:
    """The request that puts back what an operation changed.

    With ``restore_table`` the source's table too: to its version after the operation's stop, with
    the positions of that moment, and the sinks below go on after that. Raises
    :class:`UnsafeBlocked` when it changed nothing, :class:`CommitConflict` when somebody has
    changed definition or positions since.
    """
    row = operation_row(state, key)
    moves = tuple(move for move in moves_in(row) if not move.past)
    _require_done(key, row, moves)
    done = {part.item_id: part for part in request_in(row).parts}
    if restore_table and any(part.has_tables for part in done.values()):
        raise UnsafeBlocked(
            f"operation {key} is on a POSTGRES source, which writes a table for each one upstream:"
            " --restore-table does not take several back as one",
            remedy="undo without --restore-table, which puts the position back; RESET SPLITS "
            "brings mirrors to what is upstream",
        )
    parts = tuple(
        _part(state, key, done[move.item_id], move, restore=restore_table) for move in moves
    )
    if restore_table:
        parts += _dependent_sinks(state, key, parts, moves)
    return Request(
        parts, policy="error", accept_new_topic=True, undoes=key,
        topics={
            move.item_id: move.topics for move in moves
            if move.topics and (move.target or restore_table)
        },
    )


def _require_done(key: str, row: OperationRecord, moves: tuple[Move, ...]) -> None:
    if row.state == BACKFILLING:
        raise UnsafeBlocked(
            f"operation {key} is reading what it skipped ({row.detail.get('phase', 'not begun')})",
            remedy="wait until it is done (SHOW OPERATIONS), then undo it",
        )
    if row.state != "done" or not moves:
        raise UnsafeBlocked(
            f"operation {key} is {row.state}: there is nothing to take back",
            remedy="only an operation that is done can be undone",
        )


def _names(parts: tuple[ItemRequest, ...]) -> str:
    return join_some([f"{each.before.kind} {each.before.item_name}" for each in parts], 3)


def _dependent_sinks(
    state: State, key: str, parts: tuple[ItemRequest, ...], moves: tuple[Move, ...]
) -> tuple[ItemRequest, ...]:
    """The sinks that read a table which goes back: each is moved past that."""
    move = moves[0]
    kinds = {each.before.kind for each in parts}
    if len(parts) > 1 or kinds != {"source"}:
        raise UnsafeBlocked(
            f"operation {key} is on {_names(parts)}: --restore-table takes the table of one "
            "source back, for an operation on that source alone",
            remedy="undo without --restore-table, which puts definitions and positions of all of "
            "them back; rows that came since stay",
        )
    if move.version is None:
        raise UnsafeBlocked(
            "the operation did not write down the version of the table",
            remedy="undo without --restore-table, which puts definition and positions back",
        )
    found = []
    for user in readers(state, move.item_id):
        item, stream = state.items[user], state.streams.get(user)
        found.append(
            ItemRequest(
                item_id=user, generation=stream.generation if stream is not None else 0,
                bound=bound_hash(item.definition), before=item.definition, after=item.definition,
                links_before=dict(item.links), links_after=dict(item.links), past=move.item_id,
            )
        )
    return tuple(found)


def _part(
    state: State, key: str, done: ItemRequest, move: Move, *, restore: bool
) -> ItemRequest:
    item = state.items.get(move.item_id)
    if item is None:
        raise CommitConflict(
            f"{done.before.item_name} was dropped meanwhile", remedy="nothing is left to undo"
        )
    stream = state.streams.get(move.item_id)
    generation = stream.generation if stream is not None else 0
    if item.definition.external != done.after.external or generation != move.generation:
        raise CommitConflict(
            f"{item.definition.item_name} was changed again since operation {key}",
            remedy="undo the later operation first, or inject the positions that are wanted",
        )
    before = replace(item.definition, external=move.definition.external)
    part = ItemRequest(
        item_id=move.item_id, generation=generation, bound=bound_hash(item.definition),
        before=item.definition, after=before, links_before=dict(item.links),
        links_after=dict(move.links),
        restore=move.version if restore else None, shard=move.shard,
    )
    if not move.target and not restore:
        return part
    return replace(part, **_positions(item, done, move))


def _positions(item: ItemRecord, done: ItemRequest, move: Move) -> dict[str, Any]:
    name = item.definition.item_name
    if item.definition.kind == "sink":
        position = DeltaCodec().read(move.line)
        return {"version": 0 if position is None else position.version}
    if has_tables(item.definition):
        standing = PostgresCodec().read(move.line)
        if done.reset is not None or standing is None:
            raise UnsafeBlocked(
                f"{name} has taken a new snapshot: the slot of before is not there any more, and "
                "rows that went from a mirror are not brought back",
                remedy="no action needed: its tables are what is upstream; among CHANGES the rows "
                "of the snapshot can be left out by their _lsn",
            )
        return {"everywhere": str(standing)}
    if not has_records(item.definition):
        raise UnsafeBlocked(
            f"{name} reads files: what was listed again is not forgotten",
            remedy="no action needed: files that were read twice are in the table twice",
        )
    positions = PartitionCodec().read(move.line)
    if positions is None:
        return {"reset": ()}
    return {
        "only": True, "origin": move.line,
        "targets": {split_of(each): str(offset) for each, offset in positions.items()},
    }
