"""``status``, ``show``, ``history``, ``graph``, ``drift``: what is in force, and what stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.registrations import compare_registrations
from catalog_migrate.api.streams import lag_limits, streams_health
from catalog_migrate.api.users import look_at_users
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import (
    as_columns,
    as_json,
    confirm,
    emit,
    emit_forms,
    emit_value,
    make_forms,
    note,
    now,
    pick,
)
from catalog_migrate.errors import UsageError
from catalog_migrate.model.wording import list_first, one_line
from catalog_migrate.report import FORMATS, GRAPH_FORMATS

if TYPE_CHECKING:
    from catalog_migrate.api import Status
    from catalog_migrate.api.registrations import Comparison
    from catalog_migrate.api.users import UserObjects
    from catalog_migrate.catalog.history import Entry, ObjectEntry
    from catalog_migrate.catalog.records import SessionRecord, UserObjectRecord
    from catalog_migrate.config import Settings
    from catalog_migrate.streams.ddl.health import StreamsHealth
    from catalog_migrate.streams.positions.audit import Unseen
    from catalog_migrate.streams.runtime.lag import Lag

_WORK_SHOWN = 20
_SESSIONS_SHOWN = 10
_UNSAFE_SHOWN = 3


@click.command("status")
@options.catalog
@options.serial
@click.option("--streams", is_flag=True,
              help="Say how every source and sink is, and how far behind; exit 7 as below.")
@click.option("--users", is_flag=True,
              help="Look again at the views and functions of users that read the catalog's objects"
              " (starts Spark), and list all of them.")
@options.conf
@options.format_("text", "json")
@click.option("--detailed-exitcode", is_flag=True,
              help="Exit with 2 instead of 0 when changes are pending, and with 7 as below.")
def status(
    serial: int | None, streams: bool, users: bool, format_: str, detailed_exitcode: bool
) -> int:
    """Say which release is in force, who holds the lease, what is pending and what failed.

    Exit 7, with --streams or --detailed-exitcode: a source or sink is held, backs off, has lost its
    runtime or is behind a limit (streams.lag_records, lag_bytes, lag_seconds). 7 goes before 2.

    \b
    Example:
      catalog-migrate status --catalog catalog --format json
      catalog-migrate status --catalog catalog --serial 3
      catalog-migrate status --streams --catalog catalog
      catalog-migrate status --users --catalog catalog
    """
    if users and (streams or serial is not None or detailed_exitcode):
        raise UsageError(
            "--users says how users' objects are now",
            remedy="leave --users, or --streams, --serial and --detailed-exitcode out",
        )
    if streams and serial is not None:
        raise UsageError(
            "--streams says how sources and sinks are now", remedy="leave --serial or --streams out"
        )
    settings = options.settings()
    if users:
        emit_value(look_at_users(settings, on_note=note), format_, users_document, users_text)
        return 0
    if streams:
        return _show_streams(settings, format_, detailed=detailed_exitcode)
    return _show_status(settings, serial, format_, detailed=detailed_exitcode)


def _show_streams(settings: Settings, format_: str, *, detailed: bool) -> int:
    opened = open_catalog(settings)
    pending = detailed and opened.status().pending
    health = streams_health(settings, opened, lags=True)
    emit_value(health, format_, streams_document, streams_text)
    if not health.ok:
        return options.STREAMS_NOT_WELL
    return 2 if pending else 0


def _show_status(settings: Settings, serial: int | None, format_: str, *, detailed: bool) -> int:
    opened = open_catalog(settings)
    found = opened.status(serial)
    past = serial is not None and serial != opened.state().serial
    well = not detailed or past or streams_health(
        settings, opened, lags=lag_limits(settings).declared
    ).ok
    emit_value(found, format_, status_document, partial(status_text, past=past))
    if not well:
        return options.STREAMS_NOT_WELL
    return 2 if detailed and found.pending else 0


def streams_document(health: StreamsHealth) -> dict[str, object]:
    """How sources and sinks are, for programs."""
    return {
        "ok": health.ok,
        "streams": health.queries,
        "runtimes": [
            {
                **pick(each, "cluster", "holder", "since"),
                "heartbeat_seconds": each.heartbeat, "lives": each.lives,
            }
            for each in health.runtimes
        ],
    }


def streams_text(health: StreamsHealth) -> str:
    """How sources and sinks are, for people: what needs them comes last."""
    lines = []
    if health.queries:
        head = ("kind", "name", "cluster", "state", "lag", "batch", "rows", "reported (UTC)")
        rows = [
            (
                each.kind, each.name, each.cluster, each.state, lag_text(each.lag),
                *("-" if number is None else f"{number:,}" for number in (each.batch, each.rows)),
                "-" if each.at is None else each.at[:19].replace("T", " "),
            )
            for each in health.queries
        ]
        lines.append(as_columns([head, *rows]).rstrip("\n"))
    else:
        lines.append("no sources and no sinks")
    for runtime in health.runtimes:
        held = f"{runtime.holder} since {runtime.since}"
        if runtime.holder is None:
            held = "none"
        elif runtime.dead:
            held += "; that process is dead"
        elif runtime.heartbeat is not None:
            held += f"; its lease was renewed {runtime.heartbeat:.0f} s ago"
        lines.append(f"runtime of {runtime.cluster}: {held}")
    for query in health.queries:
        if not query.ok:
            lines.append(f"{query.kind} {query.name}: {query.state}")
            lines += [f"  {reason}" for reason in query.reasons]
            lines += [f"  remedy: {query.remedy}"] * (query.remedy is not None)
            lines += [f"  next: {query.next}"] * (query.next is not None)
    return "\n".join(lines) + "\n"


def lag_text(lag: Lag) -> str:
    """What is known of a lag, in a cell."""
    parts = [
        f"{number:,} {name}" for name, number in (
            ("records", lag.records), ("versions", lag.versions), ("bytes", lag.bytes),
        ) if number is not None
    ]
    if lag.seconds is not None:
        parts.append(f"{lag.seconds:.0f} s")
    return ", ".join(parts) or "-"


def status_document(status: Status) -> dict[str, object]:
    """The status for programs; ``pending`` is 0 when reconciled."""
    lease = status.lease
    return {
        **pick(status, "release", "serial", "lineage", "pending", "work", "failure"),
        "lease": None if lease is None or not lease.holder else {
            **pick(lease, "holder", "host", "pid", "since", "epoch"), "gone": status.holder_ended,
        },
        **pick(status, "objects", "unfilled", "warehouse"),
        "history": [
            {"release": name, "serial": serial, "in_force": in_force}
            for name, serial, in_force in status.history
        ],
        **pick(status, "unsafe", "refused"),
        "sessions": [
            {
                "id": key,
                **pick(row, "release", "serial", "holder", "host", "pid", "since"),
                "processes": row.folded or 1,
            }
            for key, row in status.sessions
        ],
        "still": [
            pick(each, "kind", "name", "state", "reasons", "remedy", "next", "statements")
            for each in status.still
        ],
        "gone": [
            {**pick(each, "name", "reason"), "next": each.remedy} for each in status.gone
        ],
        **pick(status, "slots", "earlier"),
        "users": [user_object_document(each) for each in status.users],
    }


def status_text(status: Status, *, past: bool = False) -> str:
    """The status for people; of a ``past`` serial only what was in force, as nothing is to do."""
    lines = [
        *_fact("release", status.release or "none"),
        *_fact("serial", status.serial),
        *_fact("lineage", status.lineage),
        *_fact("objects", f"{status.objects:,}"),
        *_fact("warehouse", status.warehouse),
    ]
    if not past:
        lines += [
            *_work_lines(status), *_trouble_lines(status), *_unsafe_lines(status.unsafe),
            *_session_lines(status.sessions), *_next_lines(status),
        ]
    return "\n".join(lines) + "\n"


def _fact(label: str, text: object, *details: str) -> list[str]:
    """Return the line of a fact, and one for each detail of it."""
    return [f"{label:<10} {text}", *(f"{'':<12} {detail}" for detail in details if detail)]


def _work_lines(status: Status) -> list[str]:
    lease, held = status.lease, "free"
    if lease is not None and lease.holder:
        held = f"{lease.holder} on {lease.host} (process {lease.pid}) since {lease.since}"
        if status.holder_ended:
            held += "; that process has ended: the next that needs the lease takes it"
    failure = [f"  {name}: {value}" for name, value in (status.failure or {}).items()]
    return [
        *_fact("lease", held),
        *_fact("pending", status.pending or "nothing: reconciled"),
        *list_first([f"  {entry}" for entry in status.work], _WORK_SHOWN, "  … and {:,} more"),
        *(["failing step", *failure] if failure else ()),
    ]


def _trouble_lines(status: Status) -> Iterator[str]:
    for each in status.refused:
        yield from _fact("refused", each)
    if status.unfilled:
        yield from _fact("unfilled", ", ".join(status.unfilled))
    for lost in status.gone:
        yield from _fact("gone", f"{lost.name}: {lost.reason}", f"next: {lost.remedy}")
    for query in status.still:
        yield from _fact(
            "still", f"{query.kind} {query.name}: {query.state}", *query.reasons,
            query.remedy and f"remedy: {query.remedy}", f"next: {query.next}",
        )
    for slot in status.slots:
        yield from _fact("slot", slot)
    for source in status.earlier:
        yield from _fact("earlier", source)
    for user in status.users:
        yield from _fact("users", user, f"next: {next_for_user(user)}")


def _unsafe_lines(unseen: Sequence[Unseen]) -> Iterator[str]:
    for each in unseen[-_UNSAFE_SHOWN:]:
        what = f"undo of {each.undoes}" if each.undoes else each.kind
        yield from _fact(
            "unsafe", f"operation {each.operation} on {each.sources}: {each.reason}",
            f"{what}, {each.state}, {each.at}: {each.partitions} partitions, "
            f"{each.doubled} doubled, {each.skipped} skipped",
            f"seen? catalog-migrate unsafe acknowledge {each.operation}",
        )
    older = len(unseen) - _UNSAFE_SHOWN
    if older > 0:
        yield f"  … and {older} older, not acknowledged: catalog-migrate unsafe list"


def _session_lines(sessions: Sequence[tuple[str, SessionRecord]]) -> list[str]:
    if not sessions:
        return []
    rows = [
        f"  {key}: {f'{row.folded} processes' if row.folded else f'{row.holder} on {row.host}'}, "
        f"release {row.release}, serial {row.serial}, since {row.since}"
        for key, row in sessions
    ]
    return [
        *_fact("sessions", sum(row.folded or 1 for _, row in sessions)),
        *list_first(rows, _SESSIONS_SHOWN, "  … and {} more rows"),
    ]


def _next_lines(status: Status) -> list[str]:
    """The command that does what is pending."""
    if not status.pending or status.gone:
        return []
    at_work = status.lease is not None and status.lease.holder and not status.holder_ended
    first = "wait for the holder of the lease; if it has ended, " if at_work else ""
    finish = (
        "catalog-migrate bootstrap, or start the application"
        if status.release is not None else "catalog-migrate run"
    )
    return _fact("next", first + finish)


def users_document(looked: UserObjects) -> dict[str, object]:
    """Users' objects for programs."""
    return {
        "users": [
            {**user_object_document(each), "reads": list(each.reads)} for each in looked.records
        ],
        "failures": list(looked.failures),
    }


