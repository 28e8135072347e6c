"""Reports made by hand: each is of one kind that a page has to bear."""

from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from bench import generated
from catalog_migrate.cli.init import SAMPLE
from catalog_migrate.model.objects import Check, Column, ObjectDefinition
from catalog_migrate.model.wording import one_line
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_release
from catalog_migrate.report.outline import outline
from catalog_migrate.report.report import (
    OWN_CHANGE,
    Decision,
    Difference,
    Edge,
    Entry,
    Node,
    Picture,
    Report,
    ReportObject,
    Risk,
    Section,
    Wave,
)
from catalog_migrate.report.verdict import Verdict

HEADER = (
    ("Releases", "15.18 -> 16.2"), ("Catalog", "s3://lake/shop/catalog"), ("Serial", "17"),
    ("Plan hash", "4f8a1c0be2d973a6"), ("Tool", "catalog_migrate 0.1.0"),
    ("Time", "2026-11-27 17:30 UTC"),
)
HOSTILE = (
    'shop.`</script><script>window.hit=1</script>`', 'shop.`"><img src=x onerror="window.hit=1">`',
    "shop.`it's & <b>`", "shop.`right\u202eleft\u2066`",
    "shop.`bell\x07 escape\x1b[31m line\u2028`",
    "shop.`${window.hit=1}`", "shop.`<!--`", "shop.`]]>`",
)
"""Names that would be markup, script, or another order of letters, were they not escaped."""
LETTERS = tuple(text[len("shop.`"):-1] for text in HOSTILE)


FIXTURES = Path(__file__).parents[2] / "fixtures" / "postgres_catalog"
MADE_AT = datetime(2026, 11, 27, 12, 0, tzinfo=timezone.utc)


@cache
def postgres() -> Report:
    """What leads from PostgreSQL's catalog at release 15 to that at release 16."""
    before, after = (load_release(FIXTURES / f"{number}.json") for number in (15, 16))
    return outline(plan_migration(Baseline.from_release(before), after).plan, at=MADE_AT)


