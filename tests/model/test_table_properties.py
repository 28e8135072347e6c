"""Properties that Delta knows: values, faults, and what a change of each takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog_migrate.model.table_properties import (
    FEATURE,
    KNOWN,
    MAPPING_MODE,
    canonical_key,
    change_of,
    faults_of,
    features_of,
    is_made_by_spark,
    seconds_of,
)

_CHANGES = {
    "metadata": "in place, its metadata alone",
    "spark": "in place, by Delta's ALTER TABLE",
    "copy": "copy into a new table",
}


def markdown_table() -> str:
    """The documentation of the properties that a release can set, as a markdown table."""
    lines = ["| Property | Values | Brings | On a table with rows |", "|---|---|---|---|"]
    for known in sorted(KNOWN.values(), key=lambda each: each.key.lower()):
        if known.instead is not None:
            continue
        values = re.findall(r"'([^']*)'", known.values.text)
        on = next((value for value in values if known.is_on(value)), "1")
        changes = _CHANGES[change_of(known.key, None, on)]
        if known.key == MAPPING_MODE:
            changes += " (from `none` to `name`); else copy into a new table"
        brings = ", ".join(f"`{feature}`" for feature in known.features)
        lines.append(f"| `{known.key}` | {known.values.text} | {brings} | {changes} |")
    lines += [
        f"| `{FEATURE}<name>` | 'supported' | the feature of that name | {_CHANGES['spark']} |",
        f"| `delta.universalFormat.config.*` | any |  | {_CHANGES['metadata']} |",
    ]
    return "\n".join(lines) + "\n"


def test_the_documentation_is_the_table() -> None:
    """docs/release-format.md has the table of properties as the code has it."""
    docs = Path(__file__).parents[2] / "docs" / "release-format.md"
    assert "\n\n" + markdown_table() + "\n" in docs.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3 days", 259_200), ("INTERVAL 1 WEEK 2 days", 777_600), (" 3 day ", 259_200),
        ("1 day -2 hours", 79_200), ("1.5 seconds", 1.5), ("+ 3 days", 259_200), ("0 hours", 0),
        ("abc", None), ("3days", None), ("1 month", None), ("-1 days", None), ("1.5 days", None),
        ("interval", None), ("", None), ("3", None), ("1 week2 days", None), ("3 days,", None),
    ],
)
def test_durations_are_read_as_delta_does(value: str, seconds: float | None) -> None:
    """Weeks to microseconds, in sum not below zero; months and years are none."""
    assert seconds_of(value) == seconds


@pytest.mark.parametrize(
    ("properties", "faults"),
    [
        ({"delta.appendOnly": "TRUE", "my.prop": "x", "team": "a", "delta.checkpointInterval": "5",
          "DELTA.LogRetentionDuration": "interval 40 days", "delta.columnMapping.mode": "id",
          "delta.feature.rowTracking": "supported", "delta.dataSkippingStatsColumns": "ID, `a`"},
         []),
        ({"delta.logRetentionDuration": "abc"},
         [("delta.logRetentionDuration",
           "takes a duration in weeks, days or less, such as '30 days'",
           "correct the value, or leave the property out")]),
        ({"delta.enableChangeDataFeeed": "true"},
         [("delta.enableChangeDataFeeed", "is no property that Delta knows",
           "did you mean delta.enableChangeDataFeed?")]),
        ({"delta.mine": "1"},
         [("delta.mine", "is no property that Delta knows",
           "leave it out, or allow it by a rule of the policy: risk = \"unknown_property\","
           ' name = "delta.mine"')]),
        ({"content": "derived"},
         [("content", "is nearly contents, which says where the rows come from",
           "did you mean contents? A property of your own has a prefix, such as my.content")]),
        ({"appendOnly": "true"}, [("appendOnly", "lacks its prefix",
                                   "did you mean delta.appendOnly?")]),
        ({"detla.appendOnly": "true"}, [("detla.appendOnly", "has a wrong prefix",
                                         "did you mean delta.appendOnly?")]),
        ({"delta.constraints.c": "id > 0"},
         [("delta.constraints.c", "cannot be set as a property",
           "write CONSTRAINT name CHECK (…) in the list of columns")]),
        ({"delta.minReaderVersion": "3"},
         [("delta.minReaderVersion", "cannot be set as a property",
           "write delta.feature.<name> = 'supported', or the property that brings the feature:"
           " Delta sets the versions")]),
        ({"delta.feature.X": "supported", "delta.feature.rowTraking": "supported"},
         [("delta.feature.X", "names no table feature that a release can ask for", None),
          ("delta.feature.rowTraking", "names no table feature that a release can ask for",
           "did you mean delta.feature.rowTracking?")]),
        ({"delta.feature.rowTracking": "yes"},
         [("delta.feature.rowTracking", "takes 'supported'",
           "correct the value, or leave the property out")]),
        ({"delta.feature.clustering": "supported"},
         [("delta.feature.clustering", "cannot be set as a property",
           "write CLUSTER BY (…) behind the list of columns")]),
        ({"catalog_migrate.id": "x"},
         [("catalog_migrate.id", "cannot be set as a property",
           "write another prefix: this one marks the tables of catalog-migrate")]),
        ({"Location": "/x"}, [("Location", "is reserved by Spark",
                               "write nothing: every table gets a directory of its own")]),
        ({"delta.appendOnly": "true", "DELTA.APPENDONLY": "false"},
         [("DELTA.APPENDONLY", "is delta.appendOnly written otherwise",
           "keep one: Delta's keys compare without case")]),
        ({"delta.logRetentionDuration": "3 days"},
         [("delta.logRetentionDuration",
           "leaves delta.logRetentionDuration (3 days) shorter than"
           " delta.deletedFileRetentionDuration (7 days)", "make the log's the longer one")]),
        ({"delta.enableIcebergCompatV2": "true", "delta.enableDeletionVectors": "true"},
         [("delta.enableDeletionVectors", "cannot be on beside delta.enableIcebergCompatV2",
           "keep one of them")]),
        ({"delta.enableIcebergCompatV1": "true", "delta.enableIcebergCompatV2": "true",
          "delta.columnMapping.mode": "none"},
         [("delta.enableIcebergCompatV2", "cannot be on beside delta.enableIcebergCompatV1",
           "keep one of them"),
          ("delta.columnMapping.mode",
           "is 'none' beside delta.enableIcebergCompatV1, which needs 'name' or 'id'",
           "leave it out")]),
        ({"delta.universalFormat.enabledFormats": "iceberg"},
         [("delta.universalFormat.enabledFormats", "cannot be set as a property",
           "write nothing: without Delta's jars for Iceberg and Hudi the table takes no INSERT")]),
        ({"delta.dataSkippingStatsColumns": "nope, p, flag, id, ID"},
         [("delta.dataSkippingStatsColumns", "names nope, which is no column of the table",
           "name columns of the table"),
          ("delta.dataSkippingStatsColumns", "names p, which the table is partitioned by",
           "take it out"),
          ("delta.dataSkippingStatsColumns", "names flag, of whose type Delta keeps no statistics",
           "take it out"),
          ("delta.dataSkippingStatsColumns", "names ID twice", "take one out")]),
    ],
    ids=lambda value: next(iter(value), "none") if isinstance(value, dict) else "",
)  # fmt: skip
def test_faults(
    properties: dict[str, str], faults: list[tuple[str, str, str | None]]
) -> None:
    """Every wrong key and value, alone and beside each other; a user's own keys pass."""
    columns = {"id": "INT", "a": "STRING", "p": "DATE", "flag": "BOOLEAN"}
    found = faults_of(properties, columns, ["p"])
    assert [(one.key, one.reason) for one in found] == [fault[:2] for fault in faults]
    for one, (_, _, remedy) in zip(found, faults, strict=True):
        assert remedy is None or one.remedy == remedy


