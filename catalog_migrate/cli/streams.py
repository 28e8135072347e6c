"""``run``, ``source``, ``sql``: the runtime of a cluster, positions, statements."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.registrations import query
from catalog_migrate.api.streams import cluster_runtime, log_of
from catalog_migrate.api.streams import positions as positions_of
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import show_times
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
    from catalog_migrate.catalog.records import LeaseRecord
    from catalog_migrate.config import Settings
    from catalog_migrate.sql.parser import Parsed
    from catalog_migrate.streams.ddl.execute import Result
    from catalog_migrate.streams.ddl.explanation import Explanation


@click.command("run")
@click.option("--cluster", default="main", show_default=True, metavar="NAME",
              help="The cluster to run; CREATE CLUSTER makes one.")
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(min=0), default=None,
              help="How long to wait for another runtime of this cluster to leave.")
@click.option("--http", metavar="ADDRESS", default=None,
              help="Answer /healthz, /readyz and /metrics (Prometheus) at HOST:PORT, without a "
              "token.")
@options.catalog
@options.conf
def run(cluster: str, wait: float | None, http: str | None) -> int:
    """Run streams: a cluster's sources and sinks. Follows the catalog, carries out ALTERs.

    SIGTERM or Ctrl-C lets current batches end (streams.drain seconds at most), then stops. Exit 5
    when another runtime has the cluster, or took it over.

    \b
    Example:
      catalog-migrate run --cluster main
      catalog-migrate run --cluster main --http 127.0.0.1:9464
      catalog-migrate sql -c 'SHOW SOURCES'
    """
    show_times()
    settings = options.settings()
    note(f"running streams: the sources and sinks of cluster {cluster}")
    with cluster_runtime(settings, cluster, wait=wait, http=http, on_note=note) as runtime:

        def stop(_: int, __: object) -> None:
            note("stopping: current batches may end")
            runtime.request_stop()

        before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            note(f"cluster {cluster}: waiting for the cluster's lease")
            runtime.run(on_wait=_waiting)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    note(f"cluster {cluster} stopped")
    return 0


def _waiting(row: LeaseRecord, waited: float) -> None:
    if int(waited) % 5 == 0 and waited - int(waited) < 1:
        note(f"waiting for {row.holder}, which has the cluster since {row.since}")


@click.group("source")
def source() -> None:
    """Look at a source, or at a sink.

    \b
    Example:
      catalog-migrate source positions shop.orders --format json > offsets.json
      catalog-migrate source log shop.orders --since 1h
    """


@source.command("positions")
@click.argument("name", metavar="SOURCE")
@click.option("--sink", is_flag=True, help="It is a sink: print the version of its table.")
@options.catalog
@options.format_("text", "json")
def positions(name: str, sink: bool, format_: str) -> None:
    """Print where SOURCE stands: per partition the next record to read.

    123 means that the record 122 was read, and 123 comes next. Of a sink it is the version of its
    table that it reads next.

    What `--format json` prints is accepted by `unsafe inject-offsets --file`.

    \b
    Example:
      catalog-migrate source positions shop.orders --format json > offsets.json
    """
    import msgspec

    found = positions_of(options.settings(), name, sink=sink)
    if format_ == "json":
        emit(as_json(msgspec.to_builtins(found)))
        return
    if found.version is not None:
        emit(f"{found.source} reads version {found.version} next\n")
        return
    if found.lsn is not msgspec.UNSET:
        emit(f"{found.source} reads from {found.lsn} on, timeline {found.timeline} of server "
             f"{found.cluster}\n")
        return
    rows = [
        (f"{topic}:{number}", str(offset))
        for topic, partitions in found.positions.items() for number, offset in partitions.items()
    ]
    emit(as_columns([("partition", "next"), *rows]))


@source.command("log")
@click.argument("name", metavar="SOURCE")
@click.option("--sink", is_flag=True, help="It is a sink.")
@click.option("--since", metavar="TIME", help="Nothing older: 30s, 45m, 1h, 2d ago, or a time.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", default=100, show_default=True,
              help="The newest N entries only.")
@options.catalog
@options.format_("text", "json")
def log(name: str, sink: bool, since: str | None, limit: int, format_: str) -> None:
    """Print what the log of its cluster has of SOURCE, the newest last.

    States, batches, rows, lag and errors as its runtime reported them, times in UTC. Needs no Spark
    and no runtime; in SQL it is SHOW SOURCE name LOG.

    \b
    Example:
      catalog-migrate source log shop.orders --since 1h
      catalog-migrate source log shop.out_orders --sink --limit 20 --format json
    """
    rows = log_of(options.settings(), name, sink=sink, since=since, limit=limit)
    _emit_rows(rows.columns, rows.values, format_)


@click.command("sql")
@click.option("-c", "--command", "texts", metavar="SQL", multiple=True,
              help="The statement or statements; several -c are carried out in their order.")
@click.option("-f", "--file", "files", metavar="FILE", multiple=True,
              type=click.File("r", encoding="utf-8"),
              help="A file of statements, `-` for standard input; each is its own commit.")
@options.catalog
@options.conf
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1),
              metavar="N", help="Rows to print at most.")
@options.format_(*FORMATS)
@options.out
@options.yes("Begin UNSAFE operations without asking for the name.")
def sql(
    texts: tuple[str, ...], files: tuple[TextIO, ...], limit: int, format_: str, out: str | None
) -> None:
    """Run statements on connections, sources, sinks, secrets and clusters (docs/statements.md),
    or one SELECT, SHOW, DESCRIBE or EXPLAIN on tables and views; INSERT and its like are refused.

    EXPLAIN of a statement on connections and the like is a report: it has every form, and --out.

    \b
    Example:
      catalog-migrate sql -c "EXPLAIN ALTER CONNECTION c SET (BROKER 'new.example.com:9092')"
      catalog-migrate sql -c 'EXPLAIN DROP CONNECTION c CASCADE' --out explained.html
      catalog-migrate sql -f streams.sql
      catalog-migrate sql -c 'VALIDATE SOURCE bank'
      catalog-migrate sql -c 'SELECT count(*) FROM shop.orders' --catalog catalog
    """
    from catalog_migrate.sql.parser import is_ours, parse
    from catalog_migrate.sql.statements import Explain

    if bool(texts) == bool(files):
        raise UsageError("give -c SQL or -f FILE", remedy="catalog-migrate sql --help")
    # on lines of their own: a text may end in a comment
    statement = "\n;\n".join(texts or [_read(file) for file in files])
    ours = parse(statement) if is_ours(statement) else ()
    explains = len(ours) == 1 and isinstance(ours[0].statement, Explain)
    if not explains and (out is not None or format_ not in ("text", "json")):
        raise UsageError(
            f"{f'--format {format_}' if out is None else '--out'} is for the report of one EXPLAIN"
            " of a statement on streams",
            remedy="write EXPLAIN before one such statement, or leave it to --format text or json",
        )
    settings = options.settings()
    if ours:
        _execute(settings, ours, format_, out)
    else:
        _emit_rows(*query(settings, statement, limit=limit, on_note=note), format_)


def _read(file: TextIO) -> str:
    """The text of a file; UsageError with the place of bytes that are none."""
    try:
        return file.read()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{file.name}:{line}: byte {error.object[error.start]:#04x} is not UTF-8",
            remedy="save the file as UTF-8",
        ) from error


def _emit_rows(columns: Sequence[str], rows: Sequence[tuple[object, ...]], format_: str) -> None:
    if format_ == "json":
        emit(as_json([dict(zip(columns, map(_plain, row), strict=True)) for row in rows]))
    else:
        emit(as_columns([columns, *([_cell(value) for value in row] for row in rows)]))


def _execute(
    settings: Settings, statements: tuple[Parsed, ...], format_: str, out: str | None
) -> None:
    """Statements of our own language: each result as soon as it is there."""
    opened = open_catalog(settings, write=True)

    def show(result: Result) -> None:
        for line in result.notices:
            note(line)
        if result.explanation is not None:
            _emit_explanation(settings, result, result.explanation, format_, out)
        elif result.rows is not None:
            _emit_rows(result.rows.columns, result.rows.values, format_)
        elif format_ == "json":
            emit(_document(result))
        else:
            emit(result.summary + "\n")

    opened.execute(
        statements, on_result=show, on_progress=note, limit=settings.number("streams.limit"),
        confirm=asking_unsafe(),
    )


def _document(result: Result) -> str:
    return as_json({"restarted": list(result.restarted), **statement_result(result)})


def _emit_explanation(
    settings: Settings, result: Result, explanation: Explanation, format_: str, out: str | None
) -> None:
    """What a statement would do, as a report."""
    from catalog_migrate.report.statements import report_statement

    report = report_statement(explanation, catalog=settings.text("catalog.uri"), at=now())
    forms = make_forms(report, settings, lambda: _document(result))
    if emit_forms(forms, format_, out, otherwise="text") is not None:
        note(f"saved to {out}")


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def _plain(value: object) -> object:
    """A value as JSON has it; what JSON has no form for, as text."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
