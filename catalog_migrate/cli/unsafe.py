"""``unsafe``: the last resort when the upstream changed under a source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from catalog_migrate.cli.options import (
    NewFile,
    catalog_option,
    format_option,
    one_of,
    put_once,
    settings_of,
    yes_option,
)
from catalog_migrate.cli.output import as_columns, as_json, emit, note, save_result
from catalog_migrate.cli.sources import open_catalog
from catalog_migrate.errors import UsageError

if TYPE_CHECKING:
    from catalog_migrate.api import Catalog
    from catalog_migrate.catalog.state import State
    from catalog_migrate.sql.statements import Unsafe, UnsafeAction
    from catalog_migrate.streams.unsafe.client import Confirm, Outcome
    from catalog_migrate.streams.unsafe.planning import UnsafePlan
    from catalog_migrate.streams.unsafe.requests import Request

Function = TypeVar("Function", bound=Callable[..., Any])

REFUSED = 3
"""Exit code of a dry run whose operation would be refused."""

_TO = "earliest | latest | committed | 'timestamp 2026-01-31T00:00:00Z' | 'duration PT2H' | " \
      "'shift -100'"

_ACTING = (
    catalog_option,
    click.option("--reason", metavar="TEXT", help="Why; required, and kept for good."),
    click.option("--plan", "only_plan", is_flag=True,
                 help="Dry run: print it, do nothing; exit 3 when it would be refused."),
    click.option("--out", metavar="FILE", type=NewFile(),
                 help="Dry run into FILE (- for stdout), for `unsafe apply FILE`."),
    click.option("--with-times", is_flag=True,
                 help="Dry run: say when the records that come twice were written."),
    click.option("--tolerance", type=click.IntRange(min=0), metavar="N", default=None,
                 help="Records that may be doubled or skipped beyond the plan's; else any number."),
    click.option("--skip-validate", is_flag=True, help="Do not try the new properties first."),
    click.option("--id", "key", metavar="ID", help="Under the same ID it is done only once."),
    yes_option,
    format_option("text", "json"),
    click.pass_context,
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
    click.option("--to", "everywhere", metavar="TARGET", multiple=True, callback=one_of,
                 help=f"All partitions: {_TO}."),
    click.option("--file", "file", metavar="FILE", multiple=True, callback=one_of,
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
    ctx: click.Context, sources: tuple[str, ...], sets: tuple[str, ...], secrets: tuple[str, ...],
    drops: tuple[str, ...], reset: bool, partitions: tuple[str, ...], everywhere: str | None,
    file: str | None, **acting: Any,
) -> int:
    """Change properties of sources, those of their connection too; with positions it is a move.

    \b
    Example:
      catalog-migrate unsafe alter shop.orders --set TOPIC=orders_v2 --reset-splits
        --accept-new-topic --reason 'topic was renamed'
    """
    from catalog_migrate.model.external import OptionValue, SecretRef
    from catalog_migrate.sql.statements import DropOptions, ResetSplits, SetOptions

    options: dict[str, OptionValue] = {}
    for text in sets:
        key, value = _pair(text, "--set")
        put_once(options, key, value, f"--set {key}")
    for text in secrets:
        key, name = _pair(text, "--set-secret")
        put_once(options, key, SecretRef(name), f"--set-secret {key}")
    actions: list[UnsafeAction] = []
    if options:
        actions.append(SetOptions(options))
    if drops:
        actions.append(DropOptions(drops))
    if reset:
        actions.append(ResetSplits())
    return _act(ctx, sources, actions, partitions, everywhere, file, acting)


@command.command("reset-splits")
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@click.option("--partition", "splits", multiple=True, metavar="TOPIC:N",
              help="Only this one; may be given several times.")
@_with(*_CHOOSING, *_ACTING)
def reset_splits(
    ctx: click.Context, sources: tuple[str, ...], splits: tuple[str, ...], **acting: Any
) -> int:
    """Forget partitions and positions, discover again, begin at START.

    \b
    Example:
      catalog-migrate unsafe reset-splits shop.orders --accept-new-topic --reason 'recreated'
    """
    from catalog_migrate.sql.statements import ResetSplits

    return _act(ctx, sources, [ResetSplits(splits)], (), None, None, acting)


@command.command("inject-offsets")
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@_with(*_POSITIONS, *_CHOOSING, *_ACTING)
def inject_offsets(
    ctx: click.Context, sources: tuple[str, ...], partitions: tuple[str, ...],
    everywhere: str | None, file: str | None, **acting: Any,
) -> int:
    """Let partitions go on at positions of your choice; those not named stay.

    \b
    Example:
      catalog-migrate unsafe inject-offsets shop.orders --partition orders:0=123
        --reason 'record 122 cannot be read'
    """
    if not partitions and everywhere is None and file is None:
        raise UsageError("no position is given", remedy="--partition, --to or --file")
    return _act(ctx, sources, [], partitions, everywhere, file, acting)


@command.command("undo")
@click.argument("operation", metavar="OPERATION")
@click.option("--restore-table", is_flag=True,
              help="Take the table back too, to what it held when OPERATION had "
              "stopped the source; sinks below go on after that. Only for an operation on one "
              "source.")
@_with(*_ACTING)
def undo(ctx: click.Context, operation: str, restore_table: bool, **acting: Any) -> int:
    """Put back what OPERATION changed: definition and positions, by another operation.

    Positions are the next record to read. Rows that came since stay in the table, and the plan
    says what comes again; with --restore-table they go, exactly, unless somebody else has written
    into the table. Of a sink below, doubled are rows that it sends again.

    \b
    Example:
      catalog-migrate unsafe undo 20260131T120000000000-1a2b3c --reason 'wrong topic'
    """
    import msgspec

    from catalog_migrate.streams.unsafe.undo import undo_request

    dry = acting["only_plan"] or acting["out"] is not None
    opened = _opened(ctx, acting["catalog"], write=not dry)
    request = msgspec.structs.replace(
        undo_request(opened.state(), operation, restore_table=restore_table),
        tolerance=acting["tolerance"], skip_validate=acting["skip_validate"],
    )
    return _run(opened, request, acting)


@command.command("apply")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--tolerance", default=0, show_default=True, type=click.IntRange(min=0),
              metavar="N", help="Records that may be doubled or skipped beyond the plan's.")
@click.option("--reason", metavar="TEXT", help="Why, where the plan was made without a reason.")
@catalog_option
@click.option("--id", "key", metavar="ID", help="Under the same ID it is done only once.")
@yes_option
@format_option("text", "json")
@click.pass_context
def apply_file(
    ctx: click.Context, file: str, tolerance: int, reason: str | None, catalog: str | None,
    key: str | None, yes: bool, format_: str,
) -> int:
    """Do what the dry run in FILE says; exit 4 when it would be more than that by now.

    \b
    Example:
      catalog-migrate unsafe reset-splits shop.orders --out plan.json --reason recreated
      catalog-migrate unsafe apply plan.json --tolerance 100 --yes
    """
    from catalog_migrate.streams.unsafe.planning import approved, read_plan

    opened = _opened(ctx, catalog, write=True)
    plan = read_plan(file)
    request = approved(opened.state(), plan, tolerance)
    outcome = opened.unsafe(on_progress=note).run(
        request, reason or plan.reason, confirm=asking(yes=yes), key=key
    )
    return _report(outcome, format_)


@command.command("plan")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
def show_plan(file: str) -> int:
    """Print a dry run that was saved with --out; exit 3 when validation had refused it.

    \b
    Example:
      catalog-migrate unsafe plan plan.json
    """
    from catalog_migrate.streams.unsafe.planning import read_plan
    from catalog_migrate.streams.unsafe.render import render

    plan = read_plan(file)
    emit(render(plan) + "\n")
    return REFUSED if plan.refused else 0


@command.command("list")
@click.argument("operation", metavar="[OPERATION]", required=False)
@catalog_option
@format_option("text", "json")
@click.pass_context
def list_(ctx: click.Context, operation: str | None, catalog: str | None, format_: str) -> int:
    """Print all unsafe operations that were ever asked for, or all that is known of OPERATION.

    The same as the view catalog_migrate.unsafe_operations, without Spark.

    \b
    Example:
      catalog-migrate unsafe list
      catalog-migrate unsafe list 20260131T120000000000-1a2b3c --format json
    """
    from catalog_migrate.streams.unsafe.history import entry, history
    from catalog_migrate.streams.unsafe.undo import operation_row

    state = _opened(ctx, catalog, write=False).state()
    if operation is not None:
        found = entry(operation, operation_row(state, operation))
        emit(as_json(found) if format_ == "json" else as_columns([
            (name if first else "", text) for name, value in found.items() if value is not None
            for first, text in _in_lines(value)
        ]))
        return 0
    entries = history(state)
    if format_ == "json":
        emit(as_json(entries))
    elif entries:
        emit(as_columns([_LISTED, *(tuple(_told(each[name]) for name in _LISTED)
                                    for each in entries)]))
    else:
        emit("there was no unsafe operation\n")
    return 0


_LISTED = (
    "operation", "kind", "state", "sources", "who", "doubled", "skipped", "actual_doubled",
    "actual_skipped", "undoes", "reason",
)


def _in_lines(value: Any) -> list[tuple[bool, str]]:
    """A value as text, each element of a list on a line of its own; whether it is the first."""
    listed = value if isinstance(value, list) else [value]
    return [(number == 0, _told(each)) for number, each in enumerate(listed)]


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{name}: {text}" for name, text in value.items())
    return "" if value is None else str(value)


@command.command("backfill")
@click.argument("operation", metavar="OPERATION")
@catalog_option
@click.pass_context
def backfill(ctx: click.Context, operation: str, catalog: str | None) -> int:
    """Read what OPERATION skipped from here, with Spark; a runtime does it by itself.

    Cut off at any moment it goes on where it was: each record comes into the table once.

    \b
    Example:
      catalog-migrate unsafe backfill 20260131T120000000000-1a2b3c
    """
    from catalog_migrate.cli.sources import local_spark
    from catalog_migrate.streams.spark.engine import SparkQueries
    from catalog_migrate.streams.unsafe.undo import operation_row

    settings = settings_of(ctx, catalog=catalog)
    opened = open_catalog(settings, write=True)
    operation_row(opened.state(), operation)  # an unknown one is told before Spark starts
    client = opened.unsafe(on_progress=note)
    with local_spark(settings) as spark:
        read = client.read_skipped(operation, SparkQueries(spark))
    emit(f"operation {operation}: {'done' if read else 'there is nothing to read'}\n")
    return 0


@command.command("acknowledge")
@click.argument("operation", metavar="OPERATION")
@catalog_option
@click.pass_context
def acknowledge(ctx: click.Context, operation: str, catalog: str | None) -> int:
    """Note that OPERATION was seen, so that `status` shows it no more; its row stays for good.

    \b
    Example:
      catalog-migrate unsafe acknowledge 20260131T120000000000-1a2b3c
    """
    from datetime import datetime, timezone

    from catalog_migrate.streams.unsafe.client import who

    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    opened = _opened(ctx, catalog, write=True)
    fresh = opened.acknowledge(operation, who=who(), at=now)
    emit(f"operation {operation} {'acknowledged' if fresh else 'was acknowledged before'}\n")
    return 0


# -- shared ----------------------------------------------------------------------------------------


def asking(*, yes: bool) -> Confirm:
    """Shows the plan, and lets the name of a source be typed on a terminal unless ``yes``.

    Where neither is possible nobody is asked.
    """
    from catalog_migrate.streams.unsafe.client import nobody
    from catalog_migrate.streams.unsafe.render import render

    def ask(plan: UnsafePlan) -> bool:
        note(render(plan))
        if yes:
            return True
        name = plan.items[0].name
        return bool(click.prompt(f"type {name} to go on", default="", show_default=False) == name)

    return ask if yes or (sys.stdin is not None and sys.stdin.isatty()) else nobody


def _opened(ctx: click.Context, catalog: str | None, *, write: bool) -> Catalog:
    return open_catalog(settings_of(ctx, catalog=catalog), write=write)


def _act(
    ctx: click.Context, sources: Sequence[str], actions: list[UnsafeAction],
    partitions: Sequence[str], everywhere: str | None, file: str | None, acting: dict[str, Any],
) -> int:
    from catalog_migrate.sql.statements import Unsafe
    from catalog_migrate.streams.unsafe.requests import joint

    dry = acting["only_plan"] or acting["out"] is not None
    opened = _opened(ctx, acting["catalog"], write=not dry)
    state = opened.state()
    settings = {"POLICY": acting["policy"]}
    if acting["tolerance"] is not None:
        settings["TOLERANCE"] = str(acting["tolerance"])
    if acting["chunk"] is not None:
        settings["CHUNK"] = str(acting["chunk"])
    if acting["translate_by"] is not None:
        settings |= {"TRANSLATE BY": acting["translate_by"], "TIES": acting["ties"]}
    sources = _with_those_below(state, sources, acting["below"])
    for name, flag in (("ACCEPT NEW TOPIC", "accept_new_topic"),
                       ("BACKFILL", "backfill"), ("SKIP VALIDATE", "skip_validate")):
        if acting[flag]:
            settings[name] = "true"
    statements: list[Unsafe] = [
        Unsafe(
            "source", source,
            (*actions, *_injections(state, source, partitions, everywhere, file, acting)),
            acting["reason"] or "", settings,
        )
        for source in sources
    ]
    return _run(opened, joint(statements, state), acting)


def _with_those_below(state: State, sources: Sequence[str], below: str | None) -> list[str]:
    """The sources named and those of a connection, each once; UsageError for none at all."""
    from catalog_migrate.streams import dependencies

    found = list(sources)
    if below is not None:
        named = {dependencies.find(state, "source", source).item_id for source in sources}
        connection = dependencies.find(state, "connection", below).item_id
        found += [
            str(state.items[item_id].definition.item_name)
            for item_id in dependencies.dependents(state, connection)
            if state.items[item_id].definition.kind == "source" and item_id not in named
        ]
    if not found:
        raise UsageError("no source is named", remedy="name one, or --below CONNECTION")
    return found


def _injections(
    state: State, source: str, partitions: Sequence[str], everywhere: str | None,
    file: str | None, acting: dict[str, Any],
) -> list[UnsafeAction]:
    from catalog_migrate.sql.statements import InjectOffsets
    from catalog_migrate.streams import dependencies
    from catalog_migrate.streams.unsafe.exported import read_exported, targets_of
    from catalog_migrate.streams.unsafe.forecast import partition_of, split_of

    if file is not None and everywhere is not None:
        raise UsageError("--file and --to cannot both be given", remedy="leave one of them away")
    targets: dict[str, str | None] = {}
    if file is not None:
        stream = state.streams.get(dependencies.find(state, "source", source).item_id)
        targets.update(
            targets_of(
                read_exported(Path(file).read_bytes(), file), file,
                stream.topics if stream is not None else {},
                other_topics=acting["accept_new_topic"],
            )
        )
    for text in partitions:
        written, target = _pair(text, "--partition")
        split = split_of(partition_of(written))
        put_once(
            targets, split, None if target.lower() == "null" else target, f"--partition {split}"
        )
    found: list[UnsafeAction] = []
    if everywhere is not None:
        found.append(InjectOffsets(everywhere=everywhere))
    if targets:
        found.append(InjectOffsets(targets))
    return found


def _run(opened: Catalog, request: Request, acting: dict[str, Any]) -> int:
    client = opened.unsafe(on_progress=note)
    if acting["only_plan"] or acting["out"] is not None:
        plan = client.plan(request, acting["reason"] or "", with_times=acting["with_times"])
        return _dry(plan, acting)
    outcome = client.run(
        request, acting["reason"], confirm=asking(yes=acting["yes"]),
        key=acting["key"],
    )
    return _report(outcome, acting["format_"])


def _dry(plan: UnsafePlan, acting: dict[str, Any]) -> int:
    from shlex import quote

    from catalog_migrate.streams.unsafe.planning import encode_plan
    from catalog_migrate.streams.unsafe.render import render

    out, code = acting["out"], REFUSED if plan.refused else 0
    if out == "-":  # a program reads it, so nothing else is printed
        emit(encode_plan(plan).decode())
        return code
    if out is not None:
        save_result(out, encode_plan(plan).decode())
    emit(encode_plan(plan).decode() if acting["format_"] == "json" else render(plan) + "\n")
    if not plan.changes:
        return code
    if plan.refused:
        where = "" if out is None else f"the plan is saved in {out}, "
        note(f"{where}nothing was done; it would be refused as it stands: mend what is named, or "
             "--skip-validate")
        return code
    reason = "" if plan.reason.strip() else " --reason 'WHY'"
    if out is not None:
        note(f"the plan is saved in {out}, nothing was done; to look at it again: catalog-migrate "
             f"unsafe plan {quote(out)}")
        note(f"to do it: catalog-migrate unsafe apply {quote(out)}{reason}")
    else:
        with_reason = f", with{reason}" if reason else ""
        note(f"nothing was done; to do it, say the same without --plan{with_reason}")
    return code


def _report(outcome: Outcome, format_: str) -> int:
    from catalog_migrate.streams.execute import unsafe_result

    result = unsafe_result(outcome)
    for line in result.notices:
        note(line)
    emit(
        as_json({"summary": result.summary, "operation": result.operation,
                 "notices": list(result.notices)})
        if format_ == "json" else result.summary + "\n"
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
