"""Where a table's rows come from, by which expressions, and what nobody has decided yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from catalog_migrate.model.conversion import conversion, is_complete
from catalog_migrate.model.names import ItemKey, quote_part, quote_sql
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.table_properties import MAPPING_MODE, needs_copy, sets_by_spark
from catalog_migrate.model.types import (
    becomes_text,
    find_added_fields,
    is_longer_text,
    is_lossless,
)
from catalog_migrate.planner.baseline import BaselineObject
from catalog_migrate.planner.diff import Compared, IgnoredRename, decision
from catalog_migrate.planner.plan import Blocked, Fill, Question, Segment
from catalog_migrate.planner.policy_evaluation import Approvals, Risk

T = TypeVar("T")
U = TypeVar("U")

LOSSY_RETYPE = "CM0301"
COLUMN_REMOVED = "CM0302"
NEW_NOT_NULL = "CM0303"
BECOMES_NOT_NULL = "CM0304"
TABLE_DROPPED = "CM0305"
NAME_TAKEN = "CM0306"
VIEW_WITHOUT_SQL = "CM0307"
RENAME_IGNORED = "CM0312"

Contents = Literal["none", "keep", "evolve", "copy", "derived", "fill"]

_OF_A_FEATURE = re.compile(
    r"\b(?:VARIANT|TIMESTAMP_NTZ|INTERVAL|GEOMETRY|GEOGRAPHY|COLLATE)\b", re.IGNORECASE
)
"""Types that Delta writes only into a table that has their table feature."""
_LENGTH = re.compile(r"\b(?:VARCHAR|CHAR)\b", re.IGNORECASE)
_ODD_NAME = re.compile(r"`[^`]*[ ,;{}()\n\t=][^`]*`")
"""A name that Delta's ALTER TABLE refuses anywhere in a table without column mapping."""
ENOUGH_ALIKE = 0.6
"""From which :func:`likeness` on a name is taken for a spelling of another."""