def test_keys_are_delta_s_own() -> None:
    """A known key and a known feature get Delta's spelling, others keep theirs."""
    assert canonical_key("DELTA.APPENDonly") == "delta.appendOnly"
    assert canonical_key("Delta.Feature.ROWTRACKING") == "delta.feature.rowTracking"
    assert canonical_key("My.Prop") == "My.Prop"


@pytest.mark.parametrize(
    ("key", "before", "after", "change"),
    [
        ("my.prop", None, "x", "metadata"),
        ("delta.appendOnly", "true", None, "metadata"),
        ("delta.checkpointInterval", None, "5", "metadata"),
        ("delta.enableRowTracking", None, "true", "spark"),
        ("delta.enableRowTracking", "true", None, "spark"),
        ("delta.columnMapping.mode", None, "name", "spark"),
        ("delta.columnMapping.mode", "none", "name", "spark"),
        ("delta.columnMapping.mode", None, "none", "metadata"),
        ("delta.columnMapping.mode", "name", None, "copy"),
        ("delta.columnMapping.mode", None, "id", "copy"),
        ("delta.enableIcebergCompatV2", None, "true", "copy"),
        ("delta.enableIcebergCompatV2", "true", "false", "spark"),
        ("delta.enableIcebergCompatV3", "true", None, "copy"),
        ("delta.enableIcebergCompatV3", "false", None, "spark"),
        ("delta.feature.typeWidening", None, "supported", "spark"),
        ("delta.feature.typeWidening", "supported", None, "metadata"),
    ],
)
def test_what_a_change_takes(
    key: str, before: str | None, after: str | None, change: str
) -> None:
    """A commit of metadata, Delta's ALTER TABLE, or a copy."""
    assert change_of(key, before, after) == change


def test_features_come_with_values() -> None:
    """A property that is off brings nothing, and a feature by name itself."""
    assert features_of("delta.enableRowTracking", "true") == ("rowTracking",)
    assert features_of("delta.enableRowTracking", "false") == ()
    assert features_of("delta.checkpointPolicy", "classic") == ()
    assert features_of("delta.feature.rowtracking", "supported") == ("rowTracking",)
    assert features_of("delta.feature.rowTracking", None) == ()
    assert features_of("my.prop", "true") == ()
    assert not is_made_by_spark({"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"})
    assert not is_made_by_spark({"delta.enableRowTracking": "false", "my.prop": "true"})
    assert is_made_by_spark({"delta.enableRowTracking": "true"})
    assert is_made_by_spark({"delta.feature.typeWidening": "supported"})
