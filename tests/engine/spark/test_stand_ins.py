"""What stand-ins share, and the way back from their names."""

from __future__ import annotations

from catalog_migrate.engine.port import contract_reason
from catalog_migrate.engine.spark.stand_ins import real_names
from catalog_migrate.model.objects import Column


def test_lengths_do_not_matter_to_a_query():
    """A VARCHAR contract takes a STRING body: Spark's queries know no lengths."""
    assert contract_reason([Column("a", "VARCHAR(3)")], [Column("x", "STRING")]) is None


def test_real_names_come_in_the_place_of_those_of_stand_ins():
    """One whose number begins with another's is not taken for it."""
    names = {"catalog_migrate_bind_1": ("s", "t"), "catalog_migrate_bind_12": ("s", "U")}
    said = "`catalog_migrate_bind_12` catalog_migrate_bind_1, `catalog_migrate_bind_123`"
    assert real_names(said, names) == "`s`.`U` s.t, `catalog_migrate_bind_123`"
