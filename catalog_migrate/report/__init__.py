"""Reports of a plan: one outline, laid out as text, markdown or HTML; and the plan file as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan

FORMATS = ("text", "json", "markdown", "html")


def render(plan: Plan, format_: str, *, color: bool = False, width: int = 100) -> str:
    """The report of ``plan`` in one of :data:`FORMATS`, ending in one newline.

    ``color`` and ``width`` (columns) count for text alone. JSON is the plan file, indented.
    """
    if format_ == "json":
        import msgspec

        from catalog_migrate.planner.planfile import encode_plan

        return msgspec.json.format(encode_plan(plan), indent=2).decode().rstrip("\n") + "\n"
    if format_ == "markdown":
        from catalog_migrate.report import markdown

        return markdown.render(plan)
    if format_ == "html":
        from catalog_migrate.report import html

        return html.render(plan)
    from catalog_migrate.report import text

    return text.render(plan, color=color, width=width)
