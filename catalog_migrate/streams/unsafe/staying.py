"""What an undo of positions alone leaves in the table: rows that came since, and doubled ones."""

from __future__ import annotations

from catalog_migrate.catalog.state import State
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.operation_records import Image, images_in
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.tables import Tables
from catalog_migrate.streams.unsafe.audit import stretches
from catalog_migrate.streams.unsafe.forecast import split_of
from catalog_migrate.streams.unsafe.requests import Request
from catalog_migrate.streams.unsafe.restorable import obstacles


def staying(
    state: State, request: Request, item_id: str, checkpoint: Checkpoint, ports: Ports
) -> tuple[str, ...]:
    """Sentences on the table of one item of an undo; none where no row came since.

    Reads the table's log, and its rows where records were read again.
    """
    images = images_in(state.operations[request.undoes])
    image = next((each for each in images if each.item_id == item_id), None)
    item = state.items[item_id]
    if image is None or image.version is None or item.shard != image.shard:
        return ()
    path = f"{state.config['warehouse'].value}/{image.shard}"
    tables = ports.tables
    newest = tables.newest(path)
    if newest is None or newest <= image.version:
        return ()
    base = image.version if image.restored is None else image.restored
    since = tables.rows_at(path, newest) - tables.rows_at(path, base)
    if since <= 0:
        return ()
    doubled = _doubled(state, image, path, base, tables)
    text = f"{since} rows that came since operation {request.undoes} stay in the table"
    if doubled:
        places = ", ".join(doubled[:5]) + (" …" if len(doubled) > 5 else "")
        text += f"; doubled among them: {places}"
    return (text, _way(state, request, image, checkpoint, ports))


def _doubled(
    state: State, image: Image, path: str, base: int, tables: Tables
) -> list[str]:
    """How many rows of each partition are there once more since, in words."""
    if not image.target:
        return []
    stream = state.streams.get(image.item_id)
    known = stream.topics if stream is not None else {}
    back = [
        each for each in stretches(image, back=True)
        if known.get(each.partition[0]) == image.topics.get(each.partition[0])
    ]
    if not back:
        return []
    now, then = tables.rows_in(path, back), tables.rows_in(path, back, base)
    found = []
    for each in back:
        (total, distinct), (old, once) = (
            rows.get(each.partition, (0, 0)) for rows in (now, then)
        )
        more = (total - distinct) - (old - once)
        if more > 0:
            found.append(f"{more} rows of {split_of(each.partition)}")
    return found


def _way(
    state: State, request: Request, image: Image, checkpoint: Checkpoint, ports: Ports
) -> str:
    """What takes those rows away, or why nothing does."""
    if len(request.parts) > 1:
        return (
            "to take rows away as well, --restore-table works for an operation on one source alone"
        )
    assert image.version is not None
    clusters = {state.items[image.item_id].links.get("cluster", "")}
    wrong = obstacles(
        state, image.item_id, image.shard, image.version, checkpoint, ports, clusters=clusters
    )
    if wrong:
        return f"--restore-table, which takes rows away as well, would be refused: {wrong[0]}"
    return "to take them away as well: the same undo with --restore-table"
