"""What a release would do to a catalog: plan, check, compare, plan a way back; and its manifest.

Nothing here writes to a catalog. Each function takes the configuration; ``on_note`` hears what a
person should know besides.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from catalog_migrate.api.configured import (
    COMMITTED,
    OnNote,
    asking_spark,
    engine_on,
    has_lasting_names,
    make_options,
    need,
    open_catalog,
    open_spark,
    read_committed,
    read_release,
    refuse_other_warehouse,
    release_digest,
    unheard,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import (
    DECISION_CODES,
    CatalogExported,
    CatalogMoved,
    CatalogNotFound,
    InvalidRelease,
    StaleManifest,
    UsageError,
)
from catalog_migrate.policy import Policy
from catalog_migrate.store.local import read_file

if TYPE_CHECKING:
    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.migrations.options import BootstrapOptions
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.names import Identity
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan import Migration, Plan
    from catalog_migrate.release.manifest import Analysed
    from catalog_migrate.release.release import Release


class Check(msgspec.Struct, frozen=True):
    """A release without errors and the plan that leads to it; ``base`` says in words from where."""

    release: Release
    plan: Plan
    base: str


def plan_release(
    settings: Settings, *, approve: Collection[str] = (), bind: bool = False,
    allow_downgrade: bool = False, on_note: OnNote = unheard, release: Release | None = None,
) -> Plan:
    """The plan for the configured release on the configured catalog, which need not exist yet.

    It says what :func:`apply_release` would do, which may go back where ``allow_downgrade`` or a
    rule lets it. ``bind`` has Spark's analyser bind every view, find the column lists that views
    lack, and say what becomes of users' objects, else nothing starts Spark. ``release`` is the
    configured one where it is read.
    """
    plan = _plan(
        settings, approve, release, bind=bind, allow_downgrade=allow_downgrade, on_note=on_note
    )
    note_unmet(plan, approve, on_note)
    return plan


def check_release(
    settings: Settings, *, against: str | None = None, approve: Collection[str] = (),
    bind: bool = False, on_note: OnNote = unheard,
) -> Check | InvalidRelease:
    """Read the configured release whole, and plan it from ``against``.

    That is a release (a directory, a manifest, ``git:REF:PATH``) or ``catalog:`` for the configured
    catalog; None stands for that catalog where one is configured, else for nothing. Errors of the
    release are what was asked for and come back as a value; those of ``against`` are raised.
    ``bind`` is that of :func:`plan_release`; users' objects are those of a catalog.
    """
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan_validation import with_unparsed
    from catalog_migrate.release.loader import require_bodies

    find = asking_spark(settings, on_note) if bind else None
    try:
        release = read_release(settings, find=find)
        unparsed = require_bodies(release, views=not bind)
    except InvalidRelease as error:
        return error
    if against is not None and against.startswith(COMMITTED):
        open_catalog(settings)  # it was named, so it has to be there
        plan = _plan(settings, approve, release, bind=bind, on_note=on_note)
        base = against
    elif against is None and settings.text("catalog.uri") is not None:
        plan = _plan(settings, approve, release, bind=bind, on_note=on_note)
        base = "the catalog"
    else:
        baseline = (
            Baseline.empty() if against is None
            else Baseline.from_release(
                read_release(settings, against, former=True, find=find)
            )
        )
        migration = _migration(settings, baseline, release, approve)
        plan = _bind_release(settings, migration, on_note) if bind else migration.plan
        base = against or "an empty catalog"
    plan = with_unparsed(plan, unparsed)
    note_unmet(plan, approve, on_note)
    return Check(release, plan, base)


def compare_releases(
    settings: Settings, old: str, new: str, *, approve: Collection[str] = (),
    on_note: OnNote = unheard,
) -> Plan:
    """Return the plan that leads from one release to another; needs no Spark.

    Both are directories, manifests, ``git:REF:PATH``, or ``catalog:[URI]`` for what is in force
    there. Row counts are unknown, and taken for rows.
    """
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan_validation import with_bodies

    known = read_committed(settings, old) if old.startswith(COMMITTED) else None
    former = read_release(settings, old, former=True) if known is None else known[0]
    if new.startswith(COMMITTED):
        release = read_committed(settings, new)[0]
    else:
        release = read_release(settings, new)
    differs = former.manifest_hash != release.manifest_hash
    baseline = Baseline.from_release(former, ordered=differs) if known is None else known[1]
    migration = with_bodies(_migration(settings, baseline, release, approve), release)
    if former.statements or release.statements:
        from catalog_migrate.streams.ddl.bundled_streams import as_in_force, with_bundled_streams

        standing = as_in_force(baseline, former.statements)
        migration = with_bundled_streams(migration, standing, release.statements)
    plan = migration.plan
    note_unmet(plan, approve, on_note)
    return plan


def plan_rollback(
    settings: Settings, to: int | None = None, *, approve: Collection[str] = (),
    bind: bool = False, on_note: OnNote = unheard,
) -> Plan:
    """Return the plan that leads back to serial ``to`` (default: before the newest migration).

    ``bind`` is that of :func:`plan_release`.
    """
    catalog, options = open_catalog(settings), make_options(settings, approve=approve)
    migration = catalog.rollback_migration(to, options)
    plan = _bind_in(catalog, migration, settings, options, bind=bind, on_note=on_note)
    note_unmet(plan, approve, on_note)
    return plan


def release_graph(settings: Settings) -> tuple[str, DependencyGraph]:
    """Return the configured release's name, and what uses what in it, its bundled streams included.

    Raises what is wrong with its statements; what needs an object of a catalog is left out.
    """
    release = read_release(settings)
    if not release.statements:
        return release.name, release.graph
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.streams.ddl.bundled_streams import as_in_force

    outcome = as_in_force(Baseline.from_release(release), release.statements)
    return release.name, outcome.graph


def _plan(
    settings: Settings, approve: Collection[str], release: Release | None, *, bind: bool = False,
    allow_downgrade: bool = False, on_note: OnNote,
) -> Plan:
    digest = None if approve or bind else release_digest(settings)
    if release is None and digest is None:
        release = read_release(settings, find=asking_spark(settings, on_note) if bind else None)
    try:
        catalog = open_catalog(settings)
    except CatalogNotFound:
        from catalog_migrate.planner.baseline import Baseline
        from catalog_migrate.planner.plan_validation import with_bodies

        release = release or read_release(settings)
        on_note(f"there is no catalog at {settings.text('catalog.uri')} yet; applying creates it")
        migration = with_bodies(
            _migration(settings, Baseline.empty(), release, approve), release, views=not bind
        )
        return _bind_release(settings, migration, on_note) if bind else migration.plan
    refuse_other_warehouse(catalog, settings)
    if catalog.state().is_pending:
        on_note(
            "a start was interrupted, or has not finished: until it ends, names may be absent. If"
            " catalog-migrate status shows a holder of the lease that is alive, wait for it; else"
            " `catalog-migrate apply`, or the next start, finishes it"
        )
    known = None if digest is None else catalog.plan_in_force(digest)
    if known is not None:
        return known
    release = release or read_release(settings)
    options = replace(
        make_options(settings, approve=approve),
        policy=applying_policy(settings, release, allow_downgrade=allow_downgrade),
    )
    migration = catalog.migration(release, options, views=not bind)
    if migration.plan.fenced_out is None:
        _note_refused(catalog, release, settings, on_note)
    return _bind_in(catalog, migration, settings, options, bind=bind, on_note=on_note)


def _bind_in(
    catalog: Catalog, migration: Migration, settings: Settings, options: BootstrapOptions, *,
    bind: bool, on_note: OnNote,
) -> Plan:
    """The plan as it is, or with all that Spark can prove of it and of users' objects."""
    plan = migration.plan
    if bind:
        with open_spark(settings, on_note) as spark:
            return catalog.bind(migration, engine_on(spark, settings), options)
    if plan.is_empty or plan.base.release is None or not has_lasting_names(settings):
        return plan
    return replace(plan, users=None)  # there may be some, and nothing has looked


