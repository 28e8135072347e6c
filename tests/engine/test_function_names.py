"""Names of functions as SHOW FUNCTIONS has them."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.spark.registrations import read_function_name


@pytest.mark.parametrize(("shown", "name"), [
    ("spark_catalog.s.f", "spark_catalog.s.f"),
    ("`spark_catalog`.`s`.`f`", "spark_catalog.s.f"),
    ("spark_catalog.s.`g h`", "spark_catalog.s.g h"),
    ("`spark_catalog`.`s`.`a``b.c`", "spark_catalog.s.a`b.c"),
    ("spark_catalog.s.it's `odd`; --", "spark_catalog.s.it's `odd`; --"),
])
def test_a_name_is_read_in_backticks_and_without(shown: str, name: str) -> None:
    """Backticks around a part go, those of a name stay."""
    assert read_function_name(shown) == name