def users_text(looked: UserObjects) -> str:
    """Users' objects for people: what they could do something about comes last."""
    rows = [
        (each.kind, str(each.key.item_name), each.state, each.since[:19].replace("T", " "),
         each.release)
        for each in looked.records
    ]
    head = ("kind", "name", "state", "since (UTC)", "release")
    lines = [as_columns([head, *rows]).rstrip("\n")] if rows else [
        "no view or function of a user reads an object of the catalog"
    ]
    for each in looked.records:
        if each.state != "bound":
            lines += [str(each), f"  next: {next_for_user(each)}"]
    return "\n".join([*lines, *looked.failures]) + "\n"


def user_object_document(record: UserObjectRecord) -> dict[str, object]:
    """A user's view or function for programs."""
    return {
        "kind": record.kind, "name": str(record.key.item_name),
        **pick(record, "state", "condition", "reason", "release", "since"),
        "next": next_for_user(record),
    }


def next_for_user(record: UserObjectRecord) -> str | None:
    """What can be done about the state of a user's view or function, None where it binds."""
    if record.state == "bound":
        return None
    looks_again = "catalog-migrate status --users looks again"
    if record.state == "unknown":
        return looks_again
    return f"its owner alters or drops it (catalog-migrate show {record.key}); {looks_again}"


