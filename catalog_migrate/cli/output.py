"""What goes to stdout: reports in every form, values as JSON, tables as columns."""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec

from catalog_migrate.cli import logs, options
from catalog_migrate.errors import MigrationBlocked, OutputFailed, UsageError
from catalog_migrate.model.wording import align, counted, visible
from catalog_migrate.report import render

if TYPE_CHECKING:
    from catalog_migrate.config import Settings
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.report.report import Report
    from catalog_migrate.streams.ddl.execute import Result
    from catalog_migrate.streams.positions.plan import UnsafePlan

Value = TypeVar("Value")

_SUFFIXES = {".json": "json", ".html": "html", ".htm": "html", ".md": "markdown", ".svg": "svg"}
"""Forms of a report by the names of files."""


def render_plan(plan: Plan, format_: str, settings: Settings, *, to_file: bool = False) -> str:
    """A report of ``plan``; text has colours on a terminal only, as configured."""
    return render(
        plan, format_, color=not to_file and use_color(settings),
        width=int(settings.number("output.width") or 100), at=now(),
    )


def now() -> datetime:
    """The time that a report is made at."""
    return datetime.now(timezone.utc)


def emit_plan(plan: Plan, format_: str, settings: Settings, out: str | None) -> None:
    """Print ``plan``; with ``out`` save it there and print the text report.

    The saved file is the plan itself unless another form than text was asked for, or its name ends
    as files of one do.
    """
    def make(form: str, to_file: bool) -> str:
        return render_plan(plan, form, settings, to_file=to_file)

    form = emit_forms(make, format_, out, otherwise="json")
    if form is None:
        return
    refused = ""
    if not plan.applyable and form == "json":
        from catalog_migrate.report.user_objects import is_blocked_by_users

        refused = "; it is blocked: `apply` refuses it, so plan again with what the report asks for"
        if is_blocked_by_users(plan):
            refused = "; `apply` looks at users' objects again: approve there those that break"
    note(f"saved to {out}{refused}")


def emit_forms(
    make: Callable[[str, bool], str], format_: str, out: str | None, *, otherwise: str
) -> str | None:
    """Print a report; with ``out`` save it there and print it as text. Returns the saved form.

    ``make`` takes a form, and whether it is for a file. Of :func:`form_of` comes the form of a file
    whose name does not tell it and for which none was asked: ``otherwise``.
    """
    if out is None:
        sys.stdout.write(make(format_, False))
        return None
    form = form_of(out, format_, otherwise=otherwise)
    saved = make(form, True)
    if out == "-":  # a program reads it, so the report is left out
        sys.stdout.write(saved)
        return None
    save_result(out, saved)
    sys.stdout.write(make("text", False))
    return form


def make_forms(
    report: Report, settings: Settings, document: Callable[[], str]
) -> Callable[[str, bool], str]:
    """The forms of ``report`` for :func:`emit_forms`; ``document`` makes its JSON."""
    from catalog_migrate.report import lay_out

    def make(form: str, to_file: bool) -> str:
        if form == "json":
            return visible(document())
        return lay_out(
            report, form, color=not to_file and use_color(settings),
            width=int(settings.number("output.width") or 100),
        )

    return make


def form_of(out: str, format_: str, *, otherwise: str) -> str:
    """Return the form in which ``out`` is written: what was asked for, else what its name says."""
    if format_ != "text":
        return format_
    return _SUFFIXES.get(Path(out).suffix.lower(), otherwise)


def use_color(settings: Settings) -> bool:
    """``output.color``, where ``auto`` is a terminal and no ``NO_COLOR``."""
    choice = settings.text("output.color")
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextmanager
def print_blocked_plan(format_: str, settings: Settings) -> Iterator[None]:
    """A plan that may not be applied is printed before its MigrationBlocked goes on."""
    try:
        yield
    except MigrationBlocked as error:
        if error.plan is not None:
            sys.stdout.write(render_plan(error.plan, format_, settings))
        raise


