"""What a release is and would do; a start on a local session, forward or back.

``plan``, ``check``, ``diff``, ``release compile``; ``apply``, ``bootstrap``, ``rollback``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, to_builtins

from catalog_migrate.api.configured import address_in
from catalog_migrate.api.releases import (
    Check,
    check_release,
    column_lists,
    compare_releases,
    compile_manifest,
    manifest_path,
    plan_release,
    plan_rollback,
    require_fresh,
)
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import (
    as_json,
    asking,
    emit,
    emit_plan,
    emit_start,
    form_of,
    note,
    pick,
    print_blocked_plan,
    render_plan,
    save,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import InvalidRelease, UsageError
from catalog_migrate.model.wording import list_first, one_line
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Blocked, Plan
    from catalog_migrate.release.release import Release


@click.command("plan")
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.bind
@options.downgrade
@click.option("--show", "saved", metavar="PLAN", type=click.Path(dir_okay=False),
              help="Report this saved plan as it was made; needs neither catalog nor release.")
@options.format_(*FORMATS)
@options.out
@options.detailed
def plan(
    approve: tuple[str, ...], bind: bool, allow_downgrade: bool, saved: str | None, format_: str,
    out: str | None, detailed_exitcode: bool,
) -> int:
    """Say what applying a release would do. Writes nothing; starts Spark only with --bind.

    --bind also says which views and functions of users break or change; what breaks is approved
    by name, or by a rule of the policy. --out FILE saves the plan for `apply FILE`, blocked or not,
    and a report of it where FILE ends in .html, .md or .svg.
    Exit 3 when it may not be applied, 5 when a later release is in force and neither
    --allow-downgrade nor the policy lets it go back.

    \b
    Example:
      catalog-migrate plan --catalog catalog --release release --out plan.json
      catalog-migrate plan --bind --approve team.cities --out plan.json
      catalog-migrate plan --out report.html
      catalog-migrate plan --show plan.json --out report.html
    """
    settings = options.settings()
    if saved is None:
        plan = plan_release(
            settings, approve=approve, bind=bind, allow_downgrade=allow_downgrade, on_note=note
        )
    elif approve or bind or allow_downgrade:
        raise UsageError(
            "--show reports a plan as it was made",
            remedy="leave out --approve, --bind and --allow-downgrade, or leave out --show",
        )
    else:
        from catalog_migrate.api.starts import read_plan

        plan = read_plan(saved)
    emit_plan(plan, format_, settings, out)
    return exit_code(plan, detailed=detailed_exitcode)


@click.command("diff")
@click.argument("old")
@click.argument("new")
@options.catalog
@options.approve
@options.format_(*FORMATS)
@options.out
@options.detailed
def diff(
    old: str, new: str, approve: tuple[str, ...], format_: str, out: str | None,
    detailed_exitcode: bool,
) -> int:
    """Compare the releases OLD and NEW: directories, manifests, `git:REF:PATH` for what a commit
    has there, or `catalog:` for the one in force.

    Needs no catalog, Spark or network (but for `catalog:`). Unknown row counts are taken for rows.
    Exit 3 when decisions are missing or something stands in the way.

    \b
    Example:
      catalog-migrate diff release-15.json release-16.json
      catalog-migrate diff git:v15:release release
      catalog-migrate diff catalog: release --catalog catalog
    """
    settings = options.settings()
    plan = compare_releases(settings, old, new, approve=approve, on_note=note)
    emit_plan(plan, format_, settings, out)
    return exit_code(plan, detailed=detailed_exitcode)


@click.group("release")
def release() -> None:
    """Work on a release.

    \b
    Example:
      catalog-migrate release compile release --out release.json
    """


@release.command("compile")
@click.argument("path", required=False)
@options.release
@click.option("--out", metavar="FILE", type=options.NewFile(),
              help="The manifest (default: PATH with .json; - for stdout).")
@click.option("--check", is_flag=True, help="Write nothing; fail when the manifest is stale.")
@click.option("--write", is_flag=True,
              help="Write the typed column lists that views lack into their SQL files instead.")
def compile_(path: str | None, out: str | None, check: bool, write: bool) -> int:
    """Write the manifest of the release PATH: contracts, `*` and hashes filled in once.

    Spark is started only for views without a typed column list.

    \b
    Example:
      catalog-migrate release compile release --out release.json
      catalog-migrate release compile release --out release.json --check
      catalog-migrate release compile release --write
    """
    settings = options.settings({"release.path": path})
    if write:
        if check or out:
            raise UsageError(
                "--write writes SQL files, and --check and --out are about a manifest",
                remedy="run `release compile` with --write first, then without it",
            )
        return _write_lists(settings)
    target = Path(out) if out else manifest_path(settings)
    if check and out == "-":
        raise UsageError(
            "--check compares with a manifest that is there, and - is none",
            remedy="name the file: --out FILE",
        )
    if check:
        require_fresh(settings, target, on_note=note)
        note(f"{target} is up to date")
        return 0
    compiled, data = compile_manifest(settings, on_note=note)
    if out == "-":
        emit(data.decode("utf-8"))
        return 0
    save(str(target), data.decode("utf-8"))
    note(f"wrote {target}: {len(compiled.objects)} objects of release {compiled.name}")
    return 0


def _write_lists(settings: Settings) -> int:
    completed = column_lists(settings, on_note=note)
    for file, (text, views) in completed.items():
        save(str(file), text, remedy=f"make {file} writable, and run this again")
        note(f"wrote {file}: the typed column list of {', '.join(views)}")
    if not completed:
        note("every view has its typed column list: nothing is written")
    return 0


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
@options.format_(*FORMATS)
@options.out
@options.detailed
def check(
    path: str | None, against: str | None, approve: tuple[str, ...], bind: bool, format_: str,
    out: str | None, detailed_exitcode: bool,
) -> int:
    """Check the release PATH (or --release): every error in it, with file and line.

    It is planned from --against, else on the catalog (given or configured), else from nothing, and
    judged by the policy; with --bind every view is bound by Spark's analyser, and on a catalog
    those of users that read what changes. Writes nothing. Exit 1 for a release with errors, 3 when
    decisions are missing or the policy refuses, 5 when a later release is in force in the catalog.

    \b
    Example:
      catalog-migrate check release
      catalog-migrate check release --against git:origin/main:release --format markdown
      catalog-migrate check release --against catalog: --bind --approve team.cities
    """
    settings = options.settings({"catalog.uri": address_in(against), "release.path": path})
    if out is not None:
        format_ = form_of(out, format_, otherwise="text")
    found = check_release(settings, against=against, approve=approve, bind=bind, on_note=note)
    if isinstance(found, InvalidRelease):
        if format_ in ("text", "svg"):  # it has no picture
            raise found
        emit(_invalid(found, format_), out)
        return found.exit_code
    emit(_render_check(found, format_, settings), out)
    return exit_code(found.plan, detailed=detailed_exitcode)


def _render_check(found: Check, format_: str, settings: Settings) -> str:
    if format_ == "json":
        return as_json(_check_document(found))
    return _check_text(found) if format_ == "text" else render_plan(found.plan, format_, settings)


def _trouble(entry: Blocked) -> str:
    return f"{entry.name}{'.' + entry.column if entry.column else ''}: {entry.reason}"


def _warnings(plan: Plan) -> list[str]:
    from catalog_migrate.report.verdict import list_unparsed

    return [*([] if plan.locks_out is None else [plan.locks_out]), *list_unparsed(plan)]


def _list_refused(plan: Plan) -> list[str]:
    """What Spark has refused."""
    from catalog_migrate.report.verdict import list_failed_proofs

    return [f"{proof.name}: {proof.reason}" for proof in list_failed_proofs(plan)]


def _check_document(found: Check) -> dict[str, object]:
    """A release without errors, for programs."""
    from catalog_migrate.report.verdict import decisions, unresolvable, verdict

    plan, loaded = found.plan, found.release
    entries = (*unresolvable(plan), *decisions(plan))
    return {
        "release": loaded.name, "objects": len(loaded.objects), "against": found.base,
        "bound": plan.bound, "verdict": verdict(plan).word,
        "applyable": plan.applyable and plan.fenced_out is None,
        "problems": [
            *([] if plan.fenced_out is None else [plan.fenced_out]), *map(_trouble, entries),
            *_list_refused(plan),
        ],
        "blocked": [
            {**pick(each, "name", "column", "code", "reason", "remedy"),
             **_place(loaded, each.name)}
            for each in entries
        ],
        "warnings": _warnings(plan),
        **({} if plan.users is UNSET else {"users": to_builtins(plan.users)}),
        "unproven": [
            {**pick(each, "name", "kind", "what"), **_place(loaded, each.name)}
            for each in plan.unproven
        ],
    }


def _check_text(found: Check) -> str:
    """A release without errors, for people."""
    from catalog_migrate.model.wording import counted
    from catalog_migrate.report.verdict import decisions, remedy_label, unresolvable, verdict

    plan, loaded = found.plan, found.release
    lines = [
        f"release {loaded.name}: {counted(len(loaded.objects), 'object')}, no errors",
        f"against {found.base}: {verdict(plan).line}",
        *_irreversible(plan),
        *_proven(plan),
        *_users(plan),
    ]
    for entry in (*unresolvable(plan), *decisions(plan)):
        lines += [f"  {_trouble(entry)}", f"    {remedy_label(entry)}: {entry.remedy}"]
    lines += [f"  {proof}" for proof in _list_refused(plan)]
    lines += [f"warning: {line}" for line in _warnings(plan)]
    return "\n".join(map(one_line, lines)) + "\n"


_UNPROVEN_SHOWN = 12


def _proven(plan: Plan) -> list[str]:
    """Whether Spark has tried everything, and what it has still to try."""
    from catalog_migrate.report.verdict import unproven_lines

    if plan.bound:
        return ["bound"]
    waiting = unproven_lines(plan)
    if not waiting:
        return ["not bound: nothing to try with Spark"]
    return ["not bound: check --bind has Spark try", *list_first(
        [f"  {line}" for line in waiting], _UNPROVEN_SHOWN,
        "  … and {:,} more (--format json lists all)",
    )]


def _users(plan: Plan) -> list[str]:
    """What becomes of users' objects, but for those that a decision is missing on."""
    from msgspec.structs import replace

    from catalog_migrate.report.user_objects import list_users, user_note

    said = user_note(plan, "check")
    if said is None:
        return []
    asked = {entry.name for entry in plan.blocked}
    others = tuple(
        each for each in plan.users or ()
        if each.outcome != "breaks" or str(each.key) not in asked
    )
    lines, rest = list_users(replace(plan, users=others))
    found = [f"users' objects: {said[0].lower()}{said[1:].rstrip('.')}"]
    for line in lines:
        found += [f"  {line.head}", *(f"    {detail}" for detail in line.details)]
    return found + ([f"  … and {len(rest):,} more (--format json lists all)"] if rest else [])


