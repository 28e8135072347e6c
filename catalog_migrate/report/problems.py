"""What is wrong with a release, as a report."""

from __future__ import annotations

from catalog_migrate.errors import InvalidRelease, Problem
from catalog_migrate.model.wording import one_line
from catalog_migrate.report.report import Entry, Report, Section
from catalog_migrate.report.verdict import Verdict


def report_problems(error: InvalidRelease) -> Report:
    """Make the report of a release with errors: each with its place, and what cures it."""
    message = one_line(error.message)
    return Report(
        title=message,
        verdict=Verdict("blocked", "INVALID", f"INVALID: {message}"),
        route=one_line(error.remedy) if error.remedy and not error.problems else "",
        sections=(Section("Problems", tuple(map(_entry, error.problems))),)
        if error.problems else (),
    )


def _entry(problem: Problem) -> Entry:
    place = ":".join(
        str(part) for part in (problem.file, problem.line, problem.column) if part is not None
    )
    what = f"{problem.message} [{problem.code}]"
    cure = (f"remedy: {problem.remedy}",) if problem.remedy else ()
    return Entry(one_line(f"{place}: {what}" if place else what), "!", tuple(map(one_line, cure)))
