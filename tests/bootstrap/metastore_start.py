"""Run by test_metastore: starts twice on a Derby metastore and prints what the second one cost.

Arguments: a working directory and a release directory. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from catalog_migrate.bootstrap import bootstrap
from catalog_migrate.engine.spark.session import local_session


def main(home: Path, release: Path) -> None:
    """One start, then one that finds nothing to do, with the Spark jobs of each counted."""
    spark = local_session(
        warehouse_dir=str(home / "spark"), metastore=str(home / "metastore")
    )
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
    print(json.dumps({"outcomes": outcomes, "jobs": jobs, "names": names, "rows": rows,
                      "counts_jobs": counted > 0}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