def _irreversible(plan: Plan) -> list[str]:
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


def _invalid(error: InvalidRelease, format_: str) -> str:
    """A release with errors, for programs or a comment."""
    if format_ == "json":
        return as_json({
            "verdict": "INVALID", "applyable": False, "reason": error.message,
            "remedy": error.remedy,
            "problems": [
                pick(each, "code", "message", "file", "line", "column", "remedy")
                for each in error.problems
            ],
        })
    from catalog_migrate.report import lay_out
    from catalog_migrate.report.problems import report_problems

    return lay_out(report_problems(error), format_)


# -- starts on a local session, forward or back ----------------------------------------------------

@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", required=False)
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.timeout
@options.downgrade
@options.reason
@options.format_("text", "json")
@options.answers
def apply(
    plan_file: str | None, approve: tuple[str, ...], allow_downgrade: bool, reason: str | None,
    format_: str,
) -> int:
    """Apply PLAN (a file of `plan --out` or `rollback --out`) exactly as it says, or the release
    after asking.

    Users' views and functions are looked at again: one that breaks needs --approve NAME here, in
    the plan, or a rule of the policy. Exit 3 blocked, 4 the plan is stale, 5 lease held or fenced
    out, 6 run it again. Without a terminal it needs --yes.

    \b
    Example:
      catalog-migrate apply plan.json --catalog catalog --release release --yes
      catalog-migrate apply plan.json --approve team.cities --reason 'ticket 4711' --yes
      catalog-migrate apply --catalog catalog --release release
    """
    from catalog_migrate.api.starts import apply_release

    settings = options.settings()
    with print_blocked_plan(format_, settings), progress() as on_progress:
        report = apply_release(
            settings, plan_file, approve=approve, allow_downgrade=allow_downgrade,
            confirm=asking(settings), reason=reason,
            on_progress=on_progress, on_note=note,
        )
    return emit_start(report, format_)