@cache
def readme() -> Report:
    """The first plan of the README: the sample release, with a column that has another name."""
    with tempfile.TemporaryDirectory() as directory:
        for version in ("1.0", "1.1"):
            for name, text in SAMPLE.items():
                file = Path(directory, version, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                if version == "1.1":
                    text = text.replace('name = "1.0"', 'name = "1.1"')
                    text = text.replace("customer_id", "buyer_id")
                file.write_text(text, encoding="utf-8")
        before, after = (load_release(Path(directory, each, "release")) for each in ("1.0", "1.1"))
    plan = plan_migration(Baseline.from_release(before), after).plan
    changes = tuple(
        replace(each, rows=3, bytes=2_048, files=1) if each.kind == "table" else each
        for each in plan.changes
    )
    base = Base("catalog", "8f14e45fceea167a", 2, "1.0")
    return outline(replace(plan, base=base, changes=changes), at=MADE_AT)


def small() -> Report:
    """Three objects: a table that loses a column, its view, and one that stays."""
    drop = Decision(
        "shop.orders.customer_id", "CM0302",
        "column customer_id is removed, and its values with it",
        "DROPPED (customer_id)",
    )
    fill = Decision(
        "shop.orders.buyer_id", "CM0303",
        "new column buyer_id is NOT NULL and nothing says what the rows there get",
        "buyer_id BIGINT NOT NULL USING <expression over the old columns>",
    )
    orders = ReportObject(
        "shop.orders", "table", "shop", "migrate", "loses", because=("shop.orders",),
        rows=1_250_000, bytes=412_000_000, files=38, seconds=74.2,
        moves="rows are copied into a new table",
        differences=(
            Difference("column", "buyer_id", None, "BIGINT NOT NULL"),
            Difference("column", "customer_id", "BIGINT", None),
            Difference("column", "total", "DECIMAL(10,2)", "DECIMAL(12,2)"),
            Difference("partitioning", "", None, "(day)"),
            Difference("check", "check_1", None, "total >= 0"),
            Difference("comment", "", "orders", "Orders of the shop, one row each"),
        ),
        lost=("the values of column customer_id go",), absent="from step 4 to step 5 (1 step)",
        decisions=(drop, fill), why=OWN_CHANGE,
    )
    view = ReportObject(
        "shop.big_orders", "view", "shop", "migrate", "absent",
        because=("shop.orders", "shop.big_orders"), absent="from step 3 to step 6 (3 steps)",
        differences=(Difference("query", lines=(
            " SELECT", "-  customer_id,", "+  buyer_id,", "   total", " FROM shop.orders",
            " WHERE total > 1000",
        )),),
    )
    return Report(
        "Release 1.1: NEEDS 2 DECISIONS",
        Verdict("decisions", "NEEDS 2 DECISIONS", "NEEDS 2 DECISIONS: 2 migrated; 1 unchanged", 2),
        "from 1.0 (serial 2) to 1.1", HEADER,
        (
            Section("What will happen", (Entry("shop.orders migrate", "~"),), part="objects"),
            Section("What could be lost", (
                Entry("shop.orders: the values of column customer_id go (1,250,000 rows)", "!"),
            )),
            Section("Users' objects", (
                Entry("team.cities breaks: customer_id is missing", "!",
                      ("because: shop.orders -> team.cities",),
                      text="ALTER VIEW team.cities AS\nSELECT buyer_id FROM shop.orders"),
            ), "1 of users' views and functions reads what changes: 1 breaks.", more=3),
            Section("Point of no return", (Entry("shop.orders"),), (
                "When the old directories of these tables are removed: seven days after the commit."
                " Until then a rollback takes their rows from there."
            )),
            Section("How to decide", (Entry("shop.orders", "?"),),
                    "Nothing is touched until each of these is decided.", part="decisions"),
            Section("Steps, in this order", (Entry("copy table", "~"),), (
                "6 steps in 6 waves; 2 steps before the commit, until which the old release stays"
                " in force."
            ), part="steps"),
            Section("What is not touched", note="1 object unchanged."),
            Section("Validation", (Entry("shop.big_orders: its query", "?"),), "not bound"),
        ),
        (orders, view, ReportObject("shop.customers", "table", "shop", "unchanged", rows=2)),
        (drop, fill),
        (
            Wave("wave 1: prepare", ((1, "~", "copy table shop.orders"),)),
            Wave("wave 2: prepare", ((2, "~", "seal table shop.orders"),)),
            Wave("wave 3: after the commit", ((3, "-", "drop view shop.big_orders"),),
                 ("shop.big_orders",)),
            Wave("wave 4", ((4, "-", "unregister table shop.orders"),),
                 ("shop.big_orders", "shop.orders")),
            Wave("wave 5", ((5, "+", "register table shop.orders"),), ("shop.big_orders",)),
            Wave("wave 6", ((6, "+", "create view shop.big_orders"),)),
        ),
        Picture(
            (Node("shop.orders", "table", "shop", "migrate"),
             Node("shop.big_orders", "view", "shop", "migrate"),
             Node("shop.customers", "table", "shop")),
            (Edge(0, 1),),
        ),
    )


def large(size: int = 10_000) -> Report:
    """So many objects, of which three in five change, in the layers of a warehouse."""
    names = [f"schema_{number % 40:02}.object_{number:05}" for number in range(size)]
    changed = size * 3 // 5
    objects = tuple(
        ReportObject(
            name, "table" if number % 2 else "view", name.partition(".")[0],
            "migrate" if number < changed else "unchanged",
            "absent" if number < changed and not number % 2 else "",
            because=(names[number % 50], name) if number < changed else (),
            rows=number * 1_000 if number % 2 else None,
            bytes=number * 100_000 if number % 2 else None,
            moves="rows are copied into a new table" if number < changed and number % 2 else "",
            differences=() if number >= changed else (
                Difference("column", "amount", "INT", "BIGINT"),
                Difference("column", "note", None, "STRING"),
            ) if number % 2 else (Difference("query", lines=(" SELECT", "-  a", "+  b")),),
            absent="from step 17 to step 12,345" if number < changed and not number % 2 else "",
        )
        for number, name in enumerate(names)
    )
    views = [each.name for each in objects[:changed] if each.kind == "view"]
    steps = [("~", f"copy table {each.name}") for each in objects[:changed] if each.kind == "table"]
    drops = [("-", f"drop view {name}") for name in views]
    creates = [("+", f"create view {name}") for name in views]
    parts = ((steps, []), (drops, views), *(
        (creates[start:start + 50], views[start + 50:]) for start in range(0, len(creates), 50)
    ))
    waves, number = [], 1
    for place, (part, absent) in enumerate(parts, start=1):
        waves.append(Wave(
            f"wave {place}: names", tuple((number + at, *each) for at, each in enumerate(part)),
            tuple(absent[:20]), max(len(absent) - 20, 0),
        ))
        number += len(part)
    return Report(
        "Release 2.0: SAFE", Verdict("safe", "SAFE", f"SAFE: {changed:,} migrated"),
        "from 1.0 to 2.0", HEADER,
        (
            Section("What could be lost", note="Nothing: every row and every value is kept."),
            Section("Steps, in this order", note=f"{number - 1:,} steps", part="steps"),
        ),
        objects, (), tuple(waves),
        Picture(
            tuple(Node(each.name, each.kind, each.schema, each.action) for each in objects),
            tuple(
                Edge((number * 7 + part) % max(number, 1), number)
                for number in range(1, size) for part in range(1 + number % 2)
            ),
        ),
    )


def twice() -> Report:
    """A view that goes, a table that comes under its name, and a user of first one, then other."""
    return Report(
        "Release 2: SAFE", Verdict("safe", "SAFE", "SAFE"), "from 1 to 2",
        objects=(
            ReportObject("s.v", "view", "s", "drop", because=("s.v",)),
            ReportObject("s.v", "table", "s", "create", because=("s.v",)),
            ReportObject("s.w", "view", "s", "migrate", because=("s.v", "s.w")),
        ),
        picture=Picture(
            (Node("s.v", "table", "s", "create", False),
             Node("s.v", "view", "s", "drop", True, False),
             Node("s.w", "view", "s", "migrate")),
            (Edge(1, 2, new=False), Edge(0, 2, old=False)),
        ),
    )


def hostile() -> Report:
    """Every text that a release, a comment or an error may put into a report is hostile."""
    texts = HOSTILE
    decisions = tuple(Decision(text, "CM0302", text, text) for text in texts)
    objects = tuple(
        ReportObject(
            text, "table", text, "migrate", "loses", text, (text, texts[0]), 1, 1, 1, 1.0, text,
            (Difference("column", text, text, text), Difference("comment", "", text, None),
             Difference("query", lines=(f"-{text}", f"+{text}"))),
            (text,), text, (decision,), (text,),
        )
        for text, decision in zip(texts, decisions, strict=True)
    )
    return Report(
        texts[0], Verdict("blocked", "BLOCKED", f"BLOCKED: {texts[0]}"), texts[1],
        tuple((text, text) for text in texts),
        (
            *(Section(text, (Entry(text, "!", (text,), (text,), f"{text}\n{text}"),), text)
              for text in texts),
            Section("Steps", part="steps"),
        ),
        objects, decisions,
        tuple(Wave(text, ((number, "~", text),), texts) for number, text in enumerate(texts)),
        Picture(
            tuple(Node(one_line(text), "table", "shop", "migrate") for text in texts),
            tuple(Edge(0, user, one_line(text)) for user, text in enumerate(texts) if user),
        ),
    )


def hostile_release() -> Report:
    """A plan between releases whose columns, comments, CHECKs, properties and SQL are hostile."""
    def define(comment: str, type_: str, mark: str) -> list[ObjectDefinition]:
        table = ObjectDefinition(
            schema="shop", kind="table", name="hostile", contents="retained", comment=comment,
            columns=(Column("id", type_), *(Column(f"{each}{mark}", "STRING") for each in LETTERS)),
            checks=(Check("named", f"id > 0 OR '{comment}' = ''"),),
            properties={"my.<img src=x onerror=window.hit=1>": comment},
        )
        view = ObjectDefinition(
            schema="shop", kind="view", name="view", columns=(Column("id", type_),),
            depends_on=("shop.hostile",), comment=comment,
            sql=f"SELECT id FROM shop.hostile\nWHERE '{mark}' <> '{comment}'",
        )
        return [table, view]

    before = generated.loaded("1 <b>", define("old", "INT", ""))
    after = generated.loaded(
        "2 </script>", define("</script><script>window.hit=1</script>\u202e\x1b", "BIGINT", "<!--")
    )
    return outline(plan_migration(Baseline.from_release(before), after).plan, at=MADE_AT)


def wide() -> Report:
    """One table of 200 columns, all of which change, beside a definition of 5 MB."""
    columns = tuple(
        Difference("column", f"a_rather_long_name_of_column_{number}", "INT", "DECIMAL(38,10)")
        for number in range(200)
    )
    lines = ("-SELECT 1", *(f"+  , column_{number} AS other_{number}" for number in range(140_000)))
    return Report(
        "Release 3: SAFE", Verdict("safe", "SAFE", "SAFE: 2 migrated"), "from 2 to 3", HEADER,
        (Section("What could be lost", note="Nothing: every row and every value is kept."),),
        (
            ReportObject("shop." + "wide_" * 30, "table", "shop", "migrate", differences=columns),
            ReportObject("shop.long", "view", "shop", "migrate",
                         differences=(Difference("query", lines=lines),
                                      Difference("comment", "", "short", "x" * 5_000_000))),
        ),
    )


def nothing() -> Report:
    """What is in force is what is asked for."""
    return Report(
        "Release 2: NOTHING TO DO",
        Verdict("nothing", "NOTHING TO DO", "NOTHING TO DO: 208 objects unchanged"),
        "from 2 (serial 4) to 2", HEADER,
    )


def colours() -> Report:
    """Every action and every risk, with a verdict that no other report here has."""
    actions = ("create", "drop", "migrate", "redefine", "update", "refresh", "restart")
    risks: tuple[Risk, ...] = ("", "absent", "loses", "decide", "blocked")
    objects = tuple(
        ReportObject(f"shop.{action}_{risk}", "table", "shop", action, risk, rows=1,
                     differences=(Difference("comment", "", "one", "other"),))
        for action in actions for risk in risks
    )
    return Report(
        "Release 2: LOSSES DECIDED", Verdict("losses", "LOSSES DECIDED", "LOSSES DECIDED: all"),
        "from 1 to 2", HEADER, (Section("What could be lost", (Entry("all", "!"),)),), objects,
        picture=Picture(
            tuple(Node(each.name, each.kind, "shop", each.action) for each in objects),
            tuple(Edge(0, user, "", user % 2 > 0, user % 3 > 0) for user in range(1, 20)),
        ),
    )
