"""Run by test_on_metastores: an upgrade under users' objects in a session on a metastore.

Argument: a directory with ``settings.json`` (``spark`` and ``metastore`` of the session,
``releases`` by version, ``only`` as of :class:`Users`, ``load`` for the real rows of release 15).
Prints a JSON list a change: what it is, and differences.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from catalog_migrate.engine.spark.session import local_session
from tests.postgres.conftest import Server
from tests.users.postgres_users import Users, tell


def main(home: Path) -> None:
    """All chapters in order."""
    settings = json.loads((home / "settings.json").read_text())
    spark = local_session(
        str(home / "spark"), metastore=settings["metastore"], conf=settings["spark"]
    )
    server = Server(spark, home)
    users = Users(spark, server.catalog, only=settings["only"], rows=settings["load"])
    releases = {int(version): Path(path) for version, path in settings["releases"].items()}
    load = server.load if settings["load"] else lambda: None
    for change, differences in tell(users, releases, (16, 15, 16, 18), load):
        print(json.dumps([change, differences]), flush=True)
    users.forget()
    server.forget()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
