"""``diff`` and ``release compile``: releases without a catalog."""

from __future__ import annotations

from pathlib import Path

import click

from catalog_migrate.api.manifests import compile_manifest, manifest_path, require_fresh
from catalog_migrate.api.releases import compare_releases
from catalog_migrate.cli import options
from catalog_migrate.cli.output import emit, emit_plan, note, save
from catalog_migrate.errors import UsageError
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code


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
def compile_(path: str | None, out: str | None, check: bool) -> int:
    """Write the manifest of the release PATH: contracts, `*` and hashes filled in once.

    Spark is started only for views without a typed column list.

    \b
    Example:
      catalog-migrate release compile release --out release.json
      catalog-migrate release compile release --out release.json --check
    """
    settings = options.settings({"release.path": path})
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
