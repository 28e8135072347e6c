"""docs/users-views.md, from what Spark made of users' views over a table that changed.

``python -m tests.users.view_page`` tries every cell on real Spark and writes the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from catalog_migrate.planner.plan import UserColumn
from catalog_migrate.users.meaning import Comparison
from tests.users.view_matrix import CHANGES, SHAPES, VIEWS, Cell, Change, Matrix, Shape, shown

PAGE = Path(__file__).parents[2] / "docs" / "users-views.md"

_OF_THE_PAGE = (
    "SELECT k, a, b FROM t", "SELECT * FROM t", "SELECT r.*, r.k + 1 AS next FROM t AS r",
    "SELECT * EXCEPT (b) FROM t", "SELECT DISTINCT * FROM t", "SELECT * FROM t NATURAL JOIN u",
    "SELECT * FROM t JOIN u USING (k)",
    "SELECT k, d FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND d = 'x')",
    "SELECT max(a) FROM matrix.t WHERE t.k = x", "SELECT * FROM matrix.t",
)  # fmt: skip
SHAPES_OF_PAGE = [each for each in SHAPES if each.sql in _OF_THE_PAGE and not each.columns]
CHANGES_OF_PAGE = [
    each for each in CHANGES if each.title in (
        "gains a column", "gains a column that the other table has", "loses `b`",
        "has `b` first", "renames `a` to `z`", "`a` becomes BIGINT", "`a` becomes SMALLINT",
        "`a` becomes DATE", "`k` may be NULL", "is dropped",
    )
]  # fmt: skip

_HEAD = """\
# What Spark makes of users' views

What becomes of a view, or a SQL function, when a release changes the table that it reads.
`plan --bind`, `check --bind` and every start say so beforehand, for each object of a user.
Written by `make users-views`: real views over a real Delta table that is dropped and created with
other columns. A test creates them again, and fails where Spark differs from what was said
beforehand and where this page differs from what it found; `make soak` tries 31 queries and 18
changes.

A view has one of four modes, `WITH SCHEMA …` when it is created:

- **COMPENSATION**, the mode of a view that names none: a column keeps its type, and other values
  are cast to it. Spark says nothing; a value that does not fit fails when the view is read.
- **BINDING**: only casts that lose nothing by their types. What this tool makes has it.
- **TYPE EVOLUTION**: a column takes the new type. `EVOLUTION` with a list of columns is this too.
- **EVOLUTION**: the view is what its query gives: it gains columns and **loses one in silence**.

A stored query is looked up by the names that it gave when the view was created. So `SELECT *` keeps
its columns in their order in every mode but EVOLUTION, and where one is missing, or comes twice,
the view cannot be read. A **temporary view** made in SQL binds, and one of a DataFrame
(`createOrReplaceTempView`) goes on reading the old table: neither is in the catalog, so no plan
names them. A **function** returns what it says: its value is cast, the columns of its query are
taken by their place and not by their names.

*Other rows*: the view can be read and means something else; the tool compares the plans that Spark
makes on the old columns and on the new ones.

The tables were `t ({t})` and `u (k INT, d STRING)`.
"""


def page(cells: Iterable[Cell], compared: Mapping[str, Mapping[Shape, Comparison]]) -> str:
    """The page over cells; ``compared`` are what queries mean otherwise, by title of a change."""
    by_change: dict[Change, dict[Shape, dict[str, str]]] = {}
    for cell in cells:
        found = compared.get(cell.change.title, {}).get(cell.shape, Comparison())
        rows = by_change.setdefault(_hashed(cell.change), {})
        rows.setdefault(cell.shape, {})[cell.mode] = describe(cell, found)
    parts = [_HEAD.format(t="k INT NOT NULL, a INT, b STRING")]
    for change, rows in by_change.items():
        parts.append(_section(change, rows))
    return "\n".join(parts)


def describe(cell: Cell, compared: Comparison) -> str:
    """What was said of a cell."""
    said = cell.said
    if said.output is None:
        return f"**breaks**: `{said.condition}`"
    words = list(dict.fromkeys(map(_of_column, said.columns)))
    known = {each.name for each in said.columns if each.change in _OTHER_VALUES}
    words += [
        f"`{each.name}` means another column" for each in compared.columns
        if each.name not in known and "" not in known  # the value of a function has no name
    ]
    words += ["other rows"] * bool(compared.rows)
    return ", ".join(words) or "as before"


_OTHER_VALUES = frozenset({"removed", "retyped", "cast"})


def _of_column(each: UserColumn) -> str:
    name = f"`{each.name}`" if each.name else "the value"
    return {
        "added": f"gains {name}", "removed": f"loses {name}", "retyped": f"{name} is {each.new}",
        "cast": f"{name}: {each.new} cast to {each.old}",
        "nullability": f"{name} {'may be' if each.new == 'NULL' else 'is'} {each.new}",
        "moved": "another order",
    }[each.change]


def _section(change: Change, rows: Mapping[Shape, Mapping[str, str]]) -> str:
    lines = [f"## {'Its column' if change.title[0] == '`' else 'The table'} {change.title}", ""]
    if change.columns is not None:
        lines += [f"`t ({shown(change.columns)})`", ""]
    views = {shape: cells for shape, cells in rows.items() if not shape.returns}
    told = {shape: cells for shape, cells in views.items() if len({*cells.values()}) > 1}
    if told:
        lines += [f"| query | {' | '.join(VIEWS)} |", "|---" * (len(VIEWS) + 1) + "|"]
        lines += [
            f"| `{shape.sql}` | {' | '.join(cells[mode] for mode in VIEWS)} |"
            for shape, cells in told.items()
        ]
        lines.append("")
    alike = [
        f"- `{shape.sql}`: {cells[VIEWS[0]]}" for shape, cells in views.items()
        if shape not in told
    ]
    lines += ["Alike in every mode:", "", *alike, ""] if alike else []
    lines += ["Functions:", ""]
    lines += [
        f"- `RETURNS {shape.returns} RETURN {shape.sql}`: {cells['function']}"
        for shape, cells in rows.items() if shape.returns
    ]
    return "\n".join([*lines, ""])


def _hashed(change: Change) -> Change:
    """A change that may be a key."""
    columns = None if change.columns is None else tuple(change.columns)
    return Change(change.title, columns, _Renames(change.renames))


class _Renames(dict[str, str]):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def main() -> None:
    """Try every cell, and write the page."""
    from catalog_migrate.engine.spark.session import local_session

    with TemporaryDirectory() as place:
        spark = local_session(warehouse_dir=f"{place}/spark", kafka=False)
        matrix = Matrix(spark, place, SHAPES_OF_PAGE)
        compared = {
            each.title: matrix.compared(each) for each in CHANGES_OF_PAGE if each.columns
        }
        cells = list(matrix.cells(CHANGES_OF_PAGE))
        wrong = [cell for cell in cells if cell.found != cell.expected]
        if wrong:
            raise SystemExit(f"said otherwise than found: {wrong}")
        PAGE.write_text(page(cells, compared), encoding="utf-8")
        spark.stop()


if __name__ == "__main__":
    main()
