"""Running the start-up hook from the command line: progress, outcome, and a blocked plan told."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

from catalog_migrate.cli.options import need
from catalog_migrate.cli.output import as_json, render_plan
from catalog_migrate.cli.progress import shown
from catalog_migrate.cli.sources import local_spark, threads_of
from catalog_migrate.config import Settings
from catalog_migrate.errors import CatalogNotFound, FencedOut, MigrationBlocked
from catalog_migrate.model.wording import visible

if TYPE_CHECKING:
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.policy import Policy
    from catalog_migrate.release.release import Release


def run_hook(
    settings: Settings,
    release: Release,
    *,
    format_: str,
    approve: Collection[str] = (),
    plan: Plan | None = None,
    read_only: bool = False,
    policy: Policy | None = None,
) -> BootstrapReport:
    """Call ``bootstrap`` on a local session and print what it did.

    ``policy`` is the configuration's when it is not given. A blocked plan is printed before
    MigrationBlocked goes on; a later release in force is raised as FencedOut, because a command
    that was told to apply did not.
    """
    from catalog_migrate.catalog.store import open_log
    from catalog_migrate.hook import bootstrap
    from catalog_migrate.policy import Policy

    policy = policy or Policy(rules=settings.policy)
    uri = need(settings, "catalog.uri", "--catalog URI")
    open_log(uri, settings.storage).exists()  # what is no catalog is told before Spark starts
    try:
        with local_spark(settings) as spark, shown() as on_progress:
            report = bootstrap(
                spark,
                release=release,
                catalog=uri,
                warehouse=settings.text("catalog.warehouse"),
                policy=policy,
                approve=approve,
                plan=plan,
                read_only=read_only,
                timeout=settings.number("bootstrap.timeout"),
                on_progress=on_progress,
                threads=threads_of(settings),
                session=False,
                storage_options=settings.storage.options(),
            )
    except MigrationBlocked as error:
        if error.plan is not None:
            sys.stdout.write(render_plan(error.plan, format_, settings))
        raise
    if report.outcome == "fenced_out":
        reason = report.reason or f"a later release than {release.name} is in force"
        raise _fenced_out(reason, release, policy)
    sys.stdout.write(as_json(summary(report)) if format_ == "json" else sentence(report))
    return report


def refuse_fenced_out(settings: Settings, release: Release, policy: Policy) -> None:
    """Raise FencedOut as a start would, before Spark is started and anybody is asked."""
    from catalog_migrate.cli.sources import open_catalog
    from catalog_migrate.planner.fencing import fenced_out

    try:
        state = open_catalog(settings).state()
    except CatalogNotFound:
        return
    refusal = fenced_out(state, release, policy)
    if refusal is not None:
        raise _fenced_out(refusal, release, policy)


def _fenced_out(reason: str, release: Release, policy: Policy) -> FencedOut:
    way = "to bring this one in force again: catalog-migrate apply --allow-downgrade"
    if policy.says("refuse", "downgrade", release.name):
        way = "to go back, have the rule changed by whoever keeps it"
    return FencedOut(
        reason, remedy=f"start the software of the release that is in force; {way}"
    )


def summary(report: BootstrapReport) -> dict[str, object]:
    """What a start did, for programs."""
    return {
        "outcome": report.outcome,
        "release": report.release,
        "serial": report.serial,
        "rows_copied": report.rows_copied,
        "names": report.names,
        "unfilled": list(report.unfilled),
        "outstanding": list(report.outstanding),
        "summary": dict(report.plan.summary) if report.plan is not None else {},
    }


def sentence(report: BootstrapReport) -> str:
    """What a start did, for people."""
    from catalog_migrate.model.wording import counted
    from catalog_migrate.report.verdict import change_counts

    lines = [f"{report.outcome}: release {report.release}, serial {report.serial}"]
    if report.plan is not None and not report.plan.is_empty:
        lines.append(f"  {change_counts(report.plan)}")
    if report.rows_copied:
        lines.append(f"  {counted(report.rows_copied, 'row')} copied")
    if report.unfilled:
        lines.append(
            f"  {counted(len(report.unfilled), 'derived table')} still to be filled:"
            f" {', '.join(report.unfilled)}"
        )
    if report.outstanding:
        lines.append("  not done for users' objects; the software runs without it:")
        lines += [f"    {each}" for each in report.outstanding]
    return visible("\n".join(lines)) + "\n"