def _migration(
    settings: Settings, baseline: Baseline, release: Release, approve: Collection[str]
) -> Migration:
    """From a baseline that is no catalog's."""
    from catalog_migrate.migrations.plan import plan_from_baseline

    return plan_from_baseline(baseline, release, make_options(settings, approve=approve))


def _bind_release(settings: Settings, migration: Migration, on_note: OnNote) -> Plan:
    """The plan with every view bound against stand-ins, where there is no catalog."""
    from catalog_migrate.migrations.prepare import prove

    with open_spark(settings, on_note) as spark:
        engine: Engine = engine_on(spark, settings)
        return prove(migration, engine.bind).plan


def applying_policy(settings: Settings, release: Release, *, allow_downgrade: bool) -> Policy:
    """Whoever applies goes back where the call or a rule of the configuration lets it."""
    may_go_back = Policy(rules=settings.policy).says("allow", "downgrade", release.name)
    return Policy(allow_downgrade=allow_downgrade or may_go_back, rules=settings.policy)


def _note_refused(
    catalog: Catalog, release: Release, settings: Settings, on_note: OnNote
) -> None:
    """Say that no start does what this plan says: only `apply` goes back, or nothing does."""
    from catalog_migrate.catalog.opening import require_in_use
    from catalog_migrate.planner.policy_evaluation import find_fence

    state = catalog.state()
    refusal = find_fence(state, release, Policy(rules=settings.policy))
    if refusal is not None:
        on_note(f"{refusal}: a start with it does nothing (exit 5), `apply` goes back to it")
    try:
        require_in_use(state, catalog.log)
    except (CatalogExported, CatalogMoved) as error:
        on_note(
            f"{error.message}; every start is refused ({error.code}) until this is done:"
            f" {error.remedy}"
        )