class Movement(msgspec.Struct, frozen=True):
    """How the rows of one table get to its new shape, and what stands in the way.

    ``reshape`` and ``sets_properties`` are there for an ``evolve``: see ``Target``.
    ``copied_because`` is there for a ``copy``: each thing that keeps the table from being changed
    in place, or that its rows come from another shard.
    """

    contents: Contents = "none"
    projection: tuple[tuple[str, str], ...] = ()
    reshape: tuple[tuple[str, str], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    questions: tuple[Question, ...] = ()
    risks: tuple[Risk, ...] = ()
    segments: tuple[Segment, ...] = ()
    fill: Fill | None = None
    sets_properties: bool = False
    copied_because: tuple[str, ...] = ()

    @property
    def risk(self) -> str | None:
        """What could be lost, in words; None when nothing could."""
        return "; ".join(risk.text for risk in self.risks) or None


class _Decided(msgspec.Struct, frozen=True):
    """One column: its expression over the old columns, or why there is none."""

    expression: str
    blocked: Blocked | None = None
    risk: Risk | None = None


def contents_of_new(definition: ObjectDefinition) -> Contents:
    """Return what a new object starts with: a new retained table is empty."""
    return "derived" if definition.kind == "table" and definition.is_derived else "none"


def movement_of(compared: Compared, old: BaselineObject, approvals: Approvals) -> Movement:
    """How a table that is migrated or updated keeps its rows."""
    definition = compared.definition
    if stays_in_place(compared, old):
        return in_place_movement(compared, old, approvals)
    if definition.is_derived:
        return Movement("derived")
    columns = _decide_columns(compared, old, approvals)
    removed = [
        _decide_removal(compared, old, column, approvals) for column in compared.delta.removed
    ]
    decided = (*columns.values(), *removed)
    reasons = list_copy_reasons(
        compared, old.definition, {name: each.expression for name, each in columns.items()}
    ) or list_kept_columns(compared, approvals)
    reshape = () if reasons else list_continued(compared)
    return Movement(
        "evolve" if reshape else "copy",
        _projection(columns),
        reshape,
        tuple(each.blocked for each in decided if each.blocked is not None),
        probable_column_renames(compared),
        tuple(each.risk for each in decided if each.risk is not None),
        sets_properties=bool(reshape)
        and sets_by_spark(old.definition.properties, definition.properties),
        copied_because=reasons,
    )


def list_kept_columns(compared: Compared, approvals: Approvals) -> tuple[str, ...]:
    """List why columns are not dropped in place: the policy pays for the way back with a copy."""
    return tuple(
        f"column {quote_part(removed.name)} is dropped, which the policy does not allow in place"
        for removed in compared.delta.removed
        if not approvals.bear("drop_in_place", compared.key, removed.name)
    )


def in_place_movement(
    compared: Compared, old: BaselineObject, approvals: Approvals
) -> Movement:
    """A table that keeps its shard, and every row as it is.

    With a projection where its properties may be refused, so that it is copied after all.
    """
    if not touches_shard(compared, old):
        return Movement("keep")
    definition, before = compared.definition, old.definition.properties
    if before == definition.properties or not sets_by_spark(before, definition.properties):
        return Movement("evolve")
    columns = _decide_columns(compared, old, approvals)
    return Movement("evolve", _projection(columns), sets_properties=True)


def _decide_columns(
    compared: Compared, old: BaselineObject, approvals: Approvals
) -> dict[str, _Decided]:
    return {
        column.name: _decide(compared, old, column, before, approvals)
        for column, before in compared.pairs
    }


def _projection(columns: Mapping[str, _Decided]) -> tuple[tuple[str, str], ...]:
    return tuple((name, each.expression) for name, each in columns.items() if each.expression)


def stays_in_place(compared: Compared, old: BaselineObject) -> bool:
    """Return whether a table keeps its shard and every row in it as it is."""
    return _fits_in_place(compared) and not any(_storage_reasons(compared, old.definition))


def _fits_in_place(compared: Compared) -> bool:
    """Whether nullable columns were added at the end, nullable fields to structs, texts got longer,
    NULL was allowed, and nothing else."""
    added = False
    for column, before in compared.delta.pairs:
        if before is None:
            added = True
            if not _adds_in_place(compared, column):
                return False
        elif added or (
            before.type != column.type and not _retypes_in_place(compared, column, before)
        ):
            return False
    return not any(
        change.change in ("removed", "renamed", "moved")
        or (change.change == "nullability" and not change.new_nullable)
        for change in compared.delta.changes
    )


def _adds_in_place(compared: Compared, column: Column) -> bool:
    """Whether metadata alone makes a new column: NULL in every row, no table feature missing."""
    if not column.nullable or column.generated is not None or _fill(compared, column):
        return False
    return _has_features(compared, column)


def _has_features(compared: Compared, column: Column) -> bool:
    """Whether the table has the features that the type of a column needs."""
    standing = compared.old.definition.columns if compared.old is not None else ()
    there = {word.upper() for each in standing for word in _OF_A_FEATURE.findall(each.type)}
    return there.issuperset(word.upper() for word in _OF_A_FEATURE.findall(column.type))


def _retypes_in_place(compared: Compared, column: Column, before: Column) -> bool:
    """Whether metadata alone changes a type: a longer VARCHAR, or new fields in structs."""
    old = compared.old
    if old is None or changes_values(column, before, compared.facts.decisions, old.applied):
        return False
    if is_longer_text(before.type, column.type):
        return before.name.lower() not in _fixed_columns(old.definition, compared.definition)
    return bool(find_added_fields(before.type, column.type)) and _gains_fields(compared, column)


def _gains_fields(compared: Compared, column: Column) -> bool:
    """Whether Delta lets structs in a column get nullable fields.

    It keeps lengths of texts beside the column, where its ALTER TABLE leaves them as they are.
    """
    names = (f"{quote_sql(each.name)} {each.type}" for each in compared.definition.columns)
    return (
        not _LENGTH.search(column.type)
        and not any(map(_ODD_NAME.search, names))
        and _has_features(compared, column)
    )


def list_continued(compared: Compared) -> tuple[tuple[str, str], ...]:
    """List the columns of a table that is changed in place, each with the one that it continues."""
    return tuple(
        (column.name, before.name) for column, before in compared.delta.pairs if before is not None
    )


def _fixed_columns(*definitions: ObjectDefinition) -> set[str]:
    """Folded names that a CHECK, a generated column or the partitioning mentions."""
    from catalog_migrate.sql.tokens import tokenise

    held: set[str] = set()
    for definition in definitions:
        held |= {name.lower() for name in definition.partitioned_by}
        texts = [check.expression for check in definition.checks]
        for column in definition.columns:
            if column.generated is not None:
                held.add(column.name.lower())
                texts.append(column.generated)
        for text in texts:
            held |= {token.value.lower() for token in tokenise(text)}
    return held


def touches_shard(compared: Compared, old: BaselineObject) -> bool:
    return bool(
        compared.delta.changes
        or compared.facts.hashes.storage != old.hashes.storage
        or compared.facts.hashes.comment != old.hashes.comment
    )


def _storage_reasons(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    return (reason for rule in _STORAGE_RULES for reason in rule(compared, old))


def _layout_reasons(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    new = compared.definition
    earlier = {name.lower(): before.lower() for name, before in list_continued(compared)}
    for word, field in (("partitioning", "partitioned_by"), ("clustering", "clustered_by")):
        before, after = (
            tuple(name.lower() for name in getattr(each, field)) for each in (old, new)
        )
        if before == after:
            continue
        if before == tuple(earlier.get(name) for name in after):
            for was, name in zip(getattr(old, field), getattr(new, field), strict=True):
                if was.lower() != name.lower():
                    yield f"{word} column {_rename_note(was, name)}"
        else:
            yield f"the {word} changes"


def _find_generated_reasons(compared: Compared, _: ObjectDefinition) -> Iterator[str]:
    for column, held in compared.delta.pairs:
        if held is None:
            if column.generated is not None:
                yield f"generated column {quote_part(column.name)} is new"
            continue
        if held.generated != column.generated:
            yield f"how column {quote_part(column.name)} is generated changes"
        elif column.generated is not None and held.name.lower() != column.name.lower():
            yield f"generated column {_rename_note(held.name, column.name)}"
    for column in compared.delta.removed:
        if column.generated is not None:
            yield f"generated column {quote_part(column.name)} is dropped"


def _property_reasons(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    before, after = old.properties, compared.definition.properties
    if before != after and needs_copy(before, after):
        yield "a property changes that only a new table can have"


def _check_reasons(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    # A new CHECK could fail on an old row; after the commit there would be no way back.
    known = {check.folded for check in old.checks}
    for check in compared.definition.checks:
        if check.folded not in known:
            yield f"CHECK {quote_part(check.name)} is new, and every row has to meet it"


_STORAGE_RULES = (_layout_reasons, _find_generated_reasons, _property_reasons, _check_reasons)
"""Each yields why its part of the new definition needs a new table."""


def _rename_note(before: str, after: str) -> str:
    return f"{quote_part(before)} is renamed to {quote_part(after)}"


def list_copy_reasons(
    compared: Compared, old: ObjectDefinition, expressions: Mapping[str, str]
) -> tuple[str, ...]:
    """List why a table is copied; empty where renaming, dropping, adding and moving do.

    ``expressions`` are those of the columns over the old ones. What Delta cannot do in place is
    listed where nothing else needs the copy.
    """
    found = list(_storage_reasons(compared, old))
    for column, before in compared.delta.pairs:
        found += (
            _new_column_reasons(compared, column) if before is None
            else _column_reasons(compared, column, before, expressions.get(column.name))
        )
    return tuple(found or _list_obstacles(compared, old))


def _new_column_reasons(compared: Compared, column: Column) -> Iterator[str]:
    if column.generated is not None or _adds_in_place(compared, column):
        return
    name = quote_part(column.name)
    if not column.nullable or _fill(compared, column):
        yield f"new column {name} gets a value in every row"
    else:
        yield f"the type of new column {name} needs a table feature that the table does not have"


def _column_reasons(
    compared: Compared, column: Column, before: Column, expression: str | None
) -> Iterator[str]:
    name = quote_part(column.name)
    if before.type != column.type and not _retypes_in_place(compared, column, before):
        yield f"the values of column {name} turn from {before.type} to {column.type}"
    if before.nullable and not column.nullable:
        yield f"column {name} becomes NOT NULL, and every row has to meet it"
    elif before.type == column.type and column.generated is None and (
        expression != quote_sql(before.name)
    ):
        yield f"the values of column {name} are replaced"


def _list_obstacles(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    """Yield why Delta does not rename, drop, add or move these columns in place."""
    new, pairs = compared.definition, compared.delta.pairs
    if old.clustered_by:
        yield (
            "the table is clustered, so its columns are not renamed, dropped or moved in place, nor"
            " added before others"
        )
    if new.properties.get(MAPPING_MODE) == "none":
        yield (
            f"{MAPPING_MODE} is none, without which columns are not renamed, dropped or moved in"
            " place, nor added before others"
        )
    layout = {name.lower() for name in old.partitioned_by}
    if all(before is None or before.name.lower() in layout for _, before in pairs):
        yield "only partition columns would stay"
    held = _fixed_columns(old, new)
    use = "and a CHECK, a generated column or the partitioning uses that name"
    for column, before in pairs:
        if before is None:
            continue
        if before.type != column.type:
            yield (
                f"the type of column {quote_part(column.name)} changes, which is done in place only"
                " where no column is renamed, dropped or moved, nor added before others"
            )
        names = {before.name.lower(), column.name.lower()}
        if len(names) > 1 and names & held:
            yield f"column {_rename_note(before.name, column.name)}, {use}"
    for removed in compared.delta.removed:
        if removed.name.lower() in held:
            yield f"column {quote_part(removed.name)} is dropped, {use}"


def _fill(compared: Compared, column: Column) -> str | None:
    """The expression that fills a new column by decision, None where there is none to run."""
    ran: Collection[str] = compared.old.applied if compared.old is not None else ()
    using, default = pending(column, compared.facts.decisions, ran)
    return default if using is None else using


def pending(
    column: Column, decisions: Mapping[str, str], ran: Collection[str]
) -> tuple[str | None, str | None]:
    """Return a column's USING and its DEFAULT, each None where it was applied or is not there.

    ``decisions`` are those of the release, ``ran`` the ones that had been applied before it.
    """
    using, default = (
        None if expression is None or decision(decisions, label, column.name) in ran
        else expression
        for label, expression in (("using", column.using), ("default", column.default))
    )
    return using, default


def _decide(
    compared: Compared,
    old: BaselineObject,
    column: Column,
    before: Column | None,
    approvals: Approvals,
) -> _Decided:
    using, default = pending(column, compared.facts.decisions, old.applied)
    if column.generated is not None and using is None:
        return _Decided("")  # Delta computes it, and checks what it is given
    if before is None:
        return _decide_new(compared.key, column, using if using is not None else default)
    return _Conversion(compared.key, column, before, using, default, approvals).decide()


class _Conversion(msgspec.Struct, frozen=True):
    """A column that continues ``before``; USING and DEFAULT are there while they are pending."""

    key: ItemKey
    column: Column
    before: Column
    using: str | None
    default: str | None
    approvals: Approvals

    def decide(self) -> _Decided:
        if self.using is not None and _is_redefined(self.column, self.before):
            return self._by_decision(self.using)
        decided = self._with_type()
        return decided if decided.blocked is not None else self._without_null(decided)

    def _by_decision(self, using: str) -> _Decided:
        column, name = self.column, quote_part(self.column.name)
        if self.before.type != column.type:
            expression, text = using, f"converts {name} from {self.before.type} to {column.type}"
        else:
            expression = f"CAST({using} AS {column.type})"
            text = f"replaces the values of {name} by {using}"
        return _Decided(expression, risk=Risk("convert", text, column.name))

    def _with_type(self) -> _Decided:
        column, before = self.column, self.before
        source = quote_sql(before.name)
        if before.type == column.type:
            return _Decided(source)
        kept = conversion(source, before.type, column.type)
        if _needs_no_word(before.type, column.type) and is_complete(kept):
            return _Decided(kept)
        fitted = conversion(
            source, before.type, column.type, or_null=True,
            nullable=column.nullable or self.default is not None,
        )
        if is_complete(fitted) and self.approvals.cover("convert", self.key, column.name):
            instead = "NULL" if self.default is None else self.default
            text = f"{quote_part(column.name)}: values that are no {column.type} become {instead}"
            return _Decided(fitted, risk=Risk("convert", text, column.name))
        return _Decided(source, _block_retype(self.key, column, before))

    def _without_null(self, decided: _Decided) -> _Decided:
        column, name = self.column, quote_part(self.column.name)
        is_tightened = self.before.nullable and not column.nullable
        if not is_tightened and (decided.risk is None or column.nullable):
            return decided
        if self.default is not None:
            risk = Risk("convert", f"NULL in {name} becomes {self.default}", column.name)
            expression = f"COALESCE({decided.expression}, CAST({self.default} AS {column.type}))"
            return _Decided(expression, risk=decided.risk or risk)
        if is_tightened and not self.approvals.cover("not_null", self.key, column.name):
            blocked = _block_null(self.key, column, self.before)
            return _Decided(quote_sql(self.before.name), blocked)
        risk = Risk("not_null", f"{name}: fails if a row holds NULL", column.name)
        return _Decided(decided.expression, risk=decided.risk or risk)


def _is_redefined(column: Column, before: Column) -> bool:
    """Whether a column has another type or name, or takes no NULL any more."""
    return (
        before.type != column.type
        or (before.nullable and not column.nullable)
        or before.name.lower() != column.name.lower()
    )


def _decide_removal(
    compared: Compared, old: BaselineObject, removed: Column, approvals: Approvals
) -> _Decided:
    label = decision(compared.facts.decisions, "dropped", removed.name)
    is_given_up = label is not None and label not in old.applied
    if is_given_up or approvals.cover("drop_column", compared.key, removed.name):
        risk = Risk("drop_column", f"drops column {quote_part(removed.name)}", removed.name)
        return _Decided("", risk=risk)
    return _Decided("", _block_removal(compared.key, removed))


def changes_values(
    column: Column, before: Column, decisions: Mapping[str, str], ran: Collection[str]
) -> bool:
    """Return whether a copy put other values into a column than those of the one that it continues.

    By what :func:`movement_of` decides: ``decisions`` are those of the release, ``ran`` the ones
    that had been applied before it.
    """
    using, default = pending(column, decisions, ran)
    if column.generated is not None and using is None:
        return column.generated != before.generated
    if using is not None and _is_redefined(column, before):
        return True
    if before.type != column.type and not _needs_no_word(before.type, column.type):
        return True
    return default is not None and before.nullable and not column.nullable


def _needs_no_word(source: str, target: str) -> bool:
    """Whether a plain conversion keeps every value and what it means.

    Turning something else into text keeps the value but picks an encoding (is a flag ``true``,
    ``t`` or ``1``?): that is for the release to say.
    """
    return is_lossless(source, target) and not becomes_text(source, target)


def _decide_new(key: ItemKey, column: Column, fill: str | None) -> _Decided:
    if fill is not None:
        return _Decided(f"CAST({fill} AS {column.type})")
    if column.nullable:
        return _Decided(f"CAST(NULL AS {column.type})")
    name = quote_part(column.name)
    return _Decided(
        "",
        Blocked(
            str(key),
            NEW_NOT_NULL,
            f"new column {name} is NOT NULL and nothing says what the rows there get",
            f"{name} {column.type} NOT NULL USING <expression over the old columns>",
            column.name,
        ),
    )


def _block_retype(key: ItemKey, column: Column, before: Column) -> Blocked:
    return Blocked(
        str(key),
        LOSSY_RETYPE,
        f"{quote_part(before.name)} turns from {before.type} to {column.type}, which may lose "
        "values or what they mean",
        f"{_continuing(column)} USING "
        + conversion(quote_part(before.name), before.type, column.type),
        column.name,
    )


def _block_null(key: ItemKey, column: Column, before: Column) -> Blocked:
    name = quote_part(column.name)
    return Blocked(
        str(key),
        BECOMES_NOT_NULL,
        f"column {name} becomes NOT NULL and may hold NULL",
        f"{_continuing(column)} USING COALESCE({quote_part(before.name)}, <value for NULL>)",
        column.name,
    )


def _block_removal(key: ItemKey, column: Column) -> Blocked:
    name = quote_part(column.name)
    return Blocked(
        str(key),
        COLUMN_REMOVED,
        f"column {name} is removed, and its values with it",
        f"DROPPED ({name})",
        column.name,
    )


def block_ignored_rename(rename: IgnoredRename) -> Blocked:
    """Return the refusal of a rename that would come to nothing, without a word."""
    key, earlier = rename.key, rename.earlier.item_name
    return Blocked(
        str(key), RENAME_IGNORED,
        f"RENAMED FROM {earlier} cannot be: {rename.reason}",
        f"take {earlier} out of RENAMED FROM, or let what has the name go on under another one "
        "(RENAMED FROM there as well, in a circle or a chain)",
    )


def block_drop(key: ItemKey, *, in_release: bool = True) -> Blocked:
    """Return the missing decision on a retained table that the release no longer has.

    ``in_release``: the release itself may say so as well.
    """
    return Blocked(
        str(key),
        TABLE_DROPPED,
        "the release has no such table any more, and its rows would go with it",
        f"--approve {key.item_name}"
        + (f" (or DROPPED TABLE {key.item_name} in the release)" if in_release else ""),
    )


def _declare(column: Column) -> str:
    """A column as the release writes it: name, type and NOT NULL."""
    return f"{quote_part(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}"


def _continuing(column: Column) -> str:
    """A column as the release writes it, with the names that it had."""
    names = ", ".join(map(quote_part, column.earlier_names))
    if not names:
        return _declare(column)
    return f"{_declare(column)} RENAMED FROM {f'({names})' if ', ' in names else names}"


def probable_column_renames(compared: Compared) -> tuple[Question, ...]:
    """Removed columns that look like an added one of the same type: asked, never guessed."""
    delta, old = compared.delta, compared.old
    if old is None:
        return ()
    dropped = {name.lower() for name in compared.definition.dropped}
    gone = [column for column in delta.removed if column.name.lower() not in dropped]
    added = [
        (position, column)
        for position, (column, before) in enumerate(delta.pairs)
        if before is None and column.using is None
    ]
    places = {column.name.lower(): place for place, column in enumerate(old.definition.columns)}
    only = len(gone) == len(added) == 1

    def rank(column: Column, candidate: tuple[int, Column]) -> tuple[float, int] | None:
        position, new = candidate
        alike = likeness(column.name, new.name)
        is_alike = only or alike >= ENOUGH_ALIKE or position == places[column.name.lower()]
        return (-alike, position) if new.type == column.type and is_alike else None

    return tuple(
        Question(
            str(compared.key), column.name, new.name,
            f"{_declare(new)} RENAMED FROM {quote_part(column.name)}",
        )
        for column, (_, new) in pair_by_rank(gone, added, rank)
    )


def pair_by_rank(
    ones: Iterable[T], others: Iterable[U], rank: Callable[[T, U], tuple[float, Any] | None]
) -> list[tuple[T, U]]:
    """Pair each of ``ones`` with the first by ``rank`` of the ``others`` that are left.

    ``rank`` gives None for what is not alike.
    """
    left = list(others)
    pairs = []
    for one in ones:
        ranked = [
            (place, number) for number, other in enumerate(left)
            if (place := rank(one, other)) is not None
        ]
        if ranked:
            pairs.append((one, left.pop(min(ranked)[1])))
    return pairs


def likeness(one: str, other: str) -> float:
    """How alike two names are, 0 to 1."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one.lower(), other.lower(), autojunk=False).ratio()