@click.command("show")
@click.argument("name")
@options.catalog
@options.serial
@options.format_("text", "json")
def show(name: str, serial: int | None, format_: str) -> None:
    """Show the object NAME (schema.name, or kind:schema.name for a function or type).

    `item` names the object for life, through renames and migrations; `id` its present columns:
    another id means other columns, of it or of what it reads. Two ids with one `fingerprint` have
    the same columns: names, types and NOT NULL, in order.

    \b
    Example:
      catalog-migrate show shop.orders --catalog catalog --format json
      catalog-migrate show shop.orders --catalog catalog --serial 3
    """
    found = open_catalog(options.settings()).show(name, serial)
    emit_value(found, format_, dict, object_text)


def object_text(found: dict[str, Any]) -> str:
    """One object for people: its facts, columns, neighbours and text."""
    facts = [
        (label, str(found[key]))
        for label, key in (
            ("kind", "kind"), ("item", "item_id"), ("id", "id"), ("fingerprint", "fingerprint"),
            ("contents", "contents"), ("location", "location"), ("comment", "comment"),
            ("state", "state"), ("since", "since"), ("by release", "release"),
            ("error", "condition"), ("reason", "reason"),
        )
        if found.get(key) is not None
    ]
    columns = [
        (column["name"], column["type"], "" if column["nullable"] else "NOT NULL",
         column.get("comment") or "")
        for column in found["columns"]
    ]
    checks = [(check["name"], check["expression"]) for check in found.get("checks", ())]
    return "\n".join([
        *_block(str(found["name"]), as_columns(facts).splitlines()),
        *_block("columns", as_columns(columns).splitlines()),
        *_block("checks", as_columns(checks).splitlines()),
        *_block("depends on", found["depends_on"]),
        *_block("used by", found["used_by"]),
        *_block("read by users' objects", found["users_objects"]),
        *_block("sql", (found.get("sql") or "").splitlines()),
        *_block("sql before its repair", (found.get("original") or "").splitlines()),
    ]) + "\n"


