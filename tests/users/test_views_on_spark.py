"""What is said beforehand of users' views and functions is what Spark then makes of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.users.view_matrix import CHANGES, SHAPES, Matrix
from tests.users.view_page import CHANGES_OF_PAGE, PAGE, SHAPES_OF_PAGE, page

pytestmark = pytest.mark.spark

WITHOUT_ROWS = frozenset({
    "`a` becomes DATE", "`a` becomes ARRAY<INT>", "`b` becomes TIMESTAMP", "`a` becomes NOT NULL",
    "is dropped",
})  # fmt: skip
"""Changes that the rows do not survive."""
OTHER_ROWS = {
    ("gains a column that the other table has", "SELECT * FROM t NATURAL JOIN u"),
    ("gains a column that the other table has",
     "SELECT k, d FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND d = 'x')"),
}
"""Views that Spark reads as before, of which these rows show that they are others."""


@pytest.fixture
def matrix(spark, warehouse, request) -> Iterator[Matrix]:
    made = Matrix(spark, warehouse, **getattr(request, "param", {}))
    yield made
    made.drop()


def differences(cells) -> list[str]:
    return [
        f"{cell.change.title}: {cell.shape} as {cell.mode}: {cell.expected} / {cell.found}"
        for cell in cells if cell.expected != cell.found
    ]


@pytest.mark.parametrize("matrix", [{"shapes": SHAPES_OF_PAGE}], indirect=True)
def test_the_page_says_what_spark_makes_of_users_views(matrix):
    """Each cell: the columns that a reader gets, or the error class; `make users-views`."""
    compared = {each.title: matrix.compared(each) for each in CHANGES_OF_PAGE if each.columns}
    cells = list(matrix.cells(CHANGES_OF_PAGE))
    assert len(cells) == 420
    assert differences(cells) == []
    assert PAGE.read_text("utf-8") == page(cells, compared)


@pytest.mark.soak
def test_every_query_in_every_mode_after_every_change(matrix):
    """2502 cells, none of which Spark makes anything else of than was said."""
    cells = list(matrix.cells(CHANGES))
    assert len(cells) == 2502
    assert differences(cells) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    "matrix", [{"rows": True, "modes": ("COMPENSATION", "function")}], indirect=True
)
def test_what_is_said_to_mean_the_same_gives_the_same_rows(matrix):
    """Of everything that can be read before and after; and other rows are said where they are."""
    before = matrix.rows()
    assert None not in before.values()
    wrong, other = [], set()
    for change in CHANGES:
        if change.title in WITHOUT_ROWS:
            continue
        compared, after = matrix.compared(change), matrix.rows(change)
        for (shape, mode), rows in after.items():
            if rows is None or rows == before[shape, mode]:
                continue
            if not compared[shape]:
                wrong.append((change.title, shape, before[shape, mode], rows))
            other.add((change.title, shape.sql))
    assert wrong == []
    assert other >= OTHER_ROWS
    assert len(SHAPES) == 31
