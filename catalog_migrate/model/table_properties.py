"""Properties that Delta knows of a table: their values, what they bring, how they change.

The list is that of Delta 4.4 (``DeltaConfigs``, ``TableFeature``), which a test compares.
Keys compare without case, as Delta's own do; every other prefix is the user's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from catalog_migrate.errors import suggest

DELTA = "delta."
FEATURE = "delta.feature."
"""Begins the properties that ask for a table feature by name; they are kept in the protocol."""
SUPPORTED = "supported"
APPEND_ONLY = "delta.appendOnly"
MAPPING_MODE = "delta.columnMapping.mode"
FREE = "delta.universalformat.config."
"""Begins folded keys that Delta takes whatever follows."""
OWN = "catalog_migrate."
"""Begins the properties that say whose a table, view or function is."""

Change = Literal["metadata", "spark", "copy"]
"""What a change of a property of a table with rows takes: a commit of its metadata alone, Delta's
own ALTER TABLE (it changes the protocol, or the rows' metadata, too), or a new table."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values that a property takes: in words, and as a test."""

    text: str
    accept: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class TableProperty:
    """One property that Delta knows.

    ``features`` are the table features that come with it where it is on. ``instead`` is what a
    release writes in place of a property that Delta itself, or a clause of the release, sets.
    ``copied`` are properties that Delta turns on in new tables alone.
    """

    key: str
    values: Values
    features: tuple[str, ...] = ()
    copied: bool = False
    instead: str | None = None

    def is_on(self, value: str | None) -> bool:
        """Return whether the value turns on what the property stands for."""
        return value is not None and value.lower() not in ("false", "none", "classic", "")


# -- values ----------------------------------------------------------------------------------------

_SECONDS = {
    "week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1,
    "millisecond": 1e-3, "microsecond": 1e-6,
}
_PART = re.compile(
    r"([+-]?)\s*(\d+(?=\s)|(?:\d+\.\d{0,9}|\.\d{1,9})(?=\s+seconds?\b))\s+"
    rf"({'|'.join(_SECONDS)})s?(?:\s+|\Z)"
)
_WHOLE = re.compile(r"[+-]?[0-9]+\Z")


def seconds_of(value: str) -> float | None:
    """A duration as Delta reads one (``DeltaConfigs.parseCalendarInterval``); None for none.

    Months and years are none: they are not equally long.
    """
    text = value.strip().lower().removeprefix("interval ").strip()
    total, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        total += float(part[1] + part[2]) * _SECONDS[part[3]]
        at = part.end()
    return total if at > 0 and total >= 0 else None


def _at_least(least: int) -> Values:
    def accept(value: str) -> bool:
        return bool(_WHOLE.match(value)) and least <= int(value) < 2**31

    return Values(f"a whole number from {least}", accept)


def _one_of(*words: str) -> Values:
    return Values(" or ".join(f"'{word}'" for word in words), words.__contains__)


def _is_boolean(value: str) -> bool:
    return value.lower() in ("true", "false")


_BOOLEAN = Values("'true' or 'false'", _is_boolean)
_INTERVAL = Values(
    "a duration in weeks, days or less, such as '30 days'",
    lambda value: seconds_of(value) is not None,
)
_COLUMNS = Values("a list of columns", lambda _: True)
_NONE = Values("", lambda _: False)

_BY_FEATURE = (
    "delta.feature.<name> = 'supported', or the property that brings the feature: Delta sets the"
    " versions"
)
_BY_DELTA = "nothing: Delta keeps it"
_BY_A_CATALOG = "nothing: tables whose commits another catalog coordinates cannot be in a release"

_PLAIN: Mapping[str, Values] = {
    "autoOptimize": _BOOLEAN,
    "autoOptimize.autoCompact": _one_of("true", "false"),
    "autoOptimize.optimizeWrite": _BOOLEAN,
    "castIcebergTimeType": _BOOLEAN,
    "checkpoint.writeStatsAsJson": _BOOLEAN,
    "checkpoint.writeStatsAsStruct": _BOOLEAN,
    "checkpointInterval": _at_least(1),
    "checkpointRetentionDuration": _INTERVAL,
    "compatibility.symlinkFormatManifest.enabled": _BOOLEAN,
    "dataSkippingNumIndexedCols": _at_least(-1),
    "dataSkippingStatsColumns": _COLUMNS,
    "dataSkippingStringPrefixLength": _at_least(0),
    "deletedFileRetentionDuration": _INTERVAL,
    "dropFeatureTruncateHistory.retentionDuration": _INTERVAL,
    "enableExpiredLogCleanup": _BOOLEAN,
    "enableFullRetentionRollback": _BOOLEAN,
    "ignoreIcebergBucketPartition": _BOOLEAN,
    "isolationLevel": Values("'Serializable'", lambda value: value.lower() == "serializable"),
    "logRetentionDuration": _INTERVAL,
    "parquet.format.version": _one_of("1.0.0", "2.12.0"),
    "randomizeFilePrefixes": _BOOLEAN,
    "randomPrefixLength": _at_least(1),
    "sampleRetentionDuration": _INTERVAL,
    "setTransactionRetentionDuration": _INTERVAL,
    "universalFormat.iceberg.atomicConversion.supported": _BOOLEAN,
    "writePartitionColumnsToParquet": _BOOLEAN,
}

_WITH_A_FEATURE: tuple[TableProperty, ...] = (
    TableProperty(APPEND_ONLY, _BOOLEAN, ("appendOnly",)),
    TableProperty("delta.checkpointPolicy", _one_of("classic", "v2"), ("v2Checkpoint",)),
    TableProperty(MAPPING_MODE, _one_of("none", "name", "id"), ("columnMapping",)),
    TableProperty("delta.enableChangeDataCapture", _BOOLEAN, ("changeDataFeed",)),
    TableProperty("delta.enableChangeDataFeed", _BOOLEAN, ("changeDataFeed",)),
    TableProperty("delta.enableDeletionVectors", _BOOLEAN, ("deletionVectors",)),
    TableProperty("delta.enableIcebergCompatV1", _BOOLEAN, ("icebergCompatV1",), copied=True),
    TableProperty("delta.enableIcebergCompatV2", _BOOLEAN, ("icebergCompatV2",), copied=True),
    TableProperty("delta.enableIcebergCompatV3", _BOOLEAN, ("icebergCompatV3",), copied=True),
    TableProperty("delta.enableInCommitTimestamps", _BOOLEAN, ("inCommitTimestamp",)),
    TableProperty(
        "delta.enableMaterializePartitionColumnsFeature", _BOOLEAN, ("materializePartitionColumns",)
    ),
    TableProperty("delta.enableRowTracking", _BOOLEAN, ("rowTracking",)),
    TableProperty("delta.enableTypeWidening", _BOOLEAN, ("typeWidening",)),
    TableProperty("delta.enableVariantShredding", _BOOLEAN, ("variantShredding-preview",)),
)

_NOT_OF_A_RELEASE: Mapping[str, str] = {
    "delta.columnMapping.maxColumnId": _BY_DELTA,
    "delta.coordinatedCommits.commitCoordinator-preview": _BY_A_CATALOG,
    "delta.coordinatedCommits.commitCoordinatorConf-preview": _BY_A_CATALOG,
    "delta.coordinatedCommits.tableConf-preview": _BY_A_CATALOG,
    "delta.generationExpression": "GENERATED ALWAYS AS (…) behind the column's type",
    "delta.ignoreProtocolDefaults": "nothing: it is of no effect on a table that is there",
    "delta.inCommitTimestampEnablementTimestamp": _BY_DELTA,
    "delta.inCommitTimestampEnablementVersion": _BY_DELTA,
    "delta.minReaderVersion": _BY_FEATURE,
    "delta.minWriterVersion": _BY_FEATURE,
    "delta.redirectReaderWriter-preview": _BY_DELTA,
    "delta.redirectWriterOnly-preview": _BY_DELTA,
    "delta.requireCheckpointProtectionBeforeVersion": _BY_DELTA,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _BY_DELTA,
    "delta.rowTracking.materializedRowIdColumnName": _BY_DELTA,
    "delta.rowTrackingSuspended": _BY_DELTA,
    "delta.universalFormat.enabledFormats": "nothing: without Delta's jars for Iceberg and Hudi the"
    " table takes no INSERT",
}

KNOWN: Mapping[str, TableProperty] = {
    each.key.lower(): each
    for each in (
        *(TableProperty(DELTA + key, values) for key, values in _PLAIN.items()),
        *_WITH_A_FEATURE,
        *(TableProperty(key, _NONE, instead=text) for key, text in _NOT_OF_A_RELEASE.items()),
    )
}
"""Every property that Delta knows, by its folded key."""

_REFUSED_PREFIXES: Mapping[str, str] = {
    "delta.constraints.": "CONSTRAINT name CHECK (…) in the list of columns",
    "delta.coordinatedcommits.": _BY_A_CATALOG,
    "delta.identity.": "nothing: a release has no identity columns",
    "delta.rowtracking.": _BY_DELTA,
    OWN: "another prefix: this one marks the tables of catalog-migrate",
}
"""Begins folded keys that a release cannot set, and what it writes instead."""

RESERVED: Mapping[str, str] = {
    "comment": "COMMENT '…' behind the list of columns",
    "external": "nothing: every table has a directory of its own",
    "is_managed_location": "nothing: every table has a directory of its own",
    "location": "nothing: every table gets a directory of its own",
    "owner": "nothing: a metastore knows who made the table",
    "provider": "nothing: every table is a Delta table",
}
"""Keys that Spark keeps for clauses of CREATE TABLE, and what a release writes instead."""

FEATURES: Mapping[str, str] = {
    name.lower(): name
    for name in (
        "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints",
        "checkpointProtection", "columnMapping", "deletionVectors", "domainMetadata",
        "generatedColumns", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3",
        "identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns",
        "rowTracking", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck",
        "variantShredding", "variantType",
    )
}
"""Table features that a release may ask for by name, by folded name."""


_BY_DELTA_RS = frozenset({("delta.enableChangeDataFeed", "true"), (MAPPING_MODE, "name")})

# -- questions -------------------------------------------------------------------------------------

def canonical_key(key: str) -> str:
    """The key as Delta writes it; a key that Delta does not know as it is."""
    known = KNOWN.get(key.lower())
    if known is not None:
        return known.key
    if key.lower().startswith(FEATURE):
        name = key[len(FEATURE) :]
        return FEATURE + FEATURES.get(name.lower(), name)
    return key


def features_of(key: str, value: str | None) -> tuple[str, ...]:
    """Table features that a property brings with this value; none where it does not turn it on."""
    if value is None:
        return ()
    if key.lower().startswith(FEATURE):
        return (FEATURES.get(key[len(FEATURE) :].lower(), key[len(FEATURE) :]),)
    known = KNOWN.get(key.lower())
    return known.features if known is not None and known.is_on(value) else ()


def is_on(key: str, value: str | None) -> bool:
    """Whether a property with this value turns something on; a feature by name always does."""
    known = KNOWN.get(key.lower())
    return value is not None and (known is None or known.is_on(value))


def is_metadata(key: str, before: str | None, after: str | None) -> bool:
    """Return whether a commit of metadata alone changes a property so, on a table that has rows."""
    return change_of(key, before, after) == "metadata" or not (
        is_on(key, before) or is_on(key, after)
    )


def list_omitted(earlier: Iterable[str], properties: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that were declared and are not any more, sorted."""
    return tuple(sorted({*earlier} - properties.keys()))


def sets_by_spark(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether a table with rows that goes from some properties to others needs Delta's ALTER."""
    return "spark" in _changes(before, after)


def needs_copy(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return whether only a new table has the other properties."""
    return "copy" in _changes(before, after)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> set[Change]:
    return {
        change_of(key, before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
        and (is_on(key, before.get(key)) or is_on(key, after.get(key)))
    }


def change_of(key: str, before: str | None, after: str | None) -> Change:
    """Return what it takes to change a property of a table with rows; None: it is not set."""
    folded = key.lower()
    if folded.startswith(FEATURE):
        return "spark" if after is not None else "metadata"
    known = KNOWN.get(folded)
    if known is None or known.key == APPEND_ONLY or not (known.features or known.copied):
        return "metadata"
    if known.key == MAPPING_MODE:
        return _change_of_mapping((before or "none").lower(), (after or "none").lower())
    for_good = known.key == _ICEBERG + "V3" and known.is_on(before)  # Delta never turns it off
    return "copy" if for_good or (known.copied and known.is_on(after)) else "spark"


def _change_of_mapping(before: str, after: str) -> Change:
    if before == after:
        return "metadata"
    return "spark" if (before, after) == ("none", "name") else "copy"


def is_made_by_spark(properties: Mapping[str, str]) -> bool:
    """Return whether a new table with these properties has the features only where Spark makes it.

    delta-rs writes the protocol of a table with a change data feed, or mapped by name, right.
    """
    return any(
        change_of(key, None, value) != "metadata" and is_on(key, value)
        and (key, value.lower()) not in _BY_DELTA_RS
        for key, value in properties.items()
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one property, and what to do; ``unknown``: Delta has no such key."""

    key: str
    reason: str
    remedy: str
    unknown: bool = False


def faults_of(
    properties: Mapping[str, str], columns: Mapping[str, str] = {},
    partitioned_by: Sequence[str] = (),
) -> list[Fault]:
    """Return what is wrong with the properties of a table, one by one and together.

    ``columns`` are the names and types of its columns.
    """
    found = [
        Fault(key, *fault) for key, value in properties.items()
        if (fault := _fault_of(key, value)) is not None
    ]
    wrong = {fault.key for fault in found}
    by_key: dict[str, str] = {}
    for key in properties:
        canonical = canonical_key(key)
        if by_key.setdefault(canonical, key) != key:
            found.append(Fault(
                key, f"is {by_key[canonical]} written otherwise",
                "keep one: Delta's keys compare without case",
            ))
    right = {canonical: key for canonical, key in by_key.items() if key not in wrong}
    values = {canonical: properties[key] for canonical, key in right.items()}
    together = [*_clashes(values), *_short_log(values)]
    together += [
        (_STATISTICS, *fault)
        for fault in _stats_columns(values.get(_STATISTICS, ""), columns, partitioned_by)
    ]
    found += [Fault(right[key], reason, remedy) for key, reason, remedy in together]
    return found


_ICEBERG = "delta.enableIcebergCompat"
_LOG_KEPT, _FILES_KEPT = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_MANIFEST = "delta.compatibility.symlinkFormatManifest.enabled"
_STATISTICS = "delta.dataSkippingStatsColumns"
_COLUMN = re.compile(r"(?:`(?:[^`]|``)*`|[^`,])+")
_PART_OF_COLUMN = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_NO_STATISTICS = re.compile(r"BOOLEAN|BINARY|ARRAY|MAP|VARIANT|INTERVAL")

_Clash = tuple[str, str, str]
_Found = tuple[str, str] | tuple[str, str, bool]


def _fault_of(key: str, value: str) -> _Found | None:
    folded = key.lower()
    for prefix, instead in _REFUSED_PREFIXES.items():
        if folded.startswith(prefix):
            return "cannot be set as a property", f"write {instead}"
    if folded in RESERVED:
        return "is reserved by Spark", f"write {RESERVED[folded]}"
    if folded.startswith(FEATURE):
        return _fault_of_feature(key[len(FEATURE) :], value)
    known = KNOWN.get(folded)
    if known is None:
        return _fault_of_name(key)
    if known.instead is not None:
        return "cannot be set as a property", f"write {known.instead}"
    if not known.values.accept(value):
        return f"takes {known.values.text}", "correct the value, or leave the property out"
    return None


def _fault_of_feature(name: str, value: str) -> _Found | None:
    folded = name.lower()
    if folded == "clustering":
        return "cannot be set as a property", "write CLUSTER BY (…) behind the list of columns"
    if folded not in FEATURES:
        return (
            "names no table feature that a release can ask for",
            suggest(
                folded, {one: FEATURE + name for one, name in FEATURES.items()},
                f"the features are {', '.join(FEATURES.values())}", cutoff=0.85,
            ),
        )
    if value.lower() not in (SUPPORTED, "enabled"):
        return f"takes '{SUPPORTED}'", "correct the value, or leave the property out"
    return None


def _fault_of_name(key: str) -> _Found | None:
    """A key that is nearly one of Delta's, or of this dialect's; others of other prefixes pass."""
    from difflib import get_close_matches

    folded = key.lower()
    settable = {name: each.key for name, each in KNOWN.items() if each.instead is None}
    if folded.startswith(DELTA):
        if folded.startswith(FREE):
            return None
        return (
            "is no property that Delta knows",
            suggest(
                folded, settable, "leave it out, or allow it by a rule of the policy:"
                f' risk = "unknown_property", name = "{key}"', cutoff=0.85,
            ),
            True,
        )
    prefix, _, rest = folded.partition(".")
    if DELTA + folded in settable:
        return "lacks its prefix", f"did you mean {settable[DELTA + folded]}?"
    if DELTA + rest in settable and get_close_matches(prefix, ["delta"], 1, 0.7):
        return "has a wrong prefix", f"did you mean {settable[DELTA + rest]}?"
    if "." not in key and get_close_matches(folded, ["contents"], 1, 0.8):
        return (
            "is nearly contents, which says where the rows come from",
            f"did you mean contents? A property of your own has a prefix, such as my.{key}",
        )
    return None


def _clashes(values: Mapping[str, str]) -> Iterator[_Clash]:
    """Properties that Delta refuses beside each other."""
    on = {
        key for key, value in values.items()
        if key.lower() in KNOWN and KNOWN[key.lower()].is_on(value)
    }
    iceberg = sorted(key for key in on if key.startswith(_ICEBERG))
    yield from _clashes_of_iceberg(iceberg, values)
    vectors = "delta.enableDeletionVectors"
    old = [key for key in (*iceberg, _MANIFEST) if key in on and not key.endswith("V3")]
    if vectors in on and old:
        yield vectors, f"cannot be on beside {old[0]}", "keep one of them"
    tracking = "delta.enableRowTracking"
    if _ICEBERG + "V3" in on and tracking in values and tracking not in on:
        yield tracking, f"is off beside {_ICEBERG}V3, which needs it", "leave it out"


def _clashes_of_iceberg(iceberg: Sequence[str], values: Mapping[str, str]) -> Iterator[_Clash]:
    """Versions of Iceberg beside the first, and a table without column mapping."""
    for key in iceberg[1:]:
        yield key, f"cannot be on beside {iceberg[0]}", "keep one of them"
    if iceberg and values.get(MAPPING_MODE) == "none":
        reason = f"is 'none' beside {iceberg[0]}, which needs 'name' or 'id'"
        yield MAPPING_MODE, reason, "leave it out"


def _short_log(values: Mapping[str, str]) -> Iterator[_Clash]:
    """A log that is kept for a shorter time than the files that it names."""
    log, files = (
        seconds_of(values.get(key, default))
        for key, default in ((_LOG_KEPT, "30 days"), (_FILES_KEPT, "7 days"))
    )
    if log is not None and files is not None and log < files:
        key = _LOG_KEPT if _LOG_KEPT in values else _FILES_KEPT
        yield (
            key,
            f"leaves {_LOG_KEPT} ({values.get(_LOG_KEPT, '30 days')}) shorter than {_FILES_KEPT}"
            f" ({values.get(_FILES_KEPT, '7 days')})",
            "make the log's the longer one",
        )


def _stats_columns(
    value: str, columns: Mapping[str, str], partitioned_by: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Columns that Delta keeps no statistics of; of a field the whole column is looked at."""
    types = {name.lower(): type_ for name, type_ in columns.items()}
    by = {name.lower() for name in partitioned_by}
    seen: set[str] = set()
    for written in map(str.strip, _COLUMN.findall(value) if columns else ()):
        first = _PART_OF_COLUMN.match(written)
        if first is None:
            continue
        name = (first[1].replace("``", "`") if first[1] is not None else first[2]).lower()
        whole = first.end() == len(written)
        if name not in types:
            yield f"names {written}, which is no column of the table", "name columns of the table"
        elif name in by:
            yield f"names {written}, which the table is partitioned by", "take it out"
        elif whole and _NO_STATISTICS.match(types[name]):
            yield f"names {written}, of whose type Delta keeps no statistics", "take it out"
        elif written.lower() in seen:
            yield f"names {written} twice", "take one out"
        seen.add(written.lower())
