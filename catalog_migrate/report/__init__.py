"""Reports: what is to be said as one value, and its layouts as text, Markdown, a page, a picture.

What a kind of plan says is made into a :class:`~catalog_migrate.report.report.Report` by a module
of its own; a layout knows no kind of plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.report.report import Report

FORMATS = ("text", "json", "markdown", "html", "svg")
GRAPH_FORMATS = ("text", "html", "svg", "dot", "mermaid", "json")
"""Those of a graph and of a program (:mod:`catalog_migrate.report.pictures`)."""


def render(
    plan: Plan, format_: str, *, color: bool = False, width: int = 100, at: datetime | None = None
) -> str:
    """Render ``plan`` in one of :data:`FORMATS`, ending in one newline.

    ``color`` and ``width`` (columns) count for text alone, ``at`` (when it is rendered) for a page.
    JSON is the plan file, indented.
    """
    if format_ == "json":
        import msgspec

        from catalog_migrate.planner.planfile import encode_plan

        return msgspec.json.format(encode_plan(plan), indent=2).decode().rstrip("\n") + "\n"
    from catalog_migrate.report.outline import outline

    return lay_out(outline(plan, at=at), format_, color=color, width=width)


def lay_out(report: Report, format_: str, *, color: bool = False, width: int = 100) -> str:
    """Lay ``report`` out in any of :data:`FORMATS` but JSON; arguments as in :func:`render`.

    Raises UsageError for the SVG of a report that has no picture.
    """
    if format_ == "markdown":
        from catalog_migrate.report.markdown import lay_out_markdown

        return lay_out_markdown(report)
    if format_ == "html":
        from catalog_migrate.report.page import lay_out_page

        return lay_out_page(report)
    if format_ == "svg":
        if not report.picture.nodes:
            raise UsageError(
                f"{report.title}: this report has no picture", remedy="use --format html"
            )
        from catalog_migrate.report.svg import draw_picture

        return draw_picture(report.picture, title=report.title)
    from catalog_migrate.report.text import lay_out_text

    return lay_out_text(report, color=color, width=width)
