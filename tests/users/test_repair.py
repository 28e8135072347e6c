"""The texts that bind again after a release, as Spark's analyser answered when it was asked."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.port import QueryAnalysis, QueryRequest, UserDefinition
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.users.column_changes import compare_shape
from catalog_migrate.users.renaming import name_items, rename_relations
from catalog_migrate.users.repair import propose_repair
from tests.users.recorded import Recorded
from tests.users.repair_cases import CASES, repair

RECORDED = Recorded()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_text_is_repaired_or_left_to_be_looked_at(case):
    """What is renamed has its new name, columns keep theirs, all else is as it was written."""
    found = repair(case, RECORDED.analyse)
    assert (None if found is None else found.sql) == case.repaired


def test_what_is_renamed_in_it_is_named():
    """A remedy can say what to write; a text that stays as it is names nothing."""
    by_sql = {case.sql: repair(case, RECORDED.analyse) for case in CASES if case.repaired}
    assert by_sql["SELECT city FROM shop.orders WHERE customer_id > 0"].renamed == (
        ("city", "zone"), ("customer_id", "buyer_id"),
    )
    assert by_sql["TABLE shop.visits"].renamed == (("shop.visits", "shop.views"),)
    assert by_sql["SELECT id, day FROM shop.orders"].renamed == ()


class TestSearch:
    """The search itself, against an analyser that answers as it is told."""

    OLD = (Column("a", "INT"), Column("b", "INT"))
    NEW = (Column("z", "INT"), Column("b", "INT"))
    NAME = ItemName("s", "t")

    def propose(self, sql, analyse):
        request = QueryRequest(ItemName("team", "v"), sql, {self.NAME: self.OLD})
        after = QueryRequest(request.name, sql, {self.NAME: self.NEW})
        definition = UserDefinition(request.name, "view", sql, self.OLD[:1], ("a",))
        change = compare_shape(self.NAME, self.OLD, self.NEW, {"a": "z"})
        return propose_repair(definition, request, after, {("s", "t"): change}, analyse)

    def test_ends_where_spark_never_says_enough(self):
        """A text in which no edit helps costs a bounded number of analyses."""
        asked = []

        def analyse(requests):
            asked.extend(requests)
            plan = "Project [a#1]\n+- SubqueryAlias s.t\n   +- LogicalRDD [a#1, b#2], false"
            if len(asked) == 1:
                return [QueryAnalysis(self.OLD[:1], plan=plan)]
            return [QueryAnalysis(condition=f"UNRESOLVED_{len(asked)}", missing="a")]

        sql = f"SELECT {' + '.join(['a'] * 30)} AS a FROM s.t"
        assert self.propose(sql, analyse) is None
        assert len(asked) <= 20 + 4 * 31 + 1

    def test_proposes_nothing_for_what_did_not_bind_before(self):
        """There is nothing to compare with."""
        def analyse(requests):
            return [QueryAnalysis(condition="UNRESOLVED_COLUMN", missing="a")]

        assert self.propose("SELECT a FROM s.t", analyse) is None


@pytest.mark.parametrize(("sql", "bare", "aliased"), [
    ("SELECT t.a FROM s.t", "SELECT t.a FROM s.u", "SELECT t.a FROM s.u AS t"),
    ("SELECT x.a FROM s.t x, S.`T` AS y", "SELECT x.a FROM s.u x, s.u AS y",
     "SELECT x.a FROM s.u x, s.u AS y"),
    ("SELECT s.t.a, 's.t' FROM s.t WHERE 1 = 1", "SELECT s.t.a, 's.t' FROM s.u WHERE 1 = 1",
     "SELECT t.a, 's.t' FROM s.u AS t WHERE 1 = 1"),
    ("TABLE t", "TABLE s.u", "TABLE s.u"),
    ("WITH t AS (SELECT 1) SELECT * FROM t", "WITH t AS (SELECT 1) SELECT * FROM t",
     "WITH t AS (SELECT 1) SELECT * FROM t"),
    ("SELECT a FROM other.t JOIN spark_catalog.s.t USING (a)",
     "SELECT a FROM other.t JOIN s.u USING (a)", "SELECT a FROM other.t JOIN s.u AS t USING (a)"),
])
def test_relations_are_renamed_where_they_are_read(sql, bare, aliased):
    """The rest of the text stays; with an alias what is qualified by the old name still binds."""
    renamed = {("s", "t"): ItemName("s", "u")}
    assert rename_relations(sql, renamed, "s", aliased=False) == bare
    assert rename_relations(sql, renamed, "s", aliased=True) == aliased


@pytest.mark.parametrize(("sql", "named"), [
    ("SELECT a, b AS c FROM t", "SELECT a AS x, b AS `y z` FROM t"),
    ("SELECT max(a) m, CASE WHEN a THEN 1 END FROM t",
     "SELECT max(a) x, CASE WHEN a THEN 1 END AS `y z` FROM t"),
    ("WITH q AS (SELECT 1) SELECT DISTINCT q.a, (b) UNION SELECT 1, 2",
     "WITH q AS (SELECT 1) SELECT DISTINCT q.a AS x, (b) AS `y z` UNION SELECT 1, 2"),
    ("SELECT *, a FROM t", None), ("SELECT a FROM t", None), ("TABLE t", None),
    ("FROM t |> SELECT a, b", None),
])
def test_columns_get_a_view_s_own_names(sql, named):
    """ALTER VIEW takes no list of columns: each is called so in the query."""
    assert name_items(sql, {0: "x", 1: "y z"}) == named
