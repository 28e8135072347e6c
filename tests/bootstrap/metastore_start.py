"""Run by test_metastore: starts twice on a Derby metastore, then loses a name and mends it.

Arguments: a working directory and a release directory. Prints one JSON object.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from catalog_migrate.bootstrap import bootstrap
from catalog_migrate.cli.main import main as command_line
from catalog_migrate.engine.spark.session import local_session


def main(home: Path, release: Path) -> None:
    """One start, then one that finds nothing to do, with the Spark jobs of each counted.

    Then a view is dropped behind our back: ``drift`` is asked before, while and after mending.
    """
    spark = local_session(warehouse_dir=str(home / "spark"), metastore=str(home / "metastore"))
    context = spark.sparkContext
    tracker = context.statusTracker()
    outcomes, jobs, names = [], [], []
    for group in ("first", "second"):
        before = set(tracker.getJobIdsForGroup(None))
        context.setJobGroup(group, group)
        report = bootstrap(spark, release=release, catalog=home / "catalog")
        after = set(tracker.getJobIdsForGroup(None)) | set(tracker.getJobIdsForGroup(group))
        outcomes.append(report.outcome)
        jobs.append(len(after - before))
        names.append(report.names)
    rows = spark.sql("SELECT count(*) FROM meta.v").collect()[0][0]
    counted = len(tracker.getJobIdsForGroup("second"))
    spark.sql("DROP VIEW meta.v")
    spark.sql("CREATE VIEW meta.theirs AS SELECT 42 AS answer")
    drift = []
    for flags in (["--detailed-exitcode"], ["--repair", "--yes"], ["--detailed-exitcode"]):
        said = io.StringIO()
        with redirect_stdout(said):
            code = command_line(["drift", "--catalog", str(home / "catalog"), *flags])
        drift.append([code, said.getvalue()])
    standing = sorted(row.tableName for row in spark.sql("SHOW TABLES IN meta").collect())
    print(
        json.dumps(
            {
                "outcomes": outcomes,
                "jobs": jobs,
                "names": names,
                "rows": rows,
                "counts_jobs": counted > 0,
                "drift": drift,
                "standing": standing,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
