"""The manifest of a release: compiled once, compared with the sources afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from catalog_migrate.api.configured import OnNote, configured_spark, engine_on, need, unheard
from catalog_migrate.config import Settings
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.store.local import read_file

if TYPE_CHECKING:
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.release.compile import Analysed
    from catalog_migrate.release.release import Release


class StaleManifest(CatalogMigrateError, ValueError):
    """``release compile --check``: the manifest is not what the sources say."""

    code = "CM0140"


def manifest_path(settings: Settings) -> Path:
    """Where the manifest of the configured release is: beside it, with the ending ``.json``."""
    source = _source(settings)
    return source.with_name(f"{source.stem}.json")


def compile_manifest(settings: Settings, *, on_note: OnNote = unheard) -> tuple[Release, bytes]:
    """The configured release and its manifest; Spark starts for views without a typed list alone.

    InvalidRelease names every view that cannot be completed.
    """
    from catalog_migrate.release.compile import compile_release

    release = _load(settings, on_note)
    data = compile_release(release, lambda ordered: _analysed(settings, release, ordered, on_note))
    return release, data


def require_fresh(settings: Settings, manifest: Path, *, on_note: OnNote = unheard) -> None:
    """StaleManifest, with every difference, unless ``manifest`` is what the sources say."""
    from catalog_migrate.release.compile import is_stale

    release = _load(settings, on_note)
    again = f"run `catalog-migrate release compile {_source(settings)} --out {manifest}`"
    try:
        written = read_file(manifest)
    except OSError as error:
        raise StaleManifest(
            f"{manifest} cannot be read: {error.strerror}", remedy=again
        ) from error
    stale = is_stale(written, release)
    if stale:
        raise StaleManifest(
            f"{manifest} is stale:\n  " + "\n  ".join(stale), remedy=again, changes=stale
        )


def _source(settings: Settings) -> Path:
    return Path(need(settings, "release.path", "PATH"))


def _load(settings: Settings, on_note: OnNote) -> Release:
    """The release with views that still lack their typed lists."""
    from catalog_migrate.release.loader import load_release, require_bodies

    source = _source(settings)
    release = load_release(
        source,
        name=settings.text("release.name") if source.suffix != ".json" else None,
        default_schema=settings.text("release.default_schema"),
        contracts=False,
    )
    for name, _, why in require_bodies(release):
        on_note(f"{name}: nobody has parsed {why}; catalog-migrate check --bind asks Spark")
    return release


def _analysed(
    settings: Settings, release: Release, ordered: Sequence[ObjectDefinition], on_note: OnNote
) -> Analysed:
    """The columns of the views without a typed list, parents first.

    Views that do not analyse are left out and noted with Spark's reason; ``compile_release``
    refuses the release then.
    """
    from catalog_migrate.engine.port import BindRequest
    from catalog_migrate.model.names import ItemName
    from catalog_migrate.model.objects import Column
    from catalog_migrate.reconciler.desired import function_spec, view_spec

    columns: dict[ItemName, Sequence[Column]] = {}
    found: dict[tuple[str, str, str], Sequence[tuple[str, str, bool]]] = {}
    functions = [function_spec(each, {}) for each in ordered if each.kind == "function"]
    with configured_spark(settings, on_note) as spark:
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
                on_note(f"{definition.key}: {result.reason}")
                continue
            columns[definition.item_name] = result.columns
            found[definition.identity] = [
                (column.name, column.type, column.nullable) for column in result.columns
            ]
    return found
