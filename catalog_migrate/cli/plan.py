"""``plan``: what applying a release to the catalog would do."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from catalog_migrate.cli.approval import note_unmet
from catalog_migrate.cli.options import (
    approve_option,
    bind_option,
    catalog_option,
    detailed_option,
    downgrade_option,
    format_option,
    out_option,
    release_option,
    settings_of,
    warehouse_option,
)
from catalog_migrate.cli.output import REPORT_FORMATS, emit_plan, note, plan_exit
from catalog_migrate.cli.sources import (
    engine_on,
    local_spark,
    open_catalog,
    read_release,
    refuse_other_warehouse,
    release_outline,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import CatalogExported, CatalogMoved, CatalogNotFound
from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from catalog_migrate.api import Catalog
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.planner.migration import Migration
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.release.release import Release


@click.command("plan")
@catalog_option
@warehouse_option
@release_option
@approve_option
@bind_option
@downgrade_option
@format_option(*REPORT_FORMATS)
@out_option
@detailed_option
@click.pass_context
def command(
    ctx: click.Context,
    catalog: str | None,
    warehouse: str | None,
    release: str | None,
    approve: tuple[str, ...],
    bind: bool,
    allow_downgrade: bool,
    format_: str,
    out: str | None,
    detailed_exitcode: bool,
) -> int:
    """Say what applying a release would do. Writes nothing; starts Spark only with --bind.

    --out FILE saves the plan for `apply FILE`, blocked or not. Exit 3 when it may not be applied, 5
    when a later release is in force and neither --allow-downgrade nor the policy lets it go back.

    \b
    Example:
      catalog-migrate plan --catalog catalog --release release --out plan.json
    """
    settings = settings_of(ctx, catalog=catalog, warehouse=warehouse, release=release)
    plan = make_plan(settings, approve, bind=bind, allow_downgrade=allow_downgrade)
    note_unmet(plan, approve)
    emit_plan(plan, format_, settings, out)
    return plan_exit(plan, detailed=detailed_exitcode)


def make_plan(
    settings: Settings, approve: Collection[str], *, bind: bool = False,
    allow_downgrade: bool = False,
) -> Plan:
    """The plan for the configured release on the configured catalog, which need not exist yet.

    It says what `apply` would do, which may go back where ``allow_downgrade`` or a rule lets it.
    """
    outline = None if approve or bind else release_outline(settings)
    loaded = None if outline is not None else read_release(settings)
    try:
        opened = open_catalog(settings)
    except CatalogNotFound:
        from catalog_migrate.planner.baseline import Baseline
        from catalog_migrate.planner.plan_validation import with_bodies
        from catalog_migrate.planner.planning import plan_migration

        note(f"there is no catalog at {settings.text('catalog.uri')} yet; applying creates it")
        loaded = loaded or read_release(settings)
        migration = with_bodies(
            plan_migration(
                Baseline.empty(), loaded, approve=approve, policy=Policy(rules=settings.policy)
            ),
            loaded, views=not bind,
        )
        if not bind:
            return migration.plan
        with local_spark(settings) as spark:
            return bound(migration, engine_on(spark, settings))
    refuse_other_warehouse(opened, settings)
    known = None if outline is None else opened.plan_in_force(outline)
    if known is not None:
        return known
    loaded = loaded or read_release(settings)
    policy = applying_policy(settings, loaded, allow_downgrade=allow_downgrade)
    migration = opened.migration(loaded, approve=approve, policy=policy, views=not bind)
    if migration.plan.fenced_out is None:
        _note_refused(opened, loaded, settings)
    if not bind:
        return migration.plan
    with local_spark(settings) as spark:
        return opened.bind(migration, engine_on(spark, settings))


def applying_policy(settings: Settings, release: Release, *, allow_downgrade: bool) -> Policy:
    """The policy of `apply`: it goes back where the flag or a rule of the configuration lets it."""
    may_go_back = Policy(rules=settings.policy).says("allow", "downgrade", release.name)
    return Policy(allow_downgrade=allow_downgrade or may_go_back, rules=settings.policy)


def _note_refused(opened: Catalog, release: Release, settings: Settings) -> None:
    """Say that no start does what this plan says: only `apply` goes back, or nothing does."""
    from catalog_migrate.catalog.in_use import require_in_use
    from catalog_migrate.planner.fencing import fenced_out

    state = opened.state()
    refusal = fenced_out(state, release, Policy(rules=settings.policy))
    if refusal is not None:
        note(f"{refusal}: a start with it does nothing (exit 5), `apply` goes back to it")
    try:
        require_in_use(state, opened.log)
    except (CatalogExported, CatalogMoved) as error:
        note(
            f"{error.message}; every start is refused ({error.code}) until this is done:"
            f" {error.remedy}"
        )


def bound(migration: Migration, engine: Engine) -> Plan:
    """The plan with every view bound against stand-ins, where there is no catalog."""
    from catalog_migrate.reconciler.prepare import bind_requests, blocked_by

    return blocked_by(list(engine.bind(bind_requests(migration))), migration).plan
