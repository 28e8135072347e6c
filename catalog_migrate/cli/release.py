"""``release compile``: the manifest of a release."""

from __future__ import annotations

from pathlib import Path

import click

from catalog_migrate.api.manifests import compile_manifest, manifest_path, require_fresh
from catalog_migrate.cli import options
from catalog_migrate.cli.output import emit, note, save
from catalog_migrate.errors import UsageError


@click.group("release")
def command() -> None:
    """Work on a release.

    \b
    Example:
      catalog-migrate release compile release --out release.json
    """


@command.command("compile")
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