@click.command("bootstrap")
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.timeout
@click.option("--plan", "plan_file", metavar="FILE", type=click.Path(dir_okay=False),
              help="An approved plan: anything else is refused.")
@click.option("--read-only", is_flag=True, help="Plan and write nothing.")
@options.reason
@options.format_("text", "json")
@options.detailed
def bootstrap(
    approve: tuple[str, ...], plan_file: str | None, read_only: bool, reason: str | None,
    format_: str, detailed_exitcode: bool,
) -> int:
    """Do what an application's start-up hook does: wait, migrate or follow, finish, and say so.

    Exit 3 blocked, 5 another process holds the lease or a later release is in force, 6 committed
    but not finished (run it again).

    \b
    Example:
      catalog-migrate bootstrap --catalog catalog --warehouse rows --release release
    """
    from catalog_migrate.api.starts import start_release

    settings = options.settings()
    with print_blocked_plan(format_, settings), progress() as on_progress:
        report = start_release(
            settings, plan_file, approve=approve, read_only=read_only, reason=reason,
            on_progress=on_progress, on_note=note,
        )
    done = emit_start(report, format_)
    if report.outcome != "planned" or report.plan is None:
        return done
    if format_ == "text":
        sys.stdout.write(render_plan(report.plan, "text", settings))
    return exit_code(report.plan, detailed=detailed_exitcode)


