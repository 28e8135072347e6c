"""``check``: is this release sound, and would this catalog take it?"""

from __future__ import annotations

import click

from catalog_migrate.cli.options import (
    approve_option,
    bind_option,
    catalog_option,
    format_option,
    release_option,
    settings_of,
)
from catalog_migrate.cli.output import as_json, emit, plan_exit
from catalog_migrate.cli.sources import engine_on, local_spark, read_release
from catalog_migrate.policy import Policy


@click.command("check")
@click.argument("path", required=False)
@release_option
@catalog_option
@approve_option
@bind_option
@format_option("text", "json")
@click.pass_context
def command(
    ctx: click.Context,
    path: str | None,
    release: str | None,
    catalog: str | None,
    approve: tuple[str, ...],
    bind: bool,
    format_: str,
) -> int:
    """Check the release PATH (or --release): every error in it, with file and line.

    With a catalog (given or configured) it is planned against it as well; with --bind every view
    is proven with Spark's analyser. Writes nothing. Exit 3 when the catalog would refuse it.

    \b
    Example:
      catalog-migrate check release
      catalog-migrate check release --catalog catalog --bind
    """
    from catalog_migrate.cli.plan import make_plan, proven
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.planning import plan_migration
    from catalog_migrate.report.verdict import (
        counted,
        decisions,
        failed_proofs,
        incurable,
        verdict,
    )

    settings = settings_of(ctx, catalog=catalog, release=path or release)
    loaded = read_release(settings)
    if settings.text("catalog.uri") is not None:
        plan = make_plan(settings, approve, bind=bind)
        against = "the catalog"
    else:
        migration = plan_migration(
            Baseline.empty(), loaded, approve=approve, policy=Policy(rules=settings.policy)
        )
        plan = migration.plan
        against = "an empty catalog"
        if bind:
            with local_spark(settings) as spark:
                plan = proven(migration, engine_on(spark, settings))
    found = verdict(plan)
    troubles = [
        *(f"{b.name}{'.' + b.column if b.column else ''}: {b.reason}"
          for b in (*incurable(plan), *decisions(plan))),
        *(f"{proof.name}: {proof.reason}" for proof in failed_proofs(plan)),
    ]
    if format_ == "json":
        emit(as_json({
            "release": loaded.name, "objects": len(loaded.objects), "bound": plan.bound,
            "verdict": found.word, "applyable": plan.applyable, "problems": troubles,
        }))
    else:
        lines = [
            f"release {loaded.name}: {counted(len(loaded.objects), 'object')}, no errors",
            f"against {against}: {found.line}",
            "bound" if plan.bound else "not bound: check --bind tries every view with Spark",
            *(f"  {trouble}" for trouble in troubles),
        ]
        emit("\n".join(lines) + "\n")
    return plan_exit(plan, detailed=False)
