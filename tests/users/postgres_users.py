"""Users' views and functions over PostgreSQL's catalog (``postgres/*.sql``), through its releases.

What a plan says of each beforehand is compared with what Spark gives afterwards: by
:meth:`Users.follow` for one change, by :func:`tell` for upgrades and a rollback between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from catalog_migrate.api import Catalog
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.policy import Policy
from tests.postgres.conftest import drop_schema
from tests.users.truth import UNCLEAR, Name, Truth, differences, look, statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.planner.plan import UserObject

FILES = Path(__file__).with_name("postgres")
SCHEMAS = ("team", "2nd")
TWELVE = (
    "team.all_default", "team.all_evolving", "team.all_typed", "team.all_bound", "team.all_but",
    "team.some_typed", "team.some_bound", "team.evolving_above", "team.subscriptions_bound",
    "team.streaming", "team.members", "team.granted", "team.io", "team.narrow", "team.streams",
    "team.columns_of",
)
"""Fourteen views and two functions that read what :func:`tests.crash.conftest.reduced` keeps."""
FIVE = (
    "team.all_default", "team.all_evolving", "team.subscriptions_bound", "team.members",
    "team.granted", "team.columns_of",
)
"""Five of those views, and a function."""


SPELT = "team.unparsable"
"""The view that names a table by an expression."""


class Users:
    """What the files make in a session; ``only`` names the views and functions that are made."""

    def __init__(
        self, spark: SparkSession, catalog: Path, *, only: Collection[str] | None = None,
        rows: bool = False,
    ) -> None:
        self.spark, self.catalog, self.only, self.rows = spark, catalog, only, rows
        self.broken_by: dict[str, str] = {}
        """The release by which each was broken that is broken now."""
        self._now: dict[Name, Truth] | None = None

    def create(self, *files: str) -> None:
        """Run the statements of files."""
        for file in files:
            for statement in statements(FILES / f"{file}.sql"):
                made = re.match(r"CREATE (?:VIEW|FUNCTION) ([^\s(]+)", statement)
                if self.only is None or made is None or made[1] in self.only:
                    self.spark.sql(statement)
        self._now = None

    def look(self) -> dict[Name, Truth]:
        """What Spark gives of each now."""
        return look(self.spark, SCHEMAS, rows=self.rows)

    def forget(self) -> None:
        """Drop all of them."""
        for schema in SCHEMAS:
            drop_schema(self.spark, schema)

    def follow(
        self, change: Callable[[], BootstrapReport],
        say: Callable[[], Iterable[UserObject]] | None = None,
    ) -> list[str]:
        """Have something changed; where what was said of it beforehand is not what is then.

        A start says it before its commit; ``say`` is a plan, which has to say the same.
        """
        before = self._now or self.look()
        said = None if say is None else tuple(say())
        report = change()
        after = self._now = self.look()
        assert report.plan is not None
        told = report.plan.users or ()
        found = differences(told, before, after)
        found += (
            f"{each.name} is unclear" for each in told
            if each.reason == UNCLEAR and each.name != SPELT
        )
        if said is not None and said != tuple(report.plan.users or ()):
            found.append(f"the plan said {said}, the start {report.plan.users}")
        return [*found, *self._records(report, after)]

    def _records(self, report: BootstrapReport, after: dict[Name, Truth]) -> list[str]:
        """Where status and report of a start do not list exactly what is broken now."""
        conditions = {f"{kind} {name}": truth.condition for (kind, name), truth in after.items()}
        broken = {name: each for name, each in conditions.items() if each is not None}
        self.broken_by = {
            name: self.broken_by.get(name, report.release) for name in broken
        }
        if not SparkEngine(self.spark).persistent_names:  # such names are on no record
            return _unreported(report, broken)
        records = Catalog.open(self.catalog).status().users
        on_record = {f"{each.kind} {each.key.item_name}": each for each in records}
        found = [
            f"status has {name} as {each.state}, {each.condition}, by {each.release}"
            for name, each in on_record.items()
            if (each.state, each.condition) != ("broken", broken.get(name))
            or each.release != self.broken_by[name]
        ]
        found += [f"status lacks {name}" for name in broken.keys() - on_record.keys()]
        return [*found, *_unreported(report, broken)]


def _unreported(report: BootstrapReport, broken: Iterable[str]) -> list[str]:
    return [
        f"the start's report lacks {name}" for name in broken
        if not any(name.split(" ", 1)[1] in line for line in report.outstanding)
    ]


def tell(
    users: Users, releases: Mapping[int, Path], course: Sequence[int],
    load: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, list[str]]]:
    """PostgreSQL 15 with users' objects, then the releases of ``course``: each change, and where
    what was said of it is not what is.

    An earlier release is gone back to by a rollback. ``load`` brings rows in.
    """
    from catalog_migrate.hook import bootstrap, rollback

    def start(version: int) -> BootstrapReport:
        return bootstrap(
            users.spark, release=releases[version], catalog=users.catalog, session=False,
            policy=Policy(allow_downgrade=True),  # 16 comes twice
        )

    def go_back(serial: int) -> BootstrapReport:
        plan = Catalog.open(users.catalog).plan_rollback(serial)
        approve = [one.remedy.removeprefix("--approve ") for one in plan.blocked]
        return rollback(users.spark, catalog=users.catalog, to=serial, approve=approve)

    assert start(15).outcome == "initialized"
    load()
    users.create("own", "views")
    serials: dict[int, int] = {}
    version = 15
    for following in course:
        first = following not in serials
        serials.setdefault(version, Catalog.open(users.catalog).state().serial)
        if following < version:
            found = users.follow(partial(go_back, serials[following]))
        else:
            found = users.follow(
                partial(start, following),
                partial(plan_of, users.spark, users.catalog, releases[following]),
            )
        yield f"{version} to {following}", found
        if following == 16 and first:
            users.create("with_16")
        version = following


def plan_of(spark: SparkSession, catalog: Path, release: Path) -> tuple[UserObject, ...]:
    """What ``plan --bind`` says of users' objects."""
    opened = Catalog.open(catalog)
    plan = opened.bind(opened.migration(release, views=False), SparkEngine(spark))
    return tuple(plan.users)
