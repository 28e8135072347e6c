"""A plan as one self-contained HTML page."""

from __future__ import annotations

import html

from catalog_migrate.model.wording import one_line
from catalog_migrate.planner.plan import Plan
from catalog_migrate.report.outline import Section, outline

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,.sign{font-family:ui-monospace,monospace}"
    ".safe,.nothing{color:#17692e}.losses,.decisions{color:#8a5a00}.blocked,.fenced{color:#a31515}"
    "@media (prefers-color-scheme:dark){body{background:#111;color:#ddd}"
    ".safe,.nothing{color:#6c6}.losses,.decisions{color:#eb5}.blocked,.fenced{color:#f77}}"
)


def render(plan: Plan) -> str:
    """The report of ``plan`` as a page without scripts or outside references."""
    report = outline(plan)
    found = report.verdict
    title = html.escape(one_line(f"Release {plan.target.release}: {found.word}"))
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
        f'<h1 class="{found.kind}">{html.escape(found.line)}</h1>\n',
        f"<p>{html.escape(report.route)}</p>\n",
        *(_section(section) for section in report.sections),
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def _section(section: Section) -> str:
    lines = [f"<h2>{html.escape(section.title)}</h2>\n"]
    if section.note:
        lines.append(f"<p>{html.escape(section.note)}</p>\n")
    if section.entries or section.more:
        lines.append("<ul>\n")
        for entry in section.entries:
            sign = f'<span class="sign">{html.escape(entry.sign)}</span> ' if entry.sign else ""
            details = "".join(
                f"<li><code>{html.escape(line)}</code></li>" for line in entry.details
            )
            below = f"<ul>{details}</ul>" if details else ""
            lines.append(f"<li>{sign}{html.escape(entry.head)}{below}</li>\n")
        if section.more:
            lines.append(f"<li>… and {section.more:,} more</li>\n")
        lines.append("</ul>\n")
    return "".join(lines)