def emit_start(report: BootstrapReport | None, format_: str) -> int:
    """Print what a start did; its exit code. None is one that the person did not want."""
    if report is None:
        note("nothing was touched")
        return 1
    sys.stdout.write(as_json(_summary(report)) if format_ == "json" else _sentence(report))
    return 0


def _summary(report: BootstrapReport) -> dict[str, object]:
    """What a start did, for programs."""
    return {
        **pick(
            report, "outcome", "release", "serial", "rows_copied", "names", "unfilled",
            "outstanding", "repaired",
        ),
        "summary": report.plan.summary if report.plan is not None else {},
        **pick(report, "steps", "executed"),
    }


def statement_result(result: Result) -> dict[str, object]:
    """What one statement did, or of EXPLAIN would do: ``explained`` has what that says."""
    found = pick(result, "summary", "operation", "notices", "steps", "executed")
    if result.explanation is not None:
        from catalog_migrate.report.statements import report_statement

        report = report_statement(result.explanation)
        found["explained"] = pick(report, "verdict", "objects", "decisions")
    return found


def _sentence(report: BootstrapReport) -> str:
    """What a start did, for people."""
    from catalog_migrate.report.verdict import change_counts

    lines = [f"{report.outcome}: release {report.release}, serial {report.serial}"]
    if report.plan is not None and not report.plan.is_empty:
        lines.append(f"  {change_counts(report.plan)}")
    if report.executed:
        lines.append(f"  {counted(len(report.executed), 'step')} executed")
    if report.rows_copied:
        lines.append(f"  {counted(report.rows_copied, 'row')} copied")
    if report.unfilled:
        lines.append(
            f"  {counted(len(report.unfilled), 'derived table')} still to be filled:"
            f" {', '.join(report.unfilled)}"
        )
    if report.repaired:
        lines.append(f"  {len(report.repaired):,} of users' views and functions repaired:")
        lines += [f"    {each}" for each in report.repaired]
    if report.outstanding:
        lines.append("  not done for users' objects; the software runs without it:")
        lines += [f"    {each}" for each in report.outstanding]
    return visible("\n".join(lines)) + "\n"


_OTHER_PLACE = (
    "give --out a file in a directory that exists and may be written, with room on its disk"
)
_SOURCES = (".sql", ".toml", ".py", ".parquet")
_MANIFEST = re.compile(rb'\s*{\s*"format_version":\s*"[^"]*",\s*"release":')


def save_result(out: str, text: str) -> None:
    """Write what ``--out`` asks for; OutputFailed where it would take the place of a source.

    A plan in the place of a release's SQL or manifest, or of the configuration, is a slip of the
    hand that nobody could undo; any file in a Delta log destroys the table.
    """
    try:
        path = Path(out).resolve()  # through links, as it is written
        source = path.is_file() and (path.suffix.lower() in _SOURCES or _is_manifest(path))
    except (OSError, RuntimeError):
        source = False  # saving says what is wrong
        path = Path(out)
    from catalog_migrate.delta.log import is_in_log

    if is_in_log(str(path)):
        raise OutputFailed(
            f"{out} is in the log of a Delta table", remedy="give --out another directory"
        )
    if source:
        raise OutputFailed(
            f"{out} is there, and no result of this verb: it is not replaced",
            remedy="give --out another name, or take that file away first",
        )
    save(out, text)


def _is_manifest(path: Path) -> bool:
    """Whether a file is a release's manifest; a plan's second key is another."""
    if path.suffix.lower() != ".json":
        return False
    with path.open("rb") as stream:
        return _MANIFEST.match(stream.read(200)) is not None


