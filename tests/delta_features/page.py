"""docs/delta-features.md, from what was found when each act was tried on each table.

``python -m tests.delta_features.page --write`` tries them all on real Spark (some ten minutes), and
writes what it found beside this file, and the page. A trial that fails ends it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from catalog_migrate.model.table_features import COORDINATED
from tests.delta_features.variants import VARIANTS

RECORDED = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parents[2] / "docs" / "delta-features.md"

_HEAD = """\
# Delta features of tables

What is done to a table that has one of Delta's table features, whoever gave it that: a release, a
user's ALTER, or the platform that made it.
Written by `make delta-features`, which tries every cell on Spark with rows, some of them deleted;
a test refuses a page that differs from what was found.

Rows are counted by the log alone: `numRecords` of each file, less what deletion vectors delete. No
Spark job runs for that; where a file has no statistics Spark counts.

"""
_BEHIND = """
*evolve*: a column and comments come in place, in one commit. *seal*: rows are read, and every
INSERT, UPDATE and MERGE fails; *unseal*: the table takes rows again. *stream into*: a query
appends, is barred and followed by another. *stream out of*: a query reads across a commit of this
tool. *copy*: a column gets another type, and the rows go into a new table. *roll back*: the old
columns are back, with the rows that came since.

A copy has what the release says of the table. A feature that a user's ALTER gave the old table is
not carried over; set its property in the release ([release format](release-format.md)).

A table that was adopted with `CLUSTER BY` keeps its clustering. With the same `CLUSTER BY` in the
release nothing changes; with another one, or one that goes, the table is copied.

## Tables that are refused

Under a feature that this version does not know nothing is committed to a table. `plan`, `check`
and every start say so before anything is done (`CM0336`), for tables that the release changes;
adoption does (`CM0815`); whatever else meets one does (`CM0406`). The message names the feature and
what to do: `ALTER TABLE … DROP FEATURE`, or a copy of the rows in a table without it.

Tables whose commits go through a catalog service (COORDINATED)
are refused plainly: what is written to their log by path is no part of the table.

`collations` cannot be made on this Spark; a log with it that is written by hand is sealed and
counted as every other.
"""


def page(recorded: Mapping[str, Sequence[str]]) -> str:
    """The page for what was found: by variant, the acts that went through."""
    from tests.delta_features.trial import ACTS

    lines = [f"| table | {' | '.join(ACTS)} |", "|---" * (len(ACTS) + 1) + "|"]
    for name in VARIANTS:
        cells = ("yes" if act in recorded[name] else "no" for act in ACTS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    names = ", ".join(f"`{name}`" for name in sorted(COORDINATED))
    return _HEAD + "\n".join(lines) + "\n" + _BEHIND.replace("COORDINATED", names)


def main() -> None:
    """Try every act on every table, and write what was found."""
    from catalog_migrate.engine.spark.session import local_session
    from tests.delta_features.trial import STEPS, Trial

    recorded: dict[str, list[str]] = {}
    with TemporaryDirectory() as base:
        spark = local_session(f"{base}/warehouse", conf={"spark.master": "local[2]"})
        for number, (name, variant) in enumerate(VARIANTS.items()):
            home = Path(base) / str(number)
            home.mkdir()
            trial = Trial(spark, home, f"features{number}", {name: variant})
            for act in STEPS.values():
                act(trial)
            trial.forget()
            recorded[name] = [each for acts in STEPS for each in acts.split(", ")]
            print(name, file=sys.stderr, flush=True)
        spark.stop()
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(recorded), encoding="utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    main()
