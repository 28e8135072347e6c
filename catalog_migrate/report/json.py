"""A plan as its own contract: the plan file, indented."""

from __future__ import annotations

from catalog_migrate.planner.plan import Plan


def render(plan: Plan) -> str:
    """The plan file of ``plan`` (``format_version`` 1.0), ending in one newline."""
    import msgspec

    from catalog_migrate.planner.planfile import encode_plan

    return msgspec.json.format(encode_plan(plan), indent=2).decode().rstrip("\n") + "\n"
