"""``drift``: is Spark's catalog what is committed?"""

from __future__ import annotations

import click

from catalog_migrate.cli.options import (
    catalog_option,
    detailed_option,
    format_option,
    no_input_option,
    settings_of,
    timeout_option,
    yes_option,
)
from catalog_migrate.cli.output import as_columns, as_json, confirm, emit, note
from catalog_migrate.cli.progress import shown
from catalog_migrate.cli.sources import engine_on, local_spark, open_catalog, session_runs


@click.command("drift")
@catalog_option
@click.option("--repair", is_flag=True, help="Mend it; names that are not ours are left alone.")
@timeout_option
@format_option("text", "json")
@detailed_option
@yes_option
@no_input_option
@click.pass_context
def command(
    ctx: click.Context,
    catalog: str | None,
    repair: bool,
    timeout: float | None,
    format_: str,
    detailed_exitcode: bool,
    yes: bool,
    no_input: bool,
) -> int:
    """Compare the names in Spark's catalog with what is committed, and mend them with --repair.

    Of use where names outlive the session (spark.metastore). Exit 2 with --detailed-exitcode when
    something differs and was not mended.

    \b
    Example:
      catalog-migrate drift --catalog catalog --detailed-exitcode
      catalog-migrate drift --catalog catalog --repair --yes
    """
    settings = settings_of(ctx, catalog=catalog, timeout=timeout)
    opened = open_catalog(settings, write=repair)
    if settings.text("spark.metastore") is None and not session_runs():
        return _nothing_can(format_)
    with local_spark(settings) as spark:
        engine = engine_on(spark, settings)
        if not engine.persistent_names:
            return _nothing_can(format_)
        found = opened.drift(engine)
        mended = 0
        if repair and found and confirm(f"Mend {len(found)}?", yes=yes, no_input=no_input):
            with shown() as on_progress:
                mended = opened.repair(
                    engine,
                    timeout=settings.number("bootstrap.timeout") or 0.0,
                    on_progress=on_progress,
                )
            left = opened.drift(engine)
        else:
            left = found
    entries = [
        {"kind": each.kind, "name": each.name, "reason": each.reason, "remedy": each.remedy}
        for each in found
    ]
    if format_ == "json":
        emit(as_json({"drift": entries, "mended": mended, "left": [each.name for each in left]}))
    else:
        rows = [(each["kind"], each["name"], each["reason"]) for each in entries]
        emit(as_columns(rows) if rows else "no drift: every name is what is committed\n")
        if left and not repair:
            emit("next: catalog-migrate drift --repair (names that are not ours are left alone)\n")
        if mended:
            emit(f"mended in {mended} step{'s' if mended != 1 else ''}; {len(left)} left\n")
    return 2 if detailed_exitcode and left else 0


def _nothing_can(format_: str) -> int:
    """Where no name outlives the session there is nothing to compare."""
    note(
        "names end with the session here (spark.metastore is not set): a new session has"
        " none, and every start registers them again"
    )
    nothing = as_json({"drift": [], "mended": 0, "left": []})
    emit(nothing if format_ == "json" else "no names outlive the session: nothing can drift\n")
    return 0
