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
    from catalog_migrate.report import layouts

    if format_ == "markdown":
        return layouts.render_markdown(plan)
    if format_ == "html":
        return layouts.render_html(plan)
    return layouts.render_text(plan, color=color, width=width)