def _block(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []


@click.command("history")
@click.argument("name", required=False)
@options.catalog
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N entries only.")
@click.option(
    "--all", "everything", is_flag=True,
    help="Also commits that only prepare, tidy or book (leases, intents, compaction).",
)
@options.format_("text", "json")
def history(name: str | None, limit: int | None, everything: bool, format_: str) -> None:
    """List what was changed, newest first: by whom, from which host, serial before and after.

    With NAME (schema.name, or kind:schema.name) only what changed that object, through renames.
    Needs no Spark and writes nothing.

    \b
    Example:
      catalog-migrate history --limit 10 --catalog catalog
      catalog-migrate history shop.orders --catalog catalog --format json
    """
    opened = open_catalog(options.settings())
    limit = None if limit is None else min(limit, sys.maxsize)  # more than islice takes is all
    if name is not None:
        rows = [
            {**entry_document(one.entry), **about(one)} for one in islice(
                opened.object_history(name), limit
            )
        ]
    else:
        rows = [
            entry_document(entry) for entry in islice(opened.history(everything=everything), limit)
        ]
    emit_value(rows, format_, list, history_text)


_OWN_VIEWS = "own views"
"""What people read for a commit of the catalog's own schema and views."""


def entry_document(entry: Entry) -> dict[str, Any]:
    """One entry for programs."""
    return {
        "serial": entry.serial_after,
        **pick(
            entry, "serial_before", "at", "verb", "who", "host", "release", "reason", "epoch",
            "version", "commit_id",
        ),
    }


def about(one: ObjectEntry) -> dict[str, Any]:
    """What an entry did to the object that was asked for."""
    return {"happening": one.happening, "name": one.name, "id": one.global_id}


def history_text(rows: list[dict[str, Any]]) -> str:
    """Entries for people, one a line."""
    if not rows:
        return "nothing\n"
    about_object = "happening" in rows[0]
    head = ["serial", "when (UTC)", "what", "release", "who"]
    if about_object:
        head += ["object", "id"]
    lines = [[*head, "reason"]]
    for row in rows:
        before, after = row["serial_before"], row["serial"]
        line = [
            str(after) if before in (None, after) else f"{before} -> {after}",
            (row["at"] or "").replace("T", " ")[:19],
            _OWN_VIEWS if row["verb"] == "migrate system" else row["verb"], row["release"] or "",
            "@".join(part for part in (row["who"], row["host"]) if part),
        ]
        if about_object:
            line += [f"{row['happening']} {row['name']}", row["id"]]
        lines.append([*line, one_line(row["reason"] or "")])
    return as_columns(lines)


@click.command("drift")
@options.catalog
@options.conf
@click.option("--repair", is_flag=True, help="Mend it; names that are not ours are left alone.")
@options.timeout
@options.format_(*FORMATS)
@options.out
@options.detailed
@options.answers
def drift(
    repair: bool, format_: str, out: str | None, detailed_exitcode: bool
) -> int:
    """Compare the names in Spark's catalog with what is committed, and fix them with --repair.

    Of use where names outlive the session (spark.metastore). Exit 2 with --detailed-exitcode when
    something differs and was not repaired.

    \b
    Example:
      catalog-migrate drift --catalog catalog --detailed-exitcode
      catalog-migrate drift --catalog catalog --out drift.html
      catalog-migrate drift --catalog catalog --repair --yes
    """
    from catalog_migrate.report.registrations import report_drift

    def confirm_repair(count: int) -> bool:
        return confirm(f"Mend {count}?")

    settings = options.settings()
    with progress() as on_progress:
        found = compare_registrations(
            settings, repair=repair, confirm=confirm_repair, on_progress=on_progress, on_note=note,
        )
    report = report_drift(found, catalog=settings.text("catalog.uri"), at=now())
    forms = make_forms(report, settings, lambda: as_json(drift_document(found)))
    if emit_forms(forms, format_, out, otherwise="text") is not None:
        note(f"saved to {out}")
    return 2 if detailed_exitcode and found is not None and found.left else 0


def drift_document(found: Comparison | None) -> dict[str, object]:
    """Drift for programs."""
    if found is None:
        return {"drift": [], "mended": 0, "left": [], "steps": [], "executed": []}
    return {
        "drift": [
            pick(each, "kind", "name", "reason", "remedy", "object") for each in found.found
        ],
        "mended": found.repaired, "left": [each.name for each in found.left],
        **pick(found, "steps", "executed"),
    }


@click.command("graph")
@click.argument("name", required=False)
@click.option("--program", metavar="PLAN", type=click.Path(dir_okay=False),
              help="The steps of this plan file and their waves instead.")
@options.catalog
@options.release
@click.option("--system", is_flag=True, help="Our own built-ins (schema catalog_migrate) too.")
@options.format_(*GRAPH_FORMATS)
@options.out
def graph(
    name: str | None, program: str | None, system: bool, format_: str, out: str | None
) -> None:
    """Print what depends on what: of the release given, else of the catalog.

    Tables, views, functions and types, and secrets, connections, sources, sinks and clusters.
    With NAME only that object, everything it needs and everything that needs it. HTML and SVG are
    pictures to look at; a schema of a large catalog is one box there, which a click opens in HTML.

    With --program the steps that `apply` takes for a plan: steps of one wave go side by side, and
    a wave begins when the one before it has ended. Pictures show which names are absent between.

    \b
    Example:
      catalog-migrate graph --catalog catalog --format html --out graph.html
      catalog-migrate graph shop.orders --release release
      catalog-migrate graph --program plan.json --format svg --out plan.svg
    """
    from catalog_migrate.report.facts import list_base, list_facts
    from catalog_migrate.report.pictures import draw_graph, draw_program

    at = now()

    if program is not None:
        if name is not None or system:
            raise UsageError(
                "--program shows a whole plan", remedy="leave out NAME and --system"
            )
        from catalog_migrate.api.starts import read_plan

        plan = read_plan(program)
        facts: tuple[tuple[str, str], ...] = ()
        if format_ == "html":
            from catalog_migrate.report.outline import describe_plan

            facts = tuple(describe_plan(plan, at))
        emit(draw_program(plan.steps, format_, facts=facts), out)
        return
    settings = options.settings()
    if options.given("release.path") is None:
        state, catalog = open_catalog(settings).state(), settings.text("catalog.uri")
        found, of = state.select_graph(system=system), " in the catalog"
        release = state.release_in_force()
        called = release.name if release else "none"
    else:
        from catalog_migrate.api.releases import release_graph

        state, catalog = None, None
        called, found = release_graph(settings)
        of = f" in release {called}"
    facts = (*list_base(release=called), *list_facts(state, catalog=catalog, at=at))
    emit(draw_graph(found, format_, name, of=of, facts=facts), out)
