"""``check``: is this release sound, and would a catalog at the other one take it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from catalog_migrate.api.configured import address_in
from catalog_migrate.api.releases import Check, check_release
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit, note, render_plan
from catalog_migrate.config import Settings
from catalog_migrate.errors import InvalidRelease
from catalog_migrate.model.wording import one_line
from catalog_migrate.report.verdict import exit_code

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.release.release import Release


@click.command("check")
@click.argument("path", required=False)
@options.release
@options.catalog
@click.option(
    "--against", metavar="RELEASE",
    help="The release to come from: git:REF:PATH, a directory, a manifest, or catalog:[URI].",
)
@options.approve
@options.bind
@options.format_("text", "json", "markdown")
@options.out
@options.detailed
def command(
    path: str | None, against: str | None, approve: tuple[str, ...], bind: bool, format_: str,
    out: str | None, detailed_exitcode: bool,
) -> int:
    """Check the release PATH (or --release): every error in it, with file and line.

    It is planned from --against, else on the catalog (given or configured), else from nothing, and
    judged by the policy; with --bind every view is bound by Spark's analyser. Writes nothing.
    Exit 1 for a release with errors, 3 when decisions are missing or the policy refuses, 5 when a
    later release is in force in the catalog.

    \b
    Example:
      catalog-migrate check release
      catalog-migrate check release --against git:origin/main:release --format markdown
    """
    settings = options.settings({"catalog.uri": address_in(against), "release.path": path})
    found = check_release(settings, against=against, approve=approve, bind=bind, on_note=note)
    if isinstance(found, InvalidRelease):
        if format_ == "text":
            raise found
        emit(_refused(found, format_), out)
        return found.exit_code
    emit(_told(found, format_, settings), out)
    return exit_code(found.plan, detailed=detailed_exitcode)


def _told(found: Check, format_: str, settings: Settings) -> str:
    from catalog_migrate.model.wording import counted
    from catalog_migrate.report.verdict import (
        cure,
        decisions,
        failed_proofs,
        incurable,
        unparsed_lines,
        verdict,
    )

    plan, loaded, base = found.plan, found.release, found.base
    if format_ == "markdown":
        return render_plan(plan, "markdown", settings)
    judged = verdict(plan)
    entries = (*incurable(plan), *decisions(plan))
    proofs = [f"{proof.name}: {proof.reason}" for proof in failed_proofs(plan)]
    warnings = [*([] if plan.locks_out is None else [plan.locks_out]), *unparsed_lines(plan)]
    told = [f"{b.name}{'.' + b.column if b.column else ''}: {b.reason}" for b in entries]
    if format_ == "json":
        return as_json({
            "release": loaded.name, "objects": len(loaded.objects), "against": base,
            "bound": plan.bound, "verdict": judged.word,
            "applyable": plan.applyable and plan.fenced_out is None,
            "problems": [*([] if plan.fenced_out is None else [plan.fenced_out]), *told, *proofs],
            "blocked": [
                {"name": b.name, "column": b.column, "code": b.code, "reason": b.reason,
                 "remedy": b.remedy, **_place(loaded, b.name)}
                for b in entries
            ],
            "warnings": warnings,
        })
    lines = [
        f"release {loaded.name}: {counted(len(loaded.objects), 'object')}, no errors",
        f"against {base}: {judged.line}",
        *_final(plan),
        "bound" if plan.bound else "not bound: check --bind tries every view with Spark",
        *(
            line
            for trouble, entry in zip(told, entries, strict=True)
            for line in (f"  {trouble}", f"    {cure(entry)}: {entry.remedy}")
        ),
        *(f"  {proof}" for proof in proofs),
        *(f"warning: {line}" for line in warnings),
    ]
    return "\n".join(map(one_line, lines)) + "\n"


def _final(plan: Plan) -> list[str]:
    """The columns that no rollback brings back once the plan is committed."""
    point = plan.point_of_no_return
    if point is None or point.after != "commit":
        return []
    return [f"Point of no return: {', '.join(point.names)}"]


def _place(loaded: Release, name: str) -> dict[str, object]:
    """File and line of an object in the release, for annotations; empty for one that is gone."""
    for identity, definition in loaded.by_identity.items():
        if str(definition.key) == name and identity in loaded.places:
            place = loaded.places[identity]
            return {"file": place.file, "line": place.line}
    return {}


def _refused(error: InvalidRelease, format_: str) -> str:
    """A release with errors, for programs or a comment."""
    if format_ == "json":
        return as_json({
            "verdict": "INVALID", "applyable": False, "reason": error.message,
            "remedy": error.remedy,
            "problems": [
                {"code": p.code, "message": p.message, "file": p.file, "line": p.line,
                 "column": p.column, "remedy": p.remedy}
                for p in error.problems
            ],
        })
    from catalog_migrate.report.layouts import problems_in_markdown

    return problems_in_markdown(error)