@click.command("rollback")
@options.catalog
@options.conf
@click.option(
    "--to", type=click.IntRange(min=0), metavar="SERIAL",
    help="The serial to go back to (see history). Default: before the newest migration.",
)
@options.approve
@click.option("--plan", "--dry-run", "only_plan", is_flag=True, help="Only say what it would do.")
@options.bind
@options.out
@options.timeout
@options.reason
@options.format_(*FORMATS)
@options.answers
def rollback(
    to: int | None, approve: tuple[str, ...], only_plan: bool, bind: bool, out: str | None,
    reason: str | None, format_: str,
) -> int:
    """Bring back the release of an earlier serial: its names, columns and rows.

    Rows written since are carried back where the old columns hold them. With --plan or --out FILE
    nothing is changed: `apply FILE` carries a saved plan out. --bind also says which views and
    functions of users break. Exit 3 when rows would be lost, or such a view would break, without
    an approval, when what is needed was deleted by retention, or when a column that the
    serial has was dropped in place since (CM0340: no approval helps; docs/runbooks/rollback.md).

    \b
    Example:
      catalog-migrate rollback --plan --catalog catalog
      catalog-migrate rollback --plan --bind --catalog catalog
      catalog-migrate rollback --to 3 --out back.json --catalog catalog
      catalog-migrate apply back.json --catalog catalog --yes
    """
    if reason is not None and (only_plan or out is not None):
        raise UsageError(
            "--reason is kept with what is done, and --plan and --out do nothing",
            remedy="give it to `apply FILE`, or to `rollback` without them",
        )
    settings = options.settings()
    plan = plan_rollback(settings, to, approve=approve, bind=bind, on_note=note)
    if only_plan or out is not None:
        emit_plan(plan, format_, settings, out)
        return exit_code(plan, detailed=False)
    from catalog_migrate.api.starts import roll_back

    with print_blocked_plan(format_, settings), progress() as on_progress:
        report = roll_back(
            settings, plan, approve=approve,
            confirm=asking(settings), reason=reason,
            on_progress=on_progress, on_note=note,
        )
    return emit_start(report, format_)