def save(out: str, text: str, *, remedy: str = _OTHER_PLACE) -> None:
    """Write a text whole or not at all; OutputFailed with the reason and ``remedy``.

    A new file has the permissions that the umask leaves, one that is replaced keeps its own. A
    device or a pipe is written to, not replaced.
    """
    path = Path(out)
    try:
        standing = _mode_of(path)
        if standing is not None and not stat.S_ISREG(standing):
            with path.open("w", encoding="utf-8") as stream:
                stream.write(text)
            return
        # through a link, so that the link stays; under a name that nobody can have laid a link at
        target = path.resolve() if path.is_symlink() else path
        partial = target.with_name(f".{target.name[:100]}.{uuid4().hex}")
    except OSError as error:
        raise _output_error(out, error, remedy) from error
    try:
        with partial.open("x", encoding="utf-8") as stream:
            if standing is not None:
                os.chmod(partial, stat.S_IMODE(standing))
            stream.write(text)
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):  # on a read-only disk even what is not there cannot be removed
            partial.unlink()
        raise _output_error(out, error, remedy) from error


def _mode_of(path: Path) -> int | None:
    """The mode of what is there, links followed; None when nothing is."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _output_error(out: str, error: OSError, remedy: str) -> OutputFailed:
    return OutputFailed(f"{out} cannot be written: {error.strerror}", remedy=remedy)


def emit(text: str, out: str | None = None) -> None:
    """Print a result, or save it; nothing printed steers the terminal. ``-`` is stdout too."""
    if out is None or out == "-":
        sys.stdout.write(visible(text))
    else:
        save_result(out, text)
        note(f"saved to {out}")


def emit_value(
    value: Value, format_: str, document: Callable[[Value], object], text: Callable[[Value], str]
) -> None:
    """Print a value in one of its two forms: ``document`` for programs, ``text`` for people."""
    emit(as_json(document(value)) if format_ == "json" else text(value))


def as_json(value: Any) -> str:
    """Indented JSON with sorted keys left alone, ending in a newline."""

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def pick(value: object, *names: str) -> dict[str, Any]:
    """Return some attributes of a value by their names, for a document."""
    return {name: getattr(value, name) for name in names}


def as_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in aligned columns."""
    return "".join(f"{line}\n" for line in align(rows))


def note(text: str) -> None:
    """A line for the person who watches, on stderr; safe to call from any thread."""
    logs.log(logging.INFO, "note", text)


def confirm(question: str) -> bool:
    """Ask on stderr; without a terminal (or with ``--no-input``) UsageError names ``--yes``."""
    require_answer()
    if options.is_given("--yes"):
        return True
    import click

    return click.confirm(question, err=True)


def require_answer() -> None:
    """UsageError where nobody can be asked: what :func:`confirm` would say, before long work."""
    if not options.is_given("--yes") and (options.is_given("--no-input") or not _is_asked()):
        raise UsageError(
            "this would change the catalog, and there is no terminal for a confirmation",
            remedy="look at the plan, then add --yes",
        )


def _is_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def asking(settings: Settings) -> Callable[[Plan], bool] | None:
    """Shows a plan on stderr and asks whether it is to be carried out; None with ``--yes``.

    The answer of :func:`confirm`, and its UsageError where there is nobody to ask.
    """
    if options.is_given("--yes"):
        return None

    def ask(plan: Plan) -> bool:
        from catalog_migrate.report.verdict import goes_back

        for line in render_plan(plan, "text", settings, to_file=logs.is_json()).splitlines():
            # a report shows nothing of others raw, and may have colours of our own
            logs.log(logging.INFO, "note", line, None if logs.is_json() else {"painted": True})
        question = "Roll back?" if goes_back(plan) else "Apply this?"
        return confirm(question)

    return ask


def asking_unsafe() -> Callable[[UnsafePlan], bool]:
    """Shows the plan, and lets the name of a source be typed on a terminal without ``--yes``.

    Where neither is possible nobody is asked.
    """
    from catalog_migrate.report import lay_out
    from catalog_migrate.report.unsafe import report_unsafe
    from catalog_migrate.streams.positions.client import never_confirm

    yes = options.is_given("--yes")

    def ask(plan: UnsafePlan) -> bool:
        note(lay_out(report_unsafe(plan), "text").rstrip())
        if yes:
            return True
        import click

        name = plan.items[0].name
        return bool(click.prompt(f"type {name} to go on", default="", show_default=False) == name)

    return ask if yes or _is_asked() else never_confirm
