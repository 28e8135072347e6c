"""``release compile``: the manifest of a release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from catalog_migrate.cli.options import NewFile, release_option, settings_of
from catalog_migrate.cli.output import emit, note, save
from catalog_migrate.cli.sources import engine_on, local_spark
from catalog_migrate.errors import CatalogMigrateError, UsageError
from catalog_migrate.files import read_file

if TYPE_CHECKING:
    from catalog_migrate.config import Settings
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.release.compile import Analysed
    from catalog_migrate.release.release import Release


class StaleManifest(CatalogMigrateError, ValueError):
    """``release compile --check``: the manifest is not what the sources say."""

    code = "CM0140"


@click.group("release")
def command() -> None:
    """Work on a release.

    \b
    Example:
      catalog-migrate release compile release --out release.json
    """


@command.command("compile")
@click.argument("path", required=False)
@release_option
@click.option("--out", metavar="FILE", type=NewFile(),
              help="The manifest (default: PATH with .json; - for stdout).")
@click.option("--check", is_flag=True, help="Write nothing; fail when the manifest is stale.")
@click.pass_context
def compile_(
    ctx: click.Context, path: str | None, release: str | None, out: str | None, check: bool
) -> int:
    """Write the manifest of the release PATH: contracts, `*` and hashes filled in once.

    Spark is started only for views without a typed column list.

    \b
    Example:
      catalog-migrate release compile release --out release.json
      catalog-migrate release compile release --out release.json --check
    """
    from catalog_migrate.cli.options import need
    from catalog_migrate.release.compile import compile_release, is_stale
    from catalog_migrate.release.loader import load_release, require_bodies

    settings = settings_of(ctx, release=release if path is None else path)
    source = Path(need(settings, "release.path", "PATH"))
    target = Path(out) if out else source.with_name(f"{source.stem}.json")
    loaded = load_release(
        source,
        name=settings.text("release.name") if source.suffix != ".json" else None,
        default_schema=settings.text("release.default_schema"),
        contracts=False,
    )
    for name, _, why in require_bodies(loaded):
        note(f"{name}: nobody has parsed {why}; catalog-migrate check --bind asks Spark")
    if check and out == "-":
        raise UsageError(
            "--check compares with a manifest that is there, and - is none",
            remedy="name the file: --out FILE",
        )
    if check:
        again = f"run `catalog-migrate release compile {source} --out {target}`"
        try:
            written = read_file(target)
        except OSError as error:
            raise StaleManifest(
                f"{target} cannot be read: {error.strerror}", remedy=again
            ) from error
        stale = is_stale(written, loaded)
        if stale:
            raise StaleManifest(
                f"{target} is stale:\n  " + "\n  ".join(stale), remedy=again, changes=stale
            )
        note(f"{target} is up to date")
        return 0
    data = compile_release(
        loaded, lambda ordered: analyse_with_spark(settings, loaded, ordered)
    )
    if out == "-":
        emit(data.decode("utf-8"))
        return 0
    save(str(target), data.decode("utf-8"))
    note(f"wrote {target}: {len(loaded.objects)} objects of release {loaded.name}")
    return 0


def analyse_with_spark(
    settings: Settings, release: Release, ordered: Sequence[ObjectDefinition]
) -> Analysed:
    """The columns of the views without a typed list, parents first.

    Views that do not analyse are left out and named on stderr with Spark's reason;
    ``compile_release`` refuses the release then.
    """
    from catalog_migrate.engine.port import BindRequest
    from catalog_migrate.model.names import ItemName
    from catalog_migrate.model.objects import Column
    from catalog_migrate.reconciler.desired import function_spec, view_spec

    columns: dict[ItemName, Sequence[Column]] = {}
    found: dict[tuple[str, str, str], Sequence[tuple[str, str, bool]]] = {}
    functions = [function_spec(each, {}) for each in ordered if each.kind == "function"]
    with local_spark(settings) as spark:
        engine = engine_on(spark, settings)
        for definition in ordered:
            if definition.kind != "view" or definition.columns:
                columns[definition.item_name] = definition.columns
                continue
            parents = {
                parent.item_name: columns.get(parent.item_name, ())
                for parent in (
                    release.by_identity[use] for use in release.uses.get(definition.identity, ())
                )
                if parent.kind in ("table", "view")
            }
            (result,) = engine.bind([BindRequest(view_spec(definition, {}), parents, functions)])
            if result.columns is None:
                note(f"{definition.key}: {result.reason}")
                continue
            columns[definition.item_name] = result.columns
            found[definition.identity] = [
                (column.name, column.type, column.nullable) for column in result.columns
            ]
    return found