def note_unmet(plan: Plan, approve: Collection[str], on_note: OnNote) -> None:
    """Say which approvals no change of ``plan`` needed, with the names most like them.

    They are no error: a job may go on giving the approvals of a release that is in force by now.
    """
    if not approve:
        return
    from catalog_migrate.planner.policy_evaluation import approval_parts

    met = {approval_parts(name) for name in plan.approved}
    names = _names_of_decisions(plan)
    changed = {approval_parts(name) for name in names if ":" not in name}
    for entry in approve:
        parts = approval_parts(entry)
        if not met.isdisjoint((parts, parts[:2])) or parts in {name[:2] for name in met}:
            continue
        if parts in changed:
            on_note(f"--approve {entry} was not needed: the change of it asks for no approval")
        else:
            may_be_user = plan.users is None and len(parts) == 2
            on_note(_describe_unmet(entry, names, may_be_user=may_be_user))


def _names_of_decisions(plan: Plan) -> list[str]:
    decided = (entry for entry in plan.blocked if entry.code in DECISION_CODES)
    return sorted({
        *(change.name for change in plan.changes),
        *(f"{entry.name}.{entry.column}" if entry.column else entry.name for entry in decided),
        *(user.name for user in plan.users or ()),
    })


def _describe_unmet(entry: str, names: Sequence[str], *, may_be_user: bool) -> str:
    from difflib import get_close_matches

    near = get_close_matches(entry, names, n=2, cutoff=0.6)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    if may_be_user:
        meant += "; a user's object may: the start looks, and --bind does beforehand"
    return f"--approve {entry} met nothing: no change of this plan needs it{meant}"


def manifest_path(settings: Settings) -> Path:
    """Where the manifest of the configured release is: beside it, with the ending ``.json``."""
    source = _source(settings)
    return source.with_name(f"{source.stem}.json")


def compile_manifest(settings: Settings, *, on_note: OnNote = unheard) -> tuple[Release, bytes]:
    """The configured release and its manifest; Spark starts for views without a typed list alone.

    InvalidRelease names every view that cannot be completed.
    """
    from catalog_migrate.release.manifest import compile_release

    release = _load(settings, on_note)
    data = compile_release(release, lambda _: _analyse(settings, release, on_note))
    return release, data


def require_fresh(settings: Settings, manifest: Path, *, on_note: OnNote = unheard) -> None:
    """StaleManifest, with every difference, unless ``manifest`` is what the sources say."""
    from catalog_migrate.release.manifest import is_stale

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


def column_lists(
    settings: Settings, *, on_note: OnNote = unheard
) -> Mapping[Path, tuple[str, Sequence[str]]]:
    """The SQL files of the configured release whose views lack typed lists, completed by Spark.

    With each text, which is to be written as UTF-8, the names of the views whose lists are new.
    Raises UsageError where the release is no SQL on this disk, InvalidRelease with every view for
    which Spark finds no list.
    """
    from catalog_migrate.release.git import is_git
    from catalog_migrate.release.loader import decoded
    from catalog_migrate.sql.release_dialect import with_column_lists

    source = _source(settings)
    if is_git(str(source)) or not (source.is_dir() or source.suffix.lower() == ".sql"):
        raise UsageError(
            f"--write writes into SQL files, and {source} is no directory of them",
            remedy="name the directory of *.sql files that the release is made from",
        )
    lacking = {one.identity for one in _load(settings, on_note).objects if not one.columns}
    release = read_release(settings, find=asking_spark(settings, on_note))
    wanted: dict[str, dict[tuple[int, int], ObjectDefinition]] = {}
    for identity, (file, line, column) in release.places.items():
        definition = release.by_identity[identity]
        if definition.kind == "view" and identity in lacking:
            assert file is not None
            assert line is not None
            assert column is not None
            wanted.setdefault(file, {})[line, column] = definition
    completed: dict[Path, tuple[str, Sequence[str]]] = {}
    for file, views in wanted.items():
        path = source / file if source.is_dir() else source
        data = read_file(path)
        mark = BOM_UTF8.decode() if data.startswith(BOM_UTF8) else ""
        text = with_column_lists(
            decoded(data, file), {place: view.columns for place, view in views.items()}
        )
        completed[path] = (mark + text, [str(view.key) for view in views.values()])
    return completed


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
        contracts=False, policy=Policy(rules=settings.policy),
    )
    for name, _, why in require_bodies(release):
        on_note(f"{name}: cannot parse {why}; catalog-migrate check --bind asks Spark")
    return release


def _analyse(settings: Settings, release: Release, on_note: OnNote) -> Analysed:
    """The columns of the views without a typed list.

    Views that do not analyse are left out and noted with Spark's reason; ``compile_release``
    refuses the release then.
    """
    found: dict[Identity, Sequence[tuple[str, str, bool]]] = {}
    for identity, columns in asking_spark(settings, on_note)(release).items():
        if isinstance(columns, str):
            on_note(f"{release.by_identity[identity].key}: {columns}")
        else:
            found[identity] = [(each.name, each.type, each.nullable) for each in columns]
    return found
