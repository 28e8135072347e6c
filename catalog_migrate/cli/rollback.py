"""``rollback``: back to what an earlier serial had, as a plan that is shown, asked for, applied."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from catalog_migrate.cli.approval import approved, note_unmet
from catalog_migrate.cli.options import (
    approve_option,
    catalog_option,
    format_option,
    need,
    no_input_option,
    out_option,
    settings_of,
    timeout_option,
    yes_option,
)
from catalog_migrate.cli.output import REPORT_FORMATS, as_json, emit_plan, plan_exit
from catalog_migrate.cli.progress import shown
from catalog_migrate.cli.sources import local_spark, open_catalog, threads_of
from catalog_migrate.config import Settings
from catalog_migrate.errors import FencedOut
from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan


@click.command("rollback")
@catalog_option
@click.option(
    "--to", type=click.IntRange(min=0), metavar="SERIAL",
    help="The serial to go back to (see history). Default: before the newest migration.",
)
@approve_option
@click.option("--plan", "only_plan", is_flag=True, help="Only say what it would do.")
@out_option
@timeout_option
@format_option(*REPORT_FORMATS)
@yes_option
@no_input_option
@click.pass_context
def command(
    ctx: click.Context, catalog: str | None, to: int | None, approve: tuple[str, ...],
    only_plan: bool, out: str | None, timeout: float | None, format_: str, yes: bool,
    no_input: bool,
) -> int:
    """Bring back the release of an earlier serial: its names, columns and rows.

    Rows written since are carried back where the old columns hold them. With --plan or --out FILE
    nothing is changed: `apply FILE` carries a saved plan out. Exit 3 when rows would be lost
    without an approval, when what is needed was deleted by retention, or when a column that the
    serial has was dropped in place since (CM0340: no approval helps; docs/runbooks/rollback.md).

    \b
    Example:
      catalog-migrate rollback --plan --catalog catalog
      catalog-migrate rollback --to 3 --out back.json --catalog catalog
      catalog-migrate apply back.json --catalog catalog --yes
    """
    settings = settings_of(ctx, catalog=catalog, timeout=timeout)
    plan = open_catalog(settings).plan_rollback(
        to, approve=approve, policy=Policy(rules=settings.policy)
    )
    note_unmet(plan, approve)
    if only_plan or out is not None:
        emit_plan(plan, format_, settings, out)
        return plan_exit(plan, detailed=False)
    return approve_and_carry_out(settings, plan, format_, yes=yes, no_input=no_input)


def approve_and_carry_out(
    settings: Settings, plan: Plan, format_: str, *, yes: bool, no_input: bool
) -> int:
    """Ask for the plan of a rollback, carry it out on a local session, print what was done."""
    from catalog_migrate.cli.hook import sentence, summary
    from catalog_migrate.rollback import rollback

    if plan.fenced_out is not None:
        raise _refused(plan.fenced_out)
    if not approved(
        plan, settings, format_, question="Roll back?", yes=yes, no_input=no_input,
        remedy="approve what the report lists at `rollback`, or choose another serial",
    ):
        return 1
    with local_spark(settings) as spark, shown() as on_progress:
        report = rollback(
            spark, catalog=need(settings, "catalog.uri", "--catalog URI"), plan=plan,
            policy=Policy(rules=settings.policy),
            timeout=settings.number("bootstrap.timeout"), on_progress=on_progress,
            threads=threads_of(settings), storage_options=settings.storage.options(),
        )
    if report.outcome == "fenced_out":
        raise _refused(report.reason or "a rule of the policy refuses to go back")
    sys.stdout.write(as_json(summary(report)) if format_ == "json" else sentence(report))
    return 0


def _refused(reason: str) -> FencedOut:
    return FencedOut(reason, remedy="have the rule changed by whoever keeps it")
