"""``unsafe``: the last resort when the upstream changed under a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from catalog_migrate.api import streams
from catalog_migrate.cli import options
from catalog_migrate.cli.output import (
    as_columns,
    as_json,
    asking_unsafe,
    emit,
    emit_forms,
    make_forms,
    note,
    now,
    statement_result,
)
from catalog_migrate.errors import UsageError
from catalog_migrate.report import FORMATS

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.config import Settings
    from catalog_migrate.sql.statements import UnsafeAction
    from catalog_migrate.streams.ddl.execute import Result
    from catalog_migrate.streams.positions.plan import UnsafePlan
    from catalog_migrate.streams.positions.requests import Request

Function = TypeVar("Function", bound=Callable[..., Any])

REFUSED = 3
"""Exit code of a dry run whose operation would be refused."""

_TO = "earliest | latest | committed | 'timestamp 2026-01-31T00:00:00Z' | 'duration PT2H' | " \
      "'shift -100'"

_ACTING = (
    options.catalog,
    click.option("--reason", metavar="TEXT", help="Why; required, and kept for good."),
    click.option("--plan", "only_plan", is_flag=True,
                 help="Dry run: print it, do nothing; exit 3 when it would be refused."),
    click.option("--out", metavar="FILE", type=options.NewFile(),
                 help="Dry run into FILE (- for stdout), for `unsafe apply FILE`; a report where "
                 "--format or the name (.html, .md, .svg) says so."),
    click.option("--with-times", is_flag=True,
                 help="Dry run: say when the records that come twice were written."),
    click.option("--tolerance", type=click.IntRange(min=0), metavar="N", default=None,
                 help="Records that may be doubled or skipped beyond the plan's; else any number."),
    click.option("--skip-validate", is_flag=True, help="Do not try the new properties first."),
    click.option("--id", "key", metavar="ID", help="Under the same ID it is done only once."),
    options.yes(),
    options.format_(*FORMATS),
)
_CHOOSING = (
    click.option("--policy", type=click.Choice(("error", "clamp", "allow")), default="error",
                 show_default=True, help="What to do with targets outside of what is there."),
    click.option("--accept-new-topic", is_flag=True,
                 help="The topic is not the one that was read so far, and that is meant."),
    click.option("--translate-by", type=click.Choice(("timestamp",)),
                 help="Go on in another topic after the time of the last stored record."),
    click.option("--ties", type=click.Choice(("double", "skip")), default="double",
                 show_default=True, help="Records of the very same time: again, or never."),
    click.option("--backfill", is_flag=True,
                 help="Go on at the target now, and read what is skipped into the same table "
                 "meanwhile, each record once."),
    click.option("--chunk", type=click.IntRange(min=1), metavar="N", default=None,
                 help="Records that a backfill reads at once (50000)."),
    click.option("--below", metavar="CONNECTION", help="All sources of a connection as well."),
)
_POSITIONS = (
    click.option("--partition", "partitions", multiple=True, metavar="TOPIC:N=TARGET",
                 help="Where one partition goes on: the next record to read, or a target of "
                 "--to, or null for START."),
    click.option("--to", "everywhere", metavar="TARGET", multiple=True, callback=options.one_of,
                 help=f"All partitions: {_TO}."),
    click.option("--file", "file", metavar="FILE", multiple=True, callback=options.one_of,
                 type=click.Path(exists=True, dir_okay=False),
                 help="Positions as `source positions --format json` prints them, or "
                 "`kafka-consumer-groups --reset-offsets --export`."),
)


def _with(*decorators: Callable[..., Any]) -> Callable[[Function], Function]:
    def apply_all(function: Function) -> Function:
        for decorate in reversed(decorators):
            function = decorate(function)
        return function

    return apply_all


@click.group("unsafe")
def command() -> None:
    """Change any property of a source, and where it goes on; records may be doubled or lost.

    Positions are the next record to read. The runtime must have been started with
    streams.enable_unsafe_ops = true.

    \b
    Example:
      catalog-migrate unsafe inject-offsets shop.orders --to 'shift -100' --plan --reason poisoned
    """


@command.command("alter")
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any property.")
@click.option("--set-secret", "secrets", multiple=True, metavar="KEY=SECRET",
              help="A property whose value is a secret, by the secret's name.")
@click.option("--drop", "drops", multiple=True, metavar="KEY", help="Take a property away.")
@click.option("--reset-splits", "reset", is_flag=True, help="Forget partitions and positions.")
@_with(*_POSITIONS, *_CHOOSING, *_ACTING)
def alter(
    sources: tuple[str, ...], sets: tuple[str, ...], secrets: tuple[str, ...],
    drops: tuple[str, ...], reset: bool, **acting: Any,
) -> int:
    """Change properties of sources, those of their connection too; with positions it is a move.

    \b
    Example:
      catalog-migrate unsafe alter shop.orders --set TOPIC=orders_v2 --reset-splits
        --accept-new-topic --reason 'topic was renamed'
    """
    from catalog_migrate.model.objects import OptionValue, SecretRef
    from catalog_migrate.sql.statements import DropOptions, ResetSplits, SetOptions

    changed: dict[str, OptionValue] = {}
    for text in sets:
        key, value = _pair(text, "--set")
        options.put_once(changed, key, value, f"--set {key}")
    for text in secrets:
        key, name = _pair(text, "--set-secret")
        options.put_once(changed, key, SecretRef(name), f"--set-secret {key}")
    actions: list[UnsafeAction] = []
    if changed:
        actions.append(SetOptions(changed))
    if drops:
        actions.append(DropOptions(drops))
    if reset:
        actions.append(ResetSplits())
    return _act(sources, actions, acting)


@command.command("reset-splits")
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@click.option("--partition", "splits", multiple=True, metavar="TOPIC:N",
              help="Only this one; may be given several times.")
@_with(*_CHOOSING, *_ACTING)
def reset_splits(sources: tuple[str, ...], splits: tuple[str, ...], **acting: Any) -> int:
    """Forget partitions and positions, discover again, begin at START.

    \b
    Example:
      catalog-migrate unsafe reset-splits shop.orders --accept-new-topic --reason 'recreated'
    """
    from catalog_migrate.sql.statements import ResetSplits

    return _act(sources, [ResetSplits(splits)], acting)


@command.command("inject-offsets")
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@_with(*_POSITIONS, *_CHOOSING, *_ACTING)
def inject_offsets(sources: tuple[str, ...], **acting: Any) -> int:
    """Let partitions go on at positions of your choice; those not named stay.

    \b
    Example:
      catalog-migrate unsafe inject-offsets shop.orders --partition orders:0=123
        --reason 'record 122 cannot be read'
    """
    if not acting["partitions"] and acting["everywhere"] is None and acting["file"] is None:
        raise UsageError("no position is given", remedy="--partition, --to or --file")
    return _act(sources, [], acting)


@command.command("undo")
@click.argument("operation", metavar="OPERATION")
@click.option("--restore-table", is_flag=True,
              help="Take the table back too, to what it held when OPERATION had "
              "stopped the source; sinks below go on after that. Only for an operation on one "
              "source.")
@_with(*_ACTING)
def undo(operation: str, restore_table: bool, **acting: Any) -> int:
    """Put back what OPERATION changed: definition and positions, by another operation.

    Positions are the next record to read. Rows that came since stay in the table, and the plan
    says what comes again; with --restore-table they go, exactly, unless another process has
    written into the table. Of a sink below, doubled are rows that it sends again.

    \b
    Example:
      catalog-migrate unsafe undo 20260131T120000000000-1a2b3c --reason 'wrong topic'
    """
    def ask(state: State) -> Request:
        return streams.undo_unsafe(
            state, operation, restore_table=restore_table, tolerance=acting["tolerance"],
            skip_validate=acting["skip_validate"],
        )

    return _ask(ask, acting)


@command.command("apply")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--tolerance", default=0, show_default=True, type=click.IntRange(min=0),
              metavar="N", help="Records that may be doubled or skipped beyond the plan's.")
@click.option("--reason", metavar="TEXT", help="Why, where the plan was made without a reason.")
@options.catalog
@click.option("--id", "key", metavar="ID", help="Under the same ID it is done only once.")
@options.yes()
@options.format_("text", "json")
def apply_file(
    file: str, tolerance: int, reason: str | None, key: str | None, format_: str
) -> int:
    """Do what the dry run in FILE says; exit 4 when it would be more than that by now.

    \b
    Example:
      catalog-migrate unsafe reset-splits shop.orders --out plan.json --reason recreated
      catalog-migrate unsafe apply plan.json --tolerance 100 --yes
    """
    result = streams.apply_unsafe(
        options.settings(), file, tolerance=tolerance, reason=reason,
        confirm=asking_unsafe(), key=key, on_note=note,
    )
    return _report(result, format_)


@command.command("plan")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@options.format_(*FORMATS)
@options.out
def show_plan(file: str, format_: str, out: str | None) -> int:
    """Print a dry run that was saved with --out; exit 3 when validation had refused it.

    \b
    Example:
      catalog-migrate unsafe plan plan.json
      catalog-migrate unsafe plan plan.json --out plan.html
    """
    from catalog_migrate.report.unsafe import report_unsafe
    from catalog_migrate.streams.positions.plan import encode_plan, read_plan

    plan = read_plan(file)
    settings = options.settings()
    forms = make_forms(report_unsafe(plan, at=now()), settings, lambda: encode_plan(plan).decode())
    if emit_forms(forms, format_, out, otherwise="text") is not None:
        note(f"saved to {out}")
    return REFUSED if plan.refused else 0


@command.command("list")
@click.argument("operation", metavar="[OPERATION]", required=False)
@options.catalog
@options.format_("text", "json")
def list_(operation: str | None, format_: str) -> int:
    """Print all unsafe operations that were ever asked for, or all that is known of OPERATION.

    The same as the view catalog_migrate.unsafe_operations, without Spark.

    \b
    Example:
      catalog-migrate unsafe list
      catalog-migrate unsafe list 20260131T120000000000-1a2b3c --format json
    """
    settings = options.settings()
    if operation is not None:
        found = streams.unsafe_operation(settings, operation)
        emit(as_json(found) if format_ == "json" else as_columns([
            (name if first else "", text) for name, value in found.items() if value is not None
            for first, text in _in_lines(value)
        ]))
        return 0
    entries = streams.unsafe_operations(settings)
    if format_ == "json":
        emit(as_json(entries))
    elif entries:
        emit(as_columns([_LISTED, *(tuple(_cell(each[name]) for name in _LISTED)
                                    for each in entries)]))
    else:
        emit("no unsafe operations\n")
    return 0


_LISTED = (
    "operation", "kind", "state", "sources", "who", "doubled", "skipped", "actual_doubled",
    "actual_skipped", "undoes", "reason",
)


def _in_lines(value: Any) -> list[tuple[bool, str]]:
    """A value as text, each element of a list on a line of its own; whether it is the first."""
    listed = value if isinstance(value, list) else [value]
    return [(number == 0, _cell(each)) for number, each in enumerate(listed)]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{name}: {text}" for name, text in value.items())
    return "" if value is None else str(value)


@command.command("backfill")
@click.argument("operation", metavar="OPERATION")
@options.catalog
def backfill(operation: str) -> int:
    """Read what OPERATION skipped from here, with Spark; a runtime does it by itself.

    Cut off at any moment it goes on where it was: each record comes into the table once.

    \b
    Example:
      catalog-migrate unsafe backfill 20260131T120000000000-1a2b3c
    """
    read = streams.read_skipped(options.settings(), operation, on_note=note)
    emit(f"operation {operation}: {'done' if read else 'there is nothing to read'}\n")
    return 0


@command.command("acknowledge")
@click.argument("operation", metavar="OPERATION")
@options.catalog
def acknowledge(operation: str) -> int:
    """Note that OPERATION was seen, so that `status` shows it no more; its row stays for good.

    \b
    Example:
      catalog-migrate unsafe acknowledge 20260131T120000000000-1a2b3c
    """
    fresh = streams.acknowledge(options.settings(), operation)
    emit(f"operation {operation} {'acknowledged' if fresh else 'was acknowledged before'}\n")
    return 0


# -- shared ----------------------------------------------------------------------------------------


def _act(
    sources: Sequence[str], actions: Sequence[UnsafeAction], acting: dict[str, Any]
) -> int:
    moves = streams.Moves(
        [_pair(text, "--partition") for text in acting.get("partitions", ())],
        acting.get("everywhere"), acting.get("file"),
    )

    def ask(state: State) -> Request:
        return streams.unsafe_request(
            state, sources, actions, moves, below=acting["below"], settings=_settings(acting),
            translate=None if acting["translate_by"] is None else acting["ties"],
            reason=acting["reason"] or "",
        )

    return _ask(ask, acting)


def _settings(acting: dict[str, Any]) -> Request:
    from catalog_migrate.streams.positions.requests import CHUNK, Request

    return Request(
        policy=acting["policy"], accept_new_topic=acting["accept_new_topic"],
        skip_validate=acting["skip_validate"], tolerance=acting["tolerance"],
        backfill=acting["backfill"], chunk=CHUNK if acting["chunk"] is None else acting["chunk"],
    )


def _ask(ask: Callable[[State], Request], acting: dict[str, Any]) -> int:
    settings, format_ = options.settings(), acting["format_"]
    if acting["only_plan"] or acting["out"] is not None:
        plan = streams.plan_unsafe(
            settings, ask, reason=acting["reason"] or "", with_times=acting["with_times"],
            on_note=note,
        )
        return _dry(settings, plan, acting)
    if format_ not in ("text", "json"):
        raise UsageError(
            f"--format {format_} is for the report of a dry run", remedy="add --plan, or leave it"
        )
    result = streams.run_unsafe(
        settings, ask, reason=acting["reason"], confirm=asking_unsafe(), key=acting["key"],
        on_note=note,
    )
    return _report(result, format_)


def _dry(settings: Settings, plan: UnsafePlan, acting: dict[str, Any]) -> int:
    """Print or save a dry run, and say how it is carried out."""
    from shlex import quote

    from catalog_migrate.report.unsafe import report_unsafe
    from catalog_migrate.streams.positions.plan import encode_plan

    out = acting["out"]
    report = report_unsafe(
        plan, streams.unsafe_steps(settings, plan), catalog=settings.text("catalog.uri"), at=now()
    )
    forms = make_forms(report, settings, lambda: encode_plan(plan).decode())
    form = emit_forms(forms, acting["format_"], out, otherwise="json")
    code = REFUSED if plan.refused else 0
    if out == "-":  # a program reads it, so nothing else is said
        return code
    saved = form == "json"  # another form is to be looked at only
    if form is not None and not saved:
        note(f"saved to {out}")
    if not plan.changes:
        return code
    if plan.refused:
        where = f"the plan is saved in {out}, " if saved else ""
        note(f"{where}nothing was done; it would be refused as it is: fix what is named, or "
             "--skip-validate")
        return code
    reason = "" if plan.reason.strip() else " --reason 'WHY'"
    if saved:
        note(f"the plan is saved in {out}, nothing was done; to look at it again: catalog-migrate "
             f"unsafe plan {quote(out)}")
        note(f"to do it: catalog-migrate unsafe apply {quote(out)}{reason}")
    else:
        without = "--plan" if out is None else "--out"
        with_reason = f", with{reason}" if reason else ""
        note(f"nothing was done; to do it, run it again without {without}{with_reason}")
    return code


def _report(result: Result, format_: str) -> int:
    for line in result.notices:
        note(line)
    emit(
        as_json(statement_result(result)) if format_ == "json" else result.summary + "\n"
    )
    return 0


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.strip():
        # what stands behind the mark is not shown: it may be a secret
        raise UsageError(
            f"{flag} {name}{found}: KEY=VALUE is expected", remedy=f"write {flag} name=value"
        )
    return name.strip(), value
