"""A report as one HTML page without outside references."""

from __future__ import annotations

import html

from catalog_migrate.report.report import Report, Section

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,.sign{font-family:ui-monospace,monospace}"
    ".safe,.nothing,.unproven{color:#17692e}.losses,.decisions{color:#8a5a00}.blocked,.fenced{color:#a31515}"
    "@media (prefers-color-scheme:dark){body{background:#111;color:#ddd}"
    ".safe,.nothing,.unproven{color:#6c6}.losses,.decisions{color:#eb5}.blocked,.fenced{color:#f77}}"
)


def lay_out_page(report: Report) -> str:
    """Lay ``report`` out as a page without scripts or outside references."""
    found = report.verdict
    title = html.escape(report.title)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
        f'<h1 class="{found.kind}">{html.escape(found.line)}</h1>\n',
        f"<p>{html.escape(report.route)}</p>\n",
        *(_html_section(section) for section in report.sections),
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def _html_section(section: Section) -> str:
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
