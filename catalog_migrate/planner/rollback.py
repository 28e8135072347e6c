"""Going back to an earlier serial: where the rows of each table come from. Pure.

A table that was copied comes back from its old shard (which is sealed, so just as it was), and what
was appended to its successors since is carried back where the old columns can hold it. Columns that
were renamed, added or moved in place are taken back in place. A table that was changed in place in
another way, or whose rows were changed since, is copied back from where it is now.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.records import ColumnIds
from catalog_migrate.model.conversion import conversion
from catalog_migrate.model.names import Identity, ItemKey, quote_part, quote_sql
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.types import find_added_fields, is_lossless
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.baseline import BaselineObject
from catalog_migrate.planner.contents import (
    BECOMES_NOT_NULL,
    COLUMN_REMOVED,
    LOSSY_RETYPE,
    Movement,
    in_place_movement,
    list_continued,
    list_copy_reasons,
    list_kept_columns,
    stays_in_place,
)
from catalog_migrate.planner.diff import Compared
from catalog_migrate.planner.plan import Blocked, Segment
from catalog_migrate.planner.policy_evaluation import Approvals, Risk

IRREVERSIBLE = "CM0340"
ROWS_CHANGED = "CM0341"
ROWS_NOT_HELD = "CM0342"
CAME_BY_ADOPTION = "CM0343"

_RESTORE = (
    "restore the files of the shard from a backup, or bring the release in as any other"
    " (`apply --allow-downgrade`), which keeps what there is now"
)

_AFTER_THE_DROP = (
    "choose a serial after the drop, or bring the release in as any other (`apply "
    "--allow-downgrade`), which keeps what there is now; no approval brings the values back"
)
_ROWS_CHANGED = (
    "go back to a serial after the change of the table, or apply the release (`apply "
    "--allow-downgrade`) and insert what you need from the retired shard"
)
_FROM_SHARDS = ("its rows come from the retired shard of the earlier state",)
_COPIED_BEFORE = ("the table was copied since the earlier state, and going back copies it too",)


class Source(msgspec.Struct, frozen=True):
    """One shard that rows of a table may come back from.

    ``after`` None stands for every row of version ``upto``, else what was appended after that
    version; ``upto`` None for whatever is there when it is copied. ``columns`` maps the folded
    name of an earlier column to what holds it in this shard; ``others`` are the columns of this
    shard that then had none. ``dropped`` are folded names of columns of then that this shard had
    once, until they were dropped in place, so that its rows have lost their values. ``rows`` is how
    many it brings, -1 when nobody knows.
    """

    path: str
    after: int | None
    upto: int | None
    columns: Mapping[str, Column]
    others: tuple[Column, ...] = ()
    rows: int = -1
    dropped: frozenset[str] = frozenset()

    def whole(self, definition: ObjectDefinition) -> bool:
        """Return whether it still has every earlier column that is not computed."""
        return all(
            column.generated is not None or column.name.lower() in self.columns
            for column in definition.columns
        )


class Origin(msgspec.Struct, frozen=True):
    """The shards of one table between then and now.

    ``base`` is the shard of then where it is another than now's, ``tails`` what was written since
    to others, oldest first, the present one last. ``gone``: the files of ``base`` (or of another
    that is needed) were deleted when retention was over; ``rewritten``: rows of one were changed or
    removed since. ``differs``: the present shard lacks rows of then or of since (the table was
    dropped, and another one has its name), or has some that a later rollback brought. ``converted``
    are columns of then that have other values by now, whatever type and name they have: a decision
    replaced them, or the column went with a rollback and a release brought it in again: the latter
    are ``returned``, and nothing of what was in them then is in the present shard.
    """

    base: Source | None = None
    tails: tuple[Source, ...] = ()
    gone: str | None = None
    rewritten: bool = False
    differs: bool = False
    converted: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()

    @property
    def readable(self) -> Source | None:
        """The shard of then where rows can be copied from it."""
        return self.base if self.gone is None else None


class GoingBack(msgspec.Struct, frozen=True):
    """How the objects of now continue those of an earlier ``serial``.

    ``predecessors`` maps an identity of then to the one that the object has now, ``columns`` (for
    tables) the folded names of its columns then to those that they have now, ``applied`` the
    decisions that had run then. ``adopted`` are tables of now that were taken over since, where
    they lie: they are not ours to drop because we go back. ``column_ids`` are those that the
    columns of a table had then.
    """

    serial: int
    predecessors: Mapping[Identity, Identity] = msgspec.field(default_factory=dict)
    columns: Mapping[Identity, Mapping[str, str]] = msgspec.field(default_factory=dict)
    origins: Mapping[Identity, Origin] = msgspec.field(default_factory=dict)
    applied: Mapping[Identity, tuple[str, ...]] = msgspec.field(default_factory=dict)
    adopted: frozenset[Identity] = frozenset()
    column_ids: Mapping[Identity, ColumnIds] = msgspec.field(default_factory=dict)

    @property
    def refilled(self) -> frozenset[Identity]:
        """Tables that are to have other rows, however alike they are to those of now."""
        return frozenset(
            identity for identity, origin in self.origins.items()
            if origin.differs or origin.converted
        )


def behind_adoption(key: ItemKey) -> Blocked:
    """Return the refusal to drop a table that another application made."""
    return Blocked(
        str(key), CAME_BY_ADOPTION,
        "the table was adopted since, where it lies: going back would drop it and, in the end, "
        "delete its files",
        "choose a serial after its adoption, or export it first (catalog-migrate export)",
    )


class _Losses:
    """What is lost in one table, collected: each column and kind is named once."""

    def __init__(self, key: ItemKey, approvals: Approvals) -> None:
        self.key = key
        self._approvals = approvals
        self._blocked: dict[tuple[str, str | None], Blocked] = {}
        self._risks: dict[tuple[str, str | None], Risk] = {}

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        return tuple(self._blocked.values())

    @property
    def risks(self) -> tuple[Risk, ...]:
        return tuple(self._risks.values())

    def lose(self, kind: str, code: str, text: str, column: str) -> bool:
        """Note a loss; whether it is allowed."""
        name = quote_part(column)
        if self._approvals.cover(kind, self.key, column):
            self._risks[kind, column] = Risk(kind, text, column)
            return True
        self.block(code, text, f"--approve {self.key.item_name}.{name}", column)
        return False

    def risk(self, kind: str, text: str, column: str | None = None) -> None:
        self._risks[kind, column] = Risk(kind, text, column)

    def block(self, code: str, reason: str, remedy: str, column: str | None = None) -> None:
        self._blocked[code, column] = Blocked(str(self.key), code, reason, remedy, column)

    def irreversible(self, column: Column, where: str = "") -> None:
        """Note that the values of an earlier column are nowhere any more, at least ``where``."""
        self.block(
            IRREVERSIBLE,
            f"column {quote_part(column.name)} was dropped in place and its values{where} with it",
            _AFTER_THE_DROP, column.name,
        )

    def table_approved(self) -> bool:
        return self._approvals.is_given(self.key)


def revive(definition: ObjectDefinition, origin: Origin | None, approvals: Approvals) -> Movement:
    """Return the rows of a table that is not there now: those of its retired shards."""
    if definition.kind != "table":
        return Movement()
    origin = origin or Origin()
    if definition.is_derived:
        return _restore_derived(definition, origin)
    if origin.readable is not None:
        return _from_then(definition, origin, approvals)
    losses = _Losses(definition.key, approvals)
    losses.block(
        IRREVERSIBLE,
        "its rows are missing: "
        + (origin.gone or "no earlier shard of it is known"),
        _RESTORE,
    )
    return Movement("copy", blocked=losses.blocked)


def movement_back(
    compared: Compared, old: BaselineObject, origin: Origin | None, approvals: Approvals,
    rows: int | None = None,
) -> Movement:
    """How a table that stands now gets the shape of then, with every row that fits it.

    ``rows`` is how many it has, None when nobody knows.
    """
    definition = compared.definition
    origin = origin or Origin()
    if origin.differs:
        return _from_then(definition, origin, approvals)
    stays: Movement | None = in_place_movement(compared, old, approvals)
    if not stays_in_place(compared, old) or any(before is None for _, before in compared.pairs):
        stays = None
    if stays is not None and not origin.converted:
        return stays
    if definition.is_derived:
        return _restore_derived(definition, origin)
    if origin.readable is not None and not origin.rewritten:
        return _from_then(definition, origin, approvals)
    return _from_now(compared, old, origin, approvals, stays, empty=rows == 0)


def _restore_derived(definition: ObjectDefinition, origin: Origin) -> Movement:
    base = origin.readable
    if base is None or not base.whole(definition):
        return Movement("derived")
    return _from_shards((_whole(base, definition),))


def _from_shards(segments: tuple[Segment, ...]) -> Movement:
    return Movement("copy", segments=segments, copied_because=_FROM_SHARDS)


def _whole(base: Source, definition: ObjectDefinition) -> Segment:
    """Every row of the shard of then, whose structs alone may have got fields in place since."""

    def expression(column: Column) -> str:
        held = base.columns.get(column.name.lower())
        if held is None:
            return f"CAST(NULL AS {column.type})"
        return conversion(quote_sql(held.name), held.type, column.type, or_null=True)

    return Segment(
        base.path, base.after, base.upto,
        tuple(
            (column.name, expression(column))
            for column in definition.columns
            if column.generated is None
        ),
    )


def _note_changes_in_place(base: Source, definition: ObjectDefinition, losses: _Losses) -> None:
    """What the shard of then has lost since, or got, before it was replaced."""
    if base.rows == 0:
        return
    for column in definition.columns:
        held = base.columns.get(column.name.lower())
        if column.generated is not None:
            continue
        if held is None:
            losses.irreversible(column)
        elif find_added_fields(column.type, held.type):
            _expression(column, held, losses)
    for other in base.others:
        losses.lose(
            "drop_column", COLUMN_REMOVED,
            f"column {quote_part(other.name)} came later and goes with its values", other.name,
        )


def _from_then(definition: ObjectDefinition, origin: Origin, approvals: Approvals) -> Movement:
    """The shard of then, and what was appended to its successors."""
    assert origin.base is not None
    losses = _Losses(definition.key, approvals)
    if origin.gone is not None:
        losses.block(IRREVERSIBLE, f"its rows are missing: {origin.gone}", _RESTORE)
        return Movement("copy", blocked=losses.blocked)
    if origin.rewritten:  # of a table that is gone: its last rows stand nowhere else
        losses.block(
            IRREVERSIBLE, "its rows were changed or removed before it was dropped", _ROWS_CHANGED
        )
    _note_changes_in_place(origin.base, definition, losses)
    segments = [_whole(origin.base, definition)]
    for tail in origin.tails:
        segments.append(_tail(definition, tail, losses))
    return msgspec.structs.replace(
        _from_shards(tuple(segments)), projection=segments[-1].projection or (),
        blocked=losses.blocked, risks=losses.risks,
    )


def _tail(definition: ObjectDefinition, tail: Source, losses: _Losses) -> Segment:
    """What was written since: carried back where the columns of then can hold it."""
    noted = _Silent(losses) if tail.rows == 0 else losses
    values = {
        column.name: _carry(column, tail, noted)
        for column in definition.columns if column.generated is None
    }
    if None in values.values():
        return _segment_left_behind(definition, tail, losses)
    for other in tail.others:
        noted.lose(
            "drop_column", COLUMN_REMOVED,
            f"the values of column {quote_part(other.name)} in rows written since go with it",
            other.name,
        )
    projection = tuple((name, value) for name, value in values.items() if value)
    return Segment(tail.path, tail.after, tail.upto, projection)


def _carry(column: Column, tail: Source, losses: _Losses) -> str | None:
    """An earlier column in rows written since: empty where it is lost, None where it cannot be."""
    folded = column.name.lower()
    before = tail.columns.get(folded)
    if before is not None:
        return _expression(column, before, losses)
    if folded in tail.dropped and tail.rows != 0:
        losses.irreversible(column, " in rows written since")
        return ""
    if not column.nullable:
        return None
    if tail.rows != 0:
        text = f"{quote_part(column.name)} is NULL in rows written since"
        losses.risk("convert", text, column.name)
    return f"CAST(NULL AS {column.type})"


def _segment_left_behind(definition: ObjectDefinition, tail: Source, losses: _Losses) -> Segment:
    """Rows written since that have no value for a column which wants one."""
    missing = ", ".join(
        quote_part(column.name) for column in definition.columns
        if not column.nullable and column.name.lower() not in tail.columns
    )
    count = "rows" if tail.rows < 0 else counted(tail.rows, "row")
    text = f"{count} written since have no value for {missing} (NOT NULL)"
    left_out = tail.rows != 0 and losses.table_approved()
    if left_out:
        losses.risk("drop_table", f"{text} and stay behind in the retired shard {tail.path}")
    elif tail.rows != 0:
        losses.block(
            ROWS_NOT_HELD, text,
            f"--approve {losses.key.item_name} (they stay behind in the retired shard, until its "
            "retention is over)",
        )
    return Segment(tail.path, tail.after, tail.upto, None, left_out=left_out)


class _Silent(_Losses):
    """For a shard to which nothing was written: nothing can be lost."""

    def __init__(self, losses: _Losses) -> None:
        super().__init__(losses.key, losses._approvals)

    def lose(self, kind: str, code: str, text: str, column: str) -> bool:  # noqa: ARG002
        """Allowed: there is no value. One that was approved may come until then."""
        self._approvals.is_given(self.key, column)
        return True


def _from_now(
    compared: Compared, old: BaselineObject, origin: Origin, approvals: Approvals,
    stays: Movement | None, *, empty: bool,
) -> Movement:
    """The shard of now, column by column; ``empty``: without a row, so without a value to miss.

    ``stays`` is how its rows stay where they are, None where they cannot.
    """
    losses = _Losses(compared.key, approvals)
    projection = tuple(
        (column.name, _value_now(column, before, origin, losses, empty=empty))
        for column, before in compared.pairs if column.generated is None
    )
    for removed in compared.delta.removed:
        losses.lose(
            "drop_column", COLUMN_REMOVED,
            f"column {quote_part(removed.name)} came later and goes with its values", removed.name,
        )
    if stays is not None:
        return msgspec.structs.replace(stays, blocked=losses.blocked, risks=losses.risks)
    reasons = list_copy_reasons(compared, old.definition, dict(projection)) or (
        # the very shard of then: what an upgrade does in place is taken back in place
        list_kept_columns(compared, approvals) if origin.base is None else _COPIED_BEFORE
    )
    return Movement(
        "copy" if reasons else "evolve", projection, () if reasons else list_continued(compared),
        blocked=losses.blocked, risks=losses.risks, copied_because=reasons,
    )


def _value_now(
    column: Column, before: Column | None, origin: Origin, losses: _Losses, *, empty: bool
) -> str:
    if before is None:
        if not empty:
            _note_missing(column, origin, losses)
        return f"CAST(NULL AS {column.type})"
    folded = column.name.lower()
    if empty or folded not in origin.converted:
        return _expression(column, before, losses)
    if origin.gone and folded in origin.returned:
        losses.block(
            IRREVERSIBLE,
            f"the values of column {quote_part(column.name)} went with a rollback: {origin.gone}",
            _RESTORE, column.name,
        )
        return _expression(column, before, losses)
    return _expression(column, before, losses, origin)


def _note_missing(column: Column, origin: Origin, losses: _Losses) -> None:
    """Note that an earlier column is not in the present shard."""
    name, folded = quote_part(column.name), column.name.lower()
    if (
        origin.base is None
        or folded not in origin.base.columns
        or any(folded in tail.dropped for tail in origin.tails)
    ):
        losses.irreversible(column)
    elif origin.gone is not None:
        losses.block(
            IRREVERSIBLE, f"the values of column {name} are missing: {origin.gone}", _RESTORE,
            column.name,
        )
    elif not column.nullable:
        losses.block(
            IRREVERSIBLE,
            f"rows were changed since, and column {name} (NOT NULL) is not there any more to"
            " be put beside them",
            _RESTORE, column.name,
        )
    else:
        losses.lose(
            "drop_column", ROWS_CHANGED,
            f"rows were changed or removed since, so the old values of column {name} cannot be"
            " put beside them: it is NULL everywhere",
            column.name,
        )


def _expression(
    column: Column, before: Column, losses: _Losses, converted: Origin | None = None
) -> str:
    """An earlier column from what holds it now.

    ``converted`` is there when its values of then were replaced, and says why they do not come
    back.
    """
    source, name = quote_sql(before.name), quote_part(column.name)
    expression = source
    lossy = False
    lost: list[str] = []
    code = LOSSY_RETYPE
    if converted is not None:
        values = f"values that column {name} had before they were converted"
        if converted.gone is not None:
            lost.append(f"the {values} are missing, and the present ones stay: {converted.gone}")
        else:
            code = ROWS_CHANGED
            lost.append(
                f"rows were changed or removed since, so the {values} cannot be put back, and"
                " those of now stay"
            )
    if before.type != column.type:
        lossy = not is_lossless(before.type, column.type)
        expression = conversion(source, before.type, column.type, or_null=lossy)
        if lossy:
            lost.append(
                f"{name} turns back from {before.type} to {column.type}: values that do not fit"
                " become NULL" + ("" if column.nullable else ", which fails here")
            )
    if lost:
        losses.lose("convert", code, "; ".join(lost), column.name)
    if not lossy and before.nullable and not column.nullable:
        losses.lose(
            "not_null", BECOMES_NOT_NULL,
            f"{name} is NOT NULL again: going back fails if a row holds NULL", column.name,
        )
    return expression


