"""Where a table's rows come from, by which expressions, and what nobody has decided yet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from catalog_migrate.model.conversion import conversion, is_complete
from catalog_migrate.model.names import ItemKey, quote_part, quote_sql
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.table_properties import MAPPING_MODE, needs_copy, sets_by_spark
from catalog_migrate.model.types import (
    added_fields,
    becomes_text,
    is_longer_text,
    is_lossless,
)
from catalog_migrate.planner.baseline import BaselineObject
from catalog_migrate.planner.diff import Compared, IgnoredRename, decision
from catalog_migrate.planner.plan import Blocked, Fill, Question, Segment
from catalog_migrate.planner.policy_evaluation import Approvals, Risk

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


def created_contents(definition: ObjectDefinition) -> Contents:
    """What a new object starts with: a new retained table is empty."""
    return "derived" if definition.kind == "table" and definition.is_derived else "none"


def movement_of(compared: Compared, old: BaselineObject, approvals: Approvals) -> Movement:
    """How a table that is migrated or updated keeps its rows."""
    definition = compared.definition
    if fits_in_place(compared) and not storage_needs_copy(compared, old.definition):
        return in_place_movement(compared, old, approvals)
    if definition.is_derived:
        return Movement("derived")
    decided: list[tuple[Column, _Decided]] = []
    blocked: list[Blocked] = []
    risks: list[Risk] = []
    for column, before in compared.delta.pairs or _same_columns(definition):
        outcome = _decide(compared, old, column, before, approvals)
        decided.append((column, outcome))
        if outcome.blocked is not None:
            blocked.append(outcome.blocked)
        if outcome.risk is not None:
            risks.append(outcome.risk)
    for removed in compared.delta.removed:
        label = decision(compared.facts.decisions, "dropped", removed.name)
        dropped = label is not None and label not in old.applied
        if dropped or approvals.cover("drop_column", compared.key, removed.name):
            risks.append(
                Risk("drop_column", f"drops column {quote_part(removed.name)}", removed.name)
            )
        else:
            blocked.append(_undecided_removal(compared.key, removed))
    reasons = list_copy_reasons(
        compared, old.definition, {column.name: each.expression for column, each in decided}
    ) or list_kept_columns(compared, approvals)
    reshape = () if reasons else list_continued(compared)
    return Movement(
        "evolve" if reshape else "copy",
        tuple(
            (column.name, outcome.expression)
            for column, outcome in decided
            if outcome.expression
        ),
        reshape,
        tuple(blocked),
        probable_column_renames(compared),
        tuple(risks),
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
    outcomes = (
        (column.name, _decide(compared, old, column, before, approvals).expression)
        for column, before in compared.delta.pairs or _same_columns(definition)
    )
    return Movement(
        "evolve", tuple((name, text) for name, text in outcomes if text), sets_properties=True
    )


def _same_columns(definition: ObjectDefinition) -> Iterable[tuple[Column, Column]]:
    return ((column, column) for column in definition.columns)


def fits_in_place(compared: Compared) -> bool:
    """Whether nullable columns were added at the end, nullable fields to structs, texts got longer,
    NULL was allowed, and nothing else."""
    added = False
    for column, before in compared.delta.pairs:
        if before is None:
            added = True
            if not _adds_in_place(compared, column):
                return False
        elif added or (
            before.type != column.type
            and not _lengthens(compared, column, before)
            and not _gains_fields(compared, column, before)
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


def _gains_fields(compared: Compared, column: Column, before: Column) -> bool:
    """Whether metadata alone changes a type: structs in it get nullable fields.

    Delta keeps lengths of texts beside the column, where its ALTER TABLE leaves them as they are.
    """
    if compared.old is None or not added_fields(before.type, column.type):
        return False
    if changes_values(column, before, compared.facts.decisions, compared.old.applied):
        return False
    names = (f"{quote_sql(each.name)} {each.type}" for each in compared.definition.columns)
    return (
        not _LENGTH.search(column.type)
        and not any(map(_ODD_NAME.search, names))
        and _has_features(compared, column)
    )


def _lengthens(compared: Compared, column: Column, before: Column) -> bool:
    """Whether metadata alone changes a type: a longer VARCHAR that nothing else hangs on."""
    if not is_longer_text(before.type, column.type) or compared.old is None:
        return False
    if changes_values(column, before, compared.facts.decisions, compared.old.applied):
        return False
    return before.name.lower() not in _held_on_to(compared.old.definition, compared.definition)


def list_continued(compared: Compared) -> tuple[tuple[str, str], ...]:
    """List the columns of a table that is changed in place, each with the one that it continues."""
    return tuple(
        (column.name, before.name) for column, before in compared.delta.pairs if before is not None
    )


def _held_on_to(*definitions: ObjectDefinition) -> set[str]:
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


def storage_needs_copy(compared: Compared, old: ObjectDefinition) -> bool:
    """Whether the layout, a property or a CHECK of the new definition needs a new table."""
    return next(_storage_reasons(compared, old), None) is not None


def _storage_reasons(compared: Compared, old: ObjectDefinition) -> Iterator[str]:
    new = compared.definition
    pairs = compared.delta.pairs
    earlier = {
        column.name.lower(): before.name.lower() for column, before in pairs if before is not None
    }
    for word, field in (("partitioning", "partitioned_by"), ("clustering", "clustered_by")):
        before, after = (
            tuple(name.lower() for name in getattr(each, field)) for each in (old, new)
        )
        if before == after:
            continue
        if before == tuple(earlier.get(name) for name in after):
            for was, name in zip(getattr(old, field), getattr(new, field), strict=True):
                if was.lower() != name.lower():
                    yield f"{word} column {_renamed(was, name)}"
        else:
            yield f"the {word} changes"
    for column, held in pairs:
        if held is None:
            if column.generated is not None:
                yield f"generated column {quote_part(column.name)} is new"
            continue
        if held.generated != column.generated:
            yield f"how column {quote_part(column.name)} is generated changes"
        elif column.generated is not None and held.name.lower() != column.name.lower():
            yield f"generated column {_renamed(held.name, column.name)}"
    for column in compared.delta.removed:
        if column.generated is not None:
            yield f"generated column {quote_part(column.name)} is dropped"
    if old.properties != new.properties and needs_copy(old.properties, new.properties):
        yield "a property changes that only a new table can have"
    # A new CHECK could fail on an old row; after the commit there would be no way back.
    known = {(check.name.lower(), check.expression) for check in old.checks}
    for check in new.checks:
        if (check.name.lower(), check.expression) not in known:
            yield f"CHECK {quote_part(check.name)} is new, and every row has to meet it"


def _renamed(before: str, after: str) -> str:
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
        name = quote_part(column.name)
        if before is None:
            if column.generated is None and not _adds_in_place(compared, column):
                found.append(
                    f"new column {name} gets a value in every row"
                    if not column.nullable or _fill(compared, column)
                    else f"the type of new column {name} needs a table feature that the table does"
                    " not have"
                )
            continue
        if before.type != column.type and not _lengthens(compared, column, before) and (
            not _gains_fields(compared, column, before)
        ):
            found.append(f"the values of column {name} turn from {before.type} to {column.type}")
        if before.nullable and not column.nullable:
            found.append(f"column {name} becomes NOT NULL, and every row has to meet it")
        elif before.type == column.type and column.generated is None and (
            expressions.get(column.name) != quote_sql(before.name)
        ):
            found.append(f"the values of column {name} are replaced")
    return tuple(found or _list_obstacles(compared, old))


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
    held = _held_on_to(old, new)
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
            yield f"column {_renamed(before.name, column.name)}, {use}"
    for removed in compared.delta.removed:
        if removed.name.lower() in held:
            yield f"column {quote_part(removed.name)} is dropped, {use}"


def _fill(compared: Compared, column: Column) -> str | None:
    """The expression that fills a new column by decision, None where there is none to run."""
    ran: Collection[str] = compared.old.applied if compared.old is not None else ()
    for label, expression in (("using", column.using), ("default", column.default)):
        if expression is None:
            continue
        if decision(compared.facts.decisions, label, column.name) not in ran:
            return expression
    return None


def _decide(
    compared: Compared,
    old: BaselineObject,
    column: Column,
    before: Column | None,
    approvals: Approvals,
) -> _Decided:
    ran = old.applied
    decisions = compared.facts.decisions
    using = column.using if decision(decisions, "using", column.name) not in ran else None
    default = column.default if decision(decisions, "default", column.name) not in ran else None
    if column.generated is not None and using is None:
        return _Decided("")  # Delta computes it, and checks what it is given
    if before is None:
        return _decide_new(compared.key, column, using if using is not None else default)
    renamed = before.name.lower() != column.name.lower()
    retyped = before.type != column.type
    tightened = before.nullable and not column.nullable
    source = quote_sql(before.name)
    if using is not None and (retyped or tightened or renamed):
        name = quote_part(column.name)
        return _Decided(
            using if retyped else f"CAST({using} AS {column.type})",
            risk=Risk(
                "convert",
                f"converts {name} from {before.type} to {column.type}"
                if retyped
                else f"replaces the values of {name} by {using}",
                column.name,
            ),
        )
    expression = source
    risk: Risk | None = None
    if retyped:
        kept = conversion(source, before.type, column.type)
        fitted = conversion(
            source, before.type, column.type, or_null=True,
            nullable=column.nullable or default is not None,
        )
        if _needs_no_word(before.type, column.type) and is_complete(kept):
            expression = kept
        elif is_complete(fitted) and approvals.cover("convert", compared.key, column.name):
            expression = fitted
            risk = Risk(
                "convert",
                f"{quote_part(column.name)}: values that are no {column.type} become "
                f"{'NULL' if default is None else default}",
                column.name,
            )
        else:
            return _Decided(source, _undecided_retype(compared.key, column, before))
    if tightened or (risk is not None and not column.nullable):
        if default is not None:
            expression = f"COALESCE({expression}, CAST({default} AS {column.type}))"
            name = quote_part(column.name)
            risk = risk or Risk("convert", f"NULL in {name} becomes {default}", column.name)
        elif tightened and not approvals.cover("not_null", compared.key, column.name):
            return _Decided(source, _undecided_null(compared.key, column, before))
        elif risk is None:
            risk = Risk(
                "not_null", f"{quote_part(column.name)}: fails if a row holds NULL", column.name
            )
    return _Decided(expression, risk=risk)


def changes_values(
    column: Column, before: Column, decisions: Mapping[str, str], ran: Collection[str]
) -> bool:
    """Whether a copy put other values into a column than those of the one that it continues.

    By what :func:`movement_of` decides: ``decisions`` are those of the release, ``ran`` the ones
    that had been applied before it.
    """
    using = column.using is not None and decision(decisions, "using", column.name) not in ran
    if column.generated is not None and not using:
        return column.generated != before.generated
    retyped = before.type != column.type
    tightened = before.nullable and not column.nullable
    if using and (retyped or tightened or before.name.lower() != column.name.lower()):
        return True
    if retyped and not _needs_no_word(before.type, column.type):
        return True
    return (
        tightened
        and column.default is not None
        and decision(decisions, "default", column.name) not in ran
    )


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


def _undecided_retype(key: ItemKey, column: Column, before: Column) -> Blocked:
    return Blocked(
        str(key),
        LOSSY_RETYPE,
        f"{quote_part(before.name)} turns from {before.type} to {column.type}, which may lose "
        "values or what they mean",
        f"{_continuing(column)} USING "
        + conversion(quote_part(before.name), before.type, column.type),
        column.name,
    )


def _undecided_null(key: ItemKey, column: Column, before: Column) -> Blocked:
    name = quote_part(column.name)
    return Blocked(
        str(key),
        BECOMES_NOT_NULL,
        f"column {name} becomes NOT NULL and may hold NULL",
        f"{_continuing(column)} USING COALESCE({quote_part(before.name)}, <value for NULL>)",
        column.name,
    )


def _undecided_removal(key: ItemKey, column: Column) -> Blocked:
    name = quote_part(column.name)
    return Blocked(
        str(key),
        COLUMN_REMOVED,
        f"column {name} is gone and its values with it",
        f"DROPPED ({name})",
        column.name,
    )


def ignored_rename(rename: IgnoredRename) -> Blocked:
    """The refusal of a rename that would come to nothing, without a word."""
    key, earlier = rename.key, rename.earlier.item_name
    return Blocked(
        str(key), RENAME_IGNORED,
        f"RENAMED FROM {earlier} cannot be: {rename.reason}",
        f"take {earlier} out of RENAMED FROM, or let what has the name go on under another one "
        "(RENAMED FROM there as well, in a circle or a chain)",
    )


def undecided_drop(key: ItemKey, *, in_release: bool = True) -> Blocked:
    """The missing decision on a retained table that the release no longer has.

    ``in_release``: the release itself may say so as well.
    """
    return Blocked(
        str(key),
        TABLE_DROPPED,
        "the release has no such table any more, and its rows would go with it",
        f"--approve {key.item_name}"
        + (f" (or DROPPED TABLE {key.item_name} in the release)" if in_release else ""),
    )


def _declared(column: Column) -> str:
    """A column as the release writes it: name, type and NOT NULL."""
    return f"{quote_part(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}"


def _continuing(column: Column) -> str:
    """A column as the release writes it, with the names that it had."""
    names = ", ".join(map(quote_part, column.earlier_names))
    if not names:
        return _declared(column)
    return f"{_declared(column)} RENAMED FROM {f'({names})' if ', ' in names else names}"


def probable_column_renames(compared: Compared) -> tuple[Question, ...]:
    """Removed columns that look like an added one of the same type: asked, never guessed."""
    delta = compared.delta
    dropped = {name.lower() for name in compared.definition.dropped}
    gone = [column for column in delta.removed if column.name.lower() not in dropped]
    added = [
        (position, column)
        for position, (column, before) in enumerate(delta.pairs)
        if before is None and column.using is None
    ]
    if not gone or not added or compared.old is None:
        return ()
    places = {
        column.name.lower(): place
        for place, column in enumerate(compared.old.definition.columns)
    }
    questions: list[Question] = []
    taken: set[str] = set()
    for column in gone:
        ranked = sorted(
            (-alike, position, candidate.name, _declared(candidate))
            for position, candidate in added
            if candidate.type == column.type and candidate.name not in taken
            for alike in (likeness(column.name, candidate.name),)
            if alike >= ENOUGH_ALIKE
            or position == places[column.name.lower()]
            or len(gone) == len(added) == 1
        )
        if ranked:
            _, _, name, declared = ranked[0]
            taken.add(name)
            questions.append(
                Question(
                    str(compared.key),
                    column.name,
                    name,
                    f"{declared} RENAMED FROM {quote_part(column.name)}",
                )
            )
    return tuple(questions)


def likeness(one: str, other: str) -> float:
    """How alike two names are, 0 to 1."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one.lower(), other.lower(), autojunk=False).ratio()
